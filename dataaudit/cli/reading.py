"""The commands that read one manifest: show, inspect, verify; and those about the program itself: doctor, schema."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.cli.shell import (
    FOLDER,
    JSON,
    MANIFEST,
    POLICY,
    REQUIRE_SIGNATURE,
    SAMPLES,
    SAMPLES_DIR,
    choice,
    chosen_samples,
    ending,
    flag,
    lean_process,
    option,
    path,
    print_text,
    signer_options,
)

if TYPE_CHECKING:
    from dataaudit.live.checklist import Phase, Scale
    from dataaudit.manifest.trust import Signer, Trust


@click.command(
    short_help="Print what stands out of a manifest, or its tables.",
    epilog=ending(
        "dataaudit show manifests/first",
        "dataaudit show manifests/first --all",
        "dataaudit show manifests/first --section languages",
        "dataaudit show manifests/first --metric exact_dup_rate",
        "dataaudit show manifests/first --json | jq .splits",
        "dataaudit show s3://bucket/manifests/first",
        codes={0: "printed", 1: "a table is not the one that was published"},
    ),
)
@click.argument("folder", type=MANIFEST, metavar="DIR")
@flag("--all", "Every table.", to="whole")
@option("--section NAME", "One part of them.")
@option("--metric NAME", "Every record of one metric.")
@JSON
@lean_process
def show(folder: Path, section: str | None, metric: str | None, *, whole: bool, as_json: bool) -> None:
    """Print one screen: what a manifest is, and what stands out of it, worst first.

    The rest is one option away: --all prints every table, --section one part of them (a name that is none lists
    them all), --metric every record of a metric.
    """
    from dataaudit.present.report.show import show_manifest

    if sum((whole, section is not None, metric is not None)) > 1 or (section is not None and as_json):
        raise click.UsageError("--all, --section and --metric exclude each other; --json has every section.")
    print_text(show_manifest(folder, metric, section, whole=whole, as_json=as_json))


@click.command(
    short_help="Follow headlines over versions of a corpus.",
    epilog=ending(
        "dataaudit history manifests/*",
        "dataaudit history manifests/* --policy release-gate --baseline manifests/2026-06",
        "dataaudit history manifests/* --policy policy.yaml --out history.html",
        codes={
            0: "printed; with a policy, the last passes",
            1: "a limit of the policy is exceeded by the last",
            2: "wrong use: fewer than two manifests, or of several datasets",
            3: "the policy could not be evaluated for the last",
            4: "nothing was judged for the last",
        },
    ),
)
@click.argument("folders", type=MANIFEST, metavar="DIR...", nargs=-1, required=True)
@path("--policy FILE", "Policy whose limits are shown, and that judges.", kind=POLICY)
@path("--baseline DIR", "What the last is compared with; else the one before it.", kind=MANIFEST)
@path("--out FILE", "Write it as a page with charts, too.")
@JSON
@lean_process
def history(
    folders: tuple[Path, ...], policy: Path | None, baseline: Path | None, out: Path | None, *, as_json: bool
) -> None:
    """Show how the headlines of a corpus went over its manifests, in the order of when they were built.

    With --policy each number stands beside its limit, and each version is judged. The page of --out draws each number
    with its limits, and distributions of the last over those of the baseline.
    """
    from dataaudit.present.report.history import write_history

    text, code = write_history(folders, policy, baseline, out, as_json=as_json)
    print_text(text)
    sys.exit(code)


@click.command(
    short_help="Explain one shard, or one document.",
    epilog=ending(
        "dataaudit inspect manifests/first 3",
        "dataaudit inspect manifests/first train/part-00003.jsonl.zst",
        "dataaudit inspect manifests/first 3:1207",
        "dataaudit inspect manifests/first 3:1207 --samples 5 --samples-dir ~/samples",
        codes={
            0: "printed",
            1: "a table is not the one that was published",
            3: "a store of the samples does not answer, or the system fails",
        },
    ),
)
@click.argument("folder", type=MANIFEST, metavar="DIR")
@click.argument("place", metavar="SHARD[:ROW]")
@SAMPLES
@SAMPLES_DIR
@JSON
def inspect(folder: Path, place: str, samples: int | None, samples_dir: Path | None, *, as_json: bool) -> None:
    """Say what a manifest knows of one shard, or of one document of it. Never its text.

    SHARD is an ordinal, a URI or split/uri; ROW counts the records of the shard from 0, bad ones included. With
    --samples the words around findings are written, masked, to files
    (`dataaudit explain samples`).
    """
    from dataaudit.present.report.inspect import inspect_place

    asked = chosen_samples(samples, samples_dir)
    text = inspect_place(folder, place, as_json=as_json)
    if asked is not None:
        from dataaudit.engine.progress import Progress
        from dataaudit.engine.samples import prepare_samples, sample_manifest

        with Progress(quiet=True) as progress:
            sample_manifest(folder, prepare_samples(*asked, folder), progress, place=place)
    print_text(text)


@click.command(
    short_help="Check a manifest, and the shards on request.",
    epilog=ending(
        "dataaudit verify manifests/first",
        "dataaudit verify manifests/first --data",
        "dataaudit verify manifests/first --data --root /mnt/copy/of/the/data",
        "dataaudit verify manifests/first --require-signature --public-key build.pub",
        "dataaudit verify manifests/first --signature verdict.dsse.json --public-key release.pub",
        codes={
            0: "all is well",
            1: "the manifest disagrees with itself, its data or its signature",
            3: "the quarantine list has lost lines since, or a store does not answer",
        },
    ),
)
@click.argument("folder", type=MANIFEST, metavar="DIR")
@flag("--data", "Hash the shards again too.")
@option("--root DIR", "Where the shards lie now, a folder or an address; with --data.")
@path("--signature FILE", "A signed verdict: it has to be PASSED, and of DIR.")
@REQUIRE_SIGNATURE
@signer_options
@path("--policy FILE", "Policy that the signed verdict has to be of.", kind=POLICY)
@path("--quarantine-list FILE", "List that may lack no line which build and verdict saw.")
@flag("--quiet", "No progress.")
@flag("--json", "Print the result as JSON.", to="as_json")
def verify(
    folder: Path,
    root: str | None,
    signature: Path | None,
    signer: dict[str, Any],
    policy: Path | None,
    quarantine_list: Path | None,
    *,
    data: bool,
    require_signature: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Check schema, digests and ledger of a manifest; exit 1 when anything disagrees, 2 when there is none.

    With --require-signature it also checks whose manifest it is: `dataaudit sign` writes attestation.json. With
    --signature it checks who said that the manifest passed the gate: `dataaudit export verdict --sign` writes that.
    With --quarantine-list exit 3 when the list has lost lines since.
    """
    from dataaudit.api.arguments import OPTIONS, signer_of
    from dataaudit.verify import verify_folder

    asked = "--signature" if signature else "--require-signature" if require_signature else None
    if asked is None and any(value is not None for value in signer.values()):
        raise ConfigError(
            "a signer is named, but no signature is to be checked", "Add --signature FILE, or --require-signature."
        )
    wanted = signer_of(**signer, words=OPTIONS, asked=asked)
    text, code = verify_folder(
        folder,
        data=data,
        root=root,
        as_json=as_json,
        quiet=quiet,
        trust=_trust_of(signature, wanted, policy),
        signer=wanted if require_signature else None,
        quarantine=quarantine_list,
    )
    print_text(text)
    sys.exit(code)


def _trust_of(signature: Path | None, signer: Signer | None, policy: Path | None) -> Trust | None:
    """Return what a signed verdict has to be; None when none is to be checked."""
    if signature is None or signer is None:
        if policy is not None:
            raise ConfigError(
                "--policy says what a signed verdict has to be of, but there is none", "Add --signature FILE."
            )
        return None
    from dataaudit.decide.gate.policy import load_policy
    from dataaudit.manifest.trust import Trust, TrustedPolicy

    trusted = None if policy is None else TrustedPolicy(path=policy, digest=load_policy(policy).digest)
    return Trust(signature=signature, policy=trusted, **asdict(signer))


@click.command(
    short_help="Say what is installed and missing, or what a run is not fed.",
    epilog=ending(
        "dataaudit doctor",
        "dataaudit doctor --json | jq '.checks[] | select(.state != \"ok\")'",
        "dataaudit doctor runs/7b --preset medium",
        "dataaudit doctor runs/7b --preset nano --phase late --without rtp_toxicity_prob",
        codes={
            0: "what is installed works; of a run log: all musts are fed",
            2: "something that is installed is broken; of a run log: there is none",
            3: "of a run log: some must is not fed",
            4: "of a run log: it has no step",
        },
    ),
)
@click.argument("runlog", type=FOLDER, metavar="[RUNLOG]", required=False)
@path("--state DIR", "State folder of builds, to try its file system; .dataaudit by default.")
@choice("--preset", "nano medium large", "Scale of the run; that of its vitals.")
@choice("--phase", "early steady late", "Of the run; by its log when left out.")
@option("--without METRIC", "A metric that does not apply to the run.", multiple=True)
@JSON
def doctor(
    runlog: Path | None,
    state: Path | None,
    preset: Scale | None,
    phase: Phase | None,
    without: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Say what is installed, what is missing and what it is for; exit 2 when something that is installed is broken.

    With RUNLOG, the folder of a run log: say which numbers a run of its scale and phase must be fed and is not, and the
    line of code that feeds each. The check of the tokenizer takes some seconds where no build has run before.
    """
    if runlog is not None:
        if state is not None:
            raise click.UsageError("--state goes with what is installed; RUNLOG is a run log.")
        from dataaudit.live.checklist import check_log, checked_text

        checked = check_log(runlog, preset, phase, without)
        print_text(t.as_json(checked.document()) if as_json else checked_text(checked))
        sys.exit(checked.exit_code)
    if preset or phase or without:
        raise click.UsageError("--preset, --phase and --without go with RUNLOG, the folder of a run log.")
    from dataaudit.doctor import diagnose

    text, code = diagnose(state=state or Path(".dataaudit"), as_json=as_json)
    print_text(text)
    sys.exit(code)


@click.command(
    short_help="Print JSON Schemas of config and manifest.",
    epilog=ending(
        "dataaudit schema",
        "dataaudit schema config > dataaudit-config.schema.json",
        "dataaudit schema --out manifests/schema",
        codes={0: "printed, or written"},
    ),
)
@click.argument("name", required=False)
@path("--out DIR", "Write NAME, or every schema, into this folder.")
@flag("--json", "Print the list as JSON; a schema is JSON anyway.", to="as_json")
def schema(name: str | None, out: Path | None, *, as_json: bool) -> None:
    """Print the JSON Schema of a file or an answer, or the columns of all tables; without NAME, list them."""
    from dataaudit.schemas import export_schemas

    print_text(export_schemas(name, out, as_json=as_json))


@click.command(
    short_help="Print the documentation of a code, a rule, a metric or a page.",
    epilog=ending(
        "dataaudit explain",
        "dataaudit explain invalid_json",
        "dataaudit explain exact_dup_rate",
        "dataaudit explain robust_sd",
        "dataaudit explain quarantine | less",
        codes={0: "printed", 2: "nothing is explained under that name; the nearest are named"},
    ),
)
@click.argument("name", required=False, metavar="[CODE|RULE|METRIC|PAGE]")
@JSON
def explain(name: str | None, *, as_json: bool) -> None:
    """Print the section about a reason code, a key of a policy's rule, a metric, or any heading or page.

    The text is that of the site, and comes with the package. Without a name, list every name that is explained.
    """
    from dataaudit.explain import explain as explained

    print_text(explained(name, as_json=as_json))
