"""The commands that write other programs' formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dataaudit.cli.shell import (
    FOLDER,
    IDENTITY,
    JSON,
    KEY,
    POLICY,
    choice,
    ending,
    flag,
    option,
    path,
    print_text,
    signing_of,
)

_OUT = path("--out FILE", "Where to write it.", required=True)


@click.group(
    short_help="Write a manifest in other programs' formats.",
    epilog=ending(
        "dataaudit export croissant manifests/first --out croissant.json --metadata about.yaml",
        "dataaudit export card manifests/first --update README.md",
        "dataaudit export verdict manifests/first --policy policy.yaml --out verdict.json",
        codes={
            0: "it is written",
            1: "the manifest contradicts itself",
            3: "a quarantine list is damaged, or sigstore's services do not answer",
        },
    ),
)
def export() -> None:
    """Write what a manifest holds in the format of another program: `dataaudit explain exports` has each field."""


@export.command(
    name="lsh",
    short_help="An index of datasketch, of the stored signatures.",
    epilog=ending(
        "dataaudit export lsh manifests/first --out first.lsh",
        codes={0: "it is written", 1: "the manifest contradicts itself"},
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@_OUT
@JSON
def export_lsh(folder: Path, out: Path, *, as_json: bool) -> None:
    """Write a pickled datasketch.MinHashLSH whose keys are shard:row.

    The manifest has to keep signatures: `stages: {near_dup: {signatures: true}}` in the config.
    """
    from dataaudit.present.export.lsh import export_lsh as write

    print_text(write(folder, out).shown(as_json=as_json))


@export.command(
    name="croissant",
    short_help="Croissant 1.1 with RAI fields, for catalogues and loaders.",
    epilog=ending(
        "dataaudit export croissant manifests/first --out croissant.json --metadata about.yaml",
        "dataaudit export croissant manifests/first --out croissant.json --license CC-BY-4.0 \\",
        "  --url https://example.org/corpus --creator 'Example Org' --date-published 2026-11-22 \\",
        "  --description 'Web text of 2026.'",
        codes={0: "it is written", 1: "the manifest contradicts itself"},
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@_OUT
@path("--metadata FILE", "YAML with what only people know; options win over it.")
@option("--license SPDX-ID|URL", "Licence; may be given again.", multiple=True)
@option("--url URL", "Page of the dataset.")
@option("--creator NAME", "Organisation; may be given again.", multiple=True)
@option("--description TEXT", "What the dataset is.")
@option("--date-published DATE", "Such as 2026-11-22.")
@option("--cite-as TEXT", "A citation, BibTeX if possible; recommended.")
@JSON
def export_croissant(folder: Path, out: Path, metadata: Path | None, *, as_json: bool, **given: Any) -> None:
    """Write Croissant 1.1 with fields of responsible AI: files with digests, columns, provenance, what was found.

    Licence, page, creator, description and date are for people to say, here or in the file of --metadata.
    """
    from dataaudit.manifest.outfiles import check_files
    from dataaudit.present.export.croissant import export_croissant as write

    check_files({"--out": out}, {"--metadata": metadata}, (folder,))
    print_text(write(folder, out, metadata, given).shown(as_json=as_json))


@export.command(
    name="openlineage",
    short_help="A run event of OpenLineage, with data-quality facets.",
    epilog=ending(
        "dataaudit export openlineage manifests/first --out openlineage.ndjson",
        "dataaudit export openlineage manifests/first --out openlineage.ndjson --verdict gate.json \\",
        "  --namespace s3://corpora",
        codes={0: "it is written", 1: "the manifest contradicts itself"},
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@_OUT
@path("--verdict FILE", "The gate's gate.json: its rules become assertions.")
@option("--namespace", "Of job and datasets.", default="dataaudit")
@option("--run-id UUID", "Of the run; by default it follows from the manifest's id.")
@JSON
def export_openlineage(
    folder: Path, out: Path, verdict: Path | None, namespace: str, run_id: str | None, *, as_json: bool
) -> None:
    """Write one COMPLETE event: what was read, what it holds, what the gate said. The same manifest, the same bytes."""
    from dataaudit.manifest.outfiles import check_files
    from dataaudit.present.export.openlineage import export_openlineage as write

    check_files({"--out": out}, {"--verdict": verdict}, (folder,))
    print_text(write(folder, out, verdict, namespace, run_id).shown(as_json=as_json))


@export.command(
    name="verdict",
    short_help="What the gate says, as an in-toto statement, signed or not.",
    epilog=ending(
        "dataaudit export verdict manifests/first --policy policy.yaml --out verdict.json",
        "dataaudit export verdict manifests/first --policy policy.yaml --baseline manifests/old \\",
        "  --out verdict.dsse.json --sign --key release.pem",
        codes={
            0: "it is written, PASSED or FAILED",
            1: "the manifest contradicts itself, is not signed as asked, or releases what a list holds back",
            3: "a quarantine list is damaged, or sigstore's services do not answer",
        },
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@path("--policy FILE", "Policy to judge by, as of `gate`.", kind=POLICY, required=True)
@path("--baseline DIR", "Older manifest that rules of change compare with.")
@_OUT
@choice("--fail-on", "fail warn", "Least severity that makes the verdict FAILED.", default="fail")
@path("--quarantine-list FILE", "List of which nothing may be released.")
@option("--time TIME", "When it was verified; SOURCE_DATE_EPOCH or now by default.")
@option("--policy-uri URI", "Where consumers find the policy.")
@option("--resource-uri URI", "Where consumers get the dataset.")
@option("--verifier URI", "Who runs this gate.")
@flag("--sign", "Sign it: with --key or --identity.")
@KEY
@IDENTITY
@path("--public-key FILE", "Key that has to have signed DIR by attestation.json.")
@option("--signed-by WHO", "Or: identity that has to have signed it with sigstore.")
@option("--issuer URL", "Who has to vouch for that identity.")
@JSON
def export_verdict(
    folder: Path,
    policy: Path,
    baseline: Path | None,
    out: Path,
    fail_on: str,
    quarantine_list: Path | None,
    key: Path | None,
    public_key: Path | None,
    signed_by: str | None,
    issuer: str | None,
    *,
    sign: bool,
    identity: bool,
    as_json: bool,
    **about: Any,
) -> None:
    """Judge DIR and write the verdict as an in-toto statement with SLSA's verification summary.

    The statement says PASSED or FAILED; the exit code is 0 when it was written, whatever it says. `dataaudit verify
    --signature` checks a signed one; a pass phrase of the key is read from DATAAUDIT_KEY_PASSWORD.
    """
    from dataaudit.api.arguments import signer_of
    from dataaudit.decide.gate.run import files_of
    from dataaudit.manifest.outfiles import check_files
    from dataaudit.present.export.verdict import About, judge_and_export

    words = ("--public-key FILE", "--signed-by WHO", "--issuer URL")
    signing, signer = signing_of(sign, key, identity), signer_of(public_key, signed_by, issuer, words)
    read = files_of(policy) | {"--quarantine-list": quarantine_list, "--key": key, "--public-key": public_key}
    check_files({"--out": out}, read, (folder, baseline))
    done = judge_and_export(folder, policy, baseline, out, fail_on, About(**about), signing, signer, quarantine_list)
    print_text(done.shown(as_json=as_json))


@export.command(
    name="card",
    short_help="A section for a dataset card of the Hugging Face hub.",
    epilog=ending(
        "dataaudit export card manifests/first",
        "dataaudit export card manifests/first --out README.md",
        "dataaudit export card manifests/first --update README.md",
        codes={0: "it is written", 1: "the manifest contradicts itself"},
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@path("--out FILE", "Write a card with metadata and section; printed when absent.")
@path("--update FILE", "Replace the section between its markers in this card.")
@JSON
def export_card(folder: Path, out: Path | None, update: Path | None, *, as_json: bool) -> None:
    """Write a dataset card: YAML metadata, and a section of numbers between two markers.

    --update replaces only what stands between the markers, or adds the section at the end; every other byte stays.
    """
    from dataaudit.present.export.card import export_card as write

    print_text(write(folder, out, update).shown(as_json=as_json))
