"""Ways to lead the gate: what somebody does who wants a manifest through that should not pass, and what he gets.

Each row is a name, what is done, the exit code and words of the answer. A way is a function that gets an empty folder
and returns the arguments of `dataaudit`; a change of the program that lets one of them through fails here.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from forged import forge
from lanes import sample
from made_facts import record
from made_manifest import make, shard

from dataaudit.cli import main
from dataaudit.decide.gate.run import today
from dataaudit.manifest.tables import HELD_BACK

pytestmark = pytest.mark.usefixtures("odd_numbers")
DEMO = Path(__file__).parents[4] / "manifests/demo"
RATE = {"name": "copies", "metric": "near_dup_rate", "stat": "rate", "unit": "ratio", "budget": 0.5}
SECRETS = {"name": "keys", "metric": "secret_hit_rate", "stat": "validated_hits", "unit": "hits", "budget": 0}
COPIES = record(value=0.9)


def manifest(folder: Path, *records, name="m", **more) -> Path:
    """Publish a manifest that read everything, with these records beside."""
    make(folder / name, more.pop("shards", None) or [shard("a.jsonl")], metrics=records, **more)
    return folder / name


def policy(folder: Path, *rules, **more) -> Path:
    """Write a policy of these rules."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump({"policy": "p", "rules": list(rules), **more}))
    return path


def gated(folder: Path, rules, *records, baseline=None, more=(), **given) -> list[str]:
    """Return the call of the gate on a manifest with these records."""
    older = [] if baseline is None else ["--baseline", str(manifest(folder, *baseline, name="old"))]
    call = ["gate", str(manifest(folder, *records)), "--policy", str(policy(folder, *rules, **given)), *older]
    return [*call, *more]


@functools.cache
def fingerprint() -> str:
    """Return the fingerprint of the rule about copies, as the gate gives it."""
    from made_facts import covered, facts, rule
    from made_facts import policy as made

    from dataaudit.decide.gate.run import evaluate

    one = rule(**RATE)
    return evaluate(made(one), facts(covered(), COPIES), on=today()).rules[0].cases[0].fingerprint


def waiver(days: int, **more):
    """Return a waiver of the rule about copies whose last day lies so many days ahead."""
    last = today() + dt.timedelta(days=days)
    return {"fingerprint": fingerprint(), "rule": "copies", "owner": "o", "reason": "known", "expires": last} | more


def waived(days, **more):
    """Return a way: a waiver for a manifest of copies."""
    return lambda folder: gated(folder, [RATE], COPIES, waivers=[waiver(days, **more)])


def exported(days, *more):
    """Return a way: a verdict is exported of a manifest of copies with a waiver."""

    def way(folder):
        call = gated(folder, [RATE], COPIES, waivers=[waiver(days)])
        return ["export", "verdict", *call[1:], "--out", str(folder / "v.json"), *more]

    return way


TIME = [
    ("a waiver covers what is known until its day", waived(10), 0, "1 case is waived"),
    ("on its last day too", waived(0), 0, "1 case is waived"),
    ("a waiver that has expired", waived(-1), 1, "expired"),
    ("a waiver without an end worth the name", waived(181), 2, "expected at most 180"),
    ("a waiver for ever", waived(365 * 900), 2, "expected at most 180"),
    ("a number that grew beyond the waiver's ceiling", waived(10, up_to=0.8), 1, "exceeded"),
    ("a number within the waiver's ceiling", waived(10, up_to=0.9), 0, "1 case is waived"),
    ("a ceiling that covers nothing", waived(10, up_to=0.2), 2, "expected a number beyond the rule's limit, 0.5"),
    ("a ceiling in quotes", waived(10, up_to="1"), 2, "of the rule `copies`: up_to: expected a number"),
    ("a ceiling without end", waived(10, up_to=float("inf")), 2, "up_to"),
    ("a statement dated before the waiver expired", exported(-5, "--time", "2020-01-01"), 0, "FAILED"),
    ("a statement with a waiver that holds", exported(5, "--time", "2020-01-01"), 0, "PASSED"),
]


def unsized(reason, *, sha256="", **more):
    """Return a way: a shard of 0 bytes was not read."""

    def way(folder):
        lost = shard("b.jsonl", status="skipped", size=0, sha256=sha256, reason=reason)
        return ["gate", str(manifest(folder, COPIES, shards=[shard("a.jsonl"), lost])), *about_bytes(folder, **more)]

    return way


def about_bytes(folder, **more):
    """Return the options of a policy about unread bytes."""
    kept = {"name": "read", "metric": "coverage_unread_bytes", "stat": "bytes", "unit": "bytes", "budget": 10} | more
    return ["--policy", str(policy(folder, RATE | {"budget": 1}, kept))]


NOBODY = "nobody knows how many bytes it holds"
UNSIZED = [
    ("a link to nothing, which is there after the gate", unsized("not_found"), 3, NOBODY),
    ("a pipe", unsized("not_a_file"), 3, NOBODY),
    ("a link out of the root, to nothing", unsized("link_outside_root"), 3, NOBODY),
    ("an unknown format, by a link to nothing", unsized("unknown_format"), 3, NOBODY),
    ("a limit for a split", unsized("not_found", stat="shard_bytes", scope={"per": "split"}), 3, NOBODY),
    ("a limit for a reason", unsized("not_found", scope={"rule": "not_found"}), 3, NOBODY),
    ("a rule that is not required", unsized("not_found", required=False), 3, NOBODY),
    ("a file that was seen to be empty", unsized("not_parquet", sha256=hashlib.sha256().hexdigest()), 0, "PASS"),
    ("a shard that a list holds back", unsized(HELD_BACK), 0, "PASS"),
]

OPTIONAL = {"required": False, "allow_empty": True}
KEYS = SECRETS | OPTIONAL
LEAKS = {"name": "leaks", "metric": "train_val_overlap", "stat": "span", "unit": "ratio", "budget": 0.1}
LEAKS |= {"scope": {"per": "set"}}
QUIZZES = {"name": "quizzes", "metric": "benchmark_contamination", "stat": "rate", "unit": "ratio", "budget": 0}
QUIZZES |= OPTIONAL | {"scope": {"per": ["set", "entity"], "rule": "verbatim"}}
ODD = {"name": "odd", "metric": "secret_hit_rate", "stat": "validated_hits", "unit": "hits", "budget": 0}
ODD |= OPTIONAL | {"scope": {"per": "shard"}}
TOXIC = {"name": "toxic", "metric": "data_toxicity_rate", "stat": "rate", "unit": "ratio", "budget": 0.1} | OPTIONAL
FEW = record(value=0.1)
FOUND = record("secret_hit_rate", "validated_hits", 0.0, "hits")
JUDGED = record("data_toxicity_rate", "rate", 0.01)
UNJUDGED = record("data_toxicity_rate", "rate", None, reason="no_judge")
BROKEN = record("data_toxicity_rate", "rate", None, reason="weights_absent")
VAL = [shard("a.jsonl"), shard("v.jsonl", split="val")]
BOTH = [*VAL, shard("x.jsonl", split="test")]
OF_VAL, OF_TEST = (record("train_val_overlap", "span", 0.0, set=name) for name in ("val", "test"))


def lost(rules, now, was, shards=(None, None)):
    """Return a way: the gate with a baseline that has more than the manifest."""

    def way(folder):
        new = manifest(folder, FEW, *now, shards=shards[0])
        old = manifest(folder, FEW, *was, name="old", shards=shards[1])
        return ["gate", str(new), "--policy", str(policy(folder, RATE, *rules)), "--baseline", str(old)]

    return way


def without_baseline(rules, *now, shards=None):
    """Return a way: the gate alone."""

    def way(folder):
        return ["gate", str(manifest(folder, FEW, *now, shards=shards)), "--policy", str(policy(folder, RATE, *rules))]

    return way


def unread(given, bad, **rule):
    """Return a way: a shard of 100 records of which some are bad, and hold a byte each."""

    def way(folder):
        of = "b.jsonl"
        rows = [shard("a.jsonl"), shard(of, documents=100 - bad, bad=bad, status="partial", size=5000)]
        lost_bytes = record("coverage_unread_bytes", "bytes", float(given), "bytes")
        made = {"name": "read", "metric": "coverage_unread_bytes", "stat": "bytes", "unit": "bytes", "budget": 0} | rule
        path = manifest(folder, FEW, lost_bytes, shards=rows, ledger=[(1, "bad_json", "line 1", bad, given)])
        return ["gate", str(path), "--policy", str(policy(folder, RATE, made))]

    return way


GONE = "the baseline has this number, the manifest lost it"
LOST = [
    ("a stage that is off, of an optional rule", lost([KEYS], [], [FOUND]), 3, f"{GONE}: stage secrets is off"),
    (
        "the same without a baseline",
        without_baseline([KEYS]),
        0,
        "the manifest has no such number: stage secrets is off",
    ),
    ("a stage that was always off", lost([KEYS], [], []), 0, "PASS, 1 of 3 rules skipped"),
    ("a stage that is off, of a required rule", without_baseline([SECRETS]), 3, "stage secrets is off"),
    ("a warning whose stage is off", lost([KEYS | {"severity": "warn"}], [], [FOUND]), 3, "stage secrets is off"),
    ("of single shards", lost([ODD], [], [FOUND]), 3, "stage secrets is off"),
    ("a loss that the policy allows", lost([KEYS | {"allow_lost": "Searched upstream."}], [], [FOUND]), 0, "upstream"),
    ("allowed without a reason", lost([KEYS | {"allow_lost": True}], [], [FOUND]), 2, "allow_lost: expected text"),
    ("allowed for an empty reason", lost([KEYS | {"allow_lost": ""}], [], [FOUND]), 2, "expected text that is not"),
    ("allowed of a required rule", lost([SECRETS | {"allow_lost": "x"}], [], [FOUND]), 3, "the policy allows it: x"),
    ("a judge that was left out", lost([TOXIC], [UNJUDGED], [JUDGED]), 3, f"{GONE}: the build had no judge"),
    ("a judge that broke", lost([TOXIC], [BROKEN], [JUDGED]), 3, f"{GONE}: the judge's model could not be had"),
    ("no judge, as before", lost([TOXIC], [UNJUDGED], [UNJUDGED]), 0, "the build had no judge"),
    (
        "a held-out split fewer",
        lost([LEAKS], [OF_VAL], [OF_VAL, OF_TEST], (VAL, BOTH)),
        3,
        f"{GONE}: no held-out split is named test",
    ),
    (
        "a held-out split fewer, of an optional rule",
        lost([LEAKS | OPTIONAL], [OF_VAL], [OF_VAL, OF_TEST], (VAL, BOTH)),
        3,
        "no held-out split is named test",
    ),
    (
        "a held-out split fewer, allowed",
        lost([LEAKS | {"allow_lost": "test was retired"}], [OF_VAL], [OF_VAL, OF_TEST], (VAL, BOTH)),
        0,
        "PASS",
    ),
    ("no held-out split any more", lost([LEAKS | OPTIONAL], [], [OF_VAL], (None, VAL)), 3, "no held-out split"),
    (
        "no held-out split at all",
        without_baseline([LEAKS], record("train_val_overlap", "span", 0.0)),
        3,
        "the corpus has no part that the rule speaks of: no held-out split",
    ),
    (
        "evaluation sets that are looked for no more",
        lost([QUIZZES], [], [record("benchmark_contamination", "rate", 0.0, set="q", entity="item", rule="verbatim")]),
        3,
        GONE,
    ),
    ("every record of a shard is bad and holds no byte", unread(0, 100, max_bad_records=0.001), 3, "bytes not read"),
    ("bad records beyond the tolerance", unread(5, 5, max_bad_records=0.04), 3, "5,000 bytes, which count as not read"),
    ("bad records within it", unread(5, 5, max_bad_records=0.05), 0, "PASS"),
    (
        "few bad records that are most of the bytes",
        unread(9600, 1, max_bad_records=0.05),
        3,
        "5,000 bytes, which count as not read",
    ),
    ("bad records and no tolerance", unread(5, 5), 3, "5 bytes not read"),
    ("a tolerance of shards", unread(5, 5, stat="shard_bytes", max_bad_records=1), 2, "goes with `coverage_unread_by"),
    ("a tolerance that is no share", unread(5, 5, max_bad_records=5), 2, "expected at most 1"),
]
PII = {"name": "pii", "metric": "pii_hit_rate", "unit": "ratio", "budget": 0} | OPTIONAL
NAMES = [
    (
        "an entity that nobody looks for",
        without_baseline([KEYS | {"scope": {"entity": ["GITHUB_TOKEN", "GITHUB_TOKENS"]}}], FOUND),
        2,
        "rule `keys`: no entity of `secret_hit_rate` is named `GITHUB_TOKENS` (did you mean `GITHUB_TOKEN`?)",
    ),
    ("also where the stage is off", without_baseline([KEYS | {"scope": {"entity": "JWTS"}}]), 2, "no entity of"),
    (
        "a part of evaluation items",
        without_baseline([QUIZZES | {"scope": {"entity": "questions", "per": "set", "rule": "verbatim"}}]),
        2,
        "did you mean `question`?",
    ),
    (
        "an entity of the analyzer, whose own they are",
        without_baseline([PII | {"stat": "analyzer_documents", "scope": {"entity": "PERSON"}}]),
        0,
        "PASS",
    ),
    (
        "a source that the data has not",
        without_baseline([RATE | {"name": "other", "scope": {"source": "wbe"}}]),
        3,
        "the corpus has no split, source, language or set of that name",
    ),
    (
        "a split that the data has not",
        without_baseline([RATE | {"name": "other", "scope": {"split": "trian"}}]),
        3,
        "the corpus has no split, source, language or set of that name",
    ),
    (
        "a metric that there is not",
        without_baseline([RATE | {"name": "x", "metric": "near_dup_rat"}]),
        2,
        "did you mean",
    ),
]
MIX = {"name": "mix", "metric": "source_mix_share", "stat": "share", "unit": "ratio", "change": 0.02}
MIX |= {"scope": {"per": ["split", "source"]}, "budget_from": "declared"}


def shares(rule, *found, declared=0.5):
    """Return a way: sources of `train` with these shares, `web` declared with half."""
    made = [record("source_mix_share", "share", value, split="train", source=name) for name, value in found]
    made += [record("source_mix_share", "declared", declared, split="train", source="web")] if declared else []
    rows = [shard("a.jsonl", sources={name: 10 for name, _ in found} or {"web": 10})]
    return without_baseline([rule], *made, shards=rows)


def compared(same):
    """Return a way: a baseline that is the manifest itself, or that of another dataset."""

    def way(folder):
        new = manifest(folder, FEW)
        old = new if same else manifest(folder, FEW, name="old", dataset="other")
        return ["gate", str(new), "--policy", str(policy(folder, RATE)), "--baseline", str(old)]

    return way


def swapped(digests):
    """Return a way: a held-out split of as many documents and bytes, of shards with these digests of rows."""

    def way(folder):
        rows = [
            [
                shard("a.jsonl"),
                *(shard(f"v{n}.jsonl", split="val", rows_digest=one * 64) for n, one in enumerate(found)),
            ]
            for found in digests
        ]
        old, new = (manifest(folder, FEW, shards=one, name=name) for name, one in zip("ba", rows, strict=True))
        return ["gate", str(new), "--policy", str(policy(folder, RATE)), "--baseline", str(old)]

    return way


LIMITS = [
    ("another held-out split of the same size", swapped(["a", "b"]), 0, "val has other shards than the baseline's"),
    ("the same held-out shards in another order", swapped(["ab", "ba"]), 0, "PASS"),
    ("a mixture that is not the declared one", shares(MIX, ("web", 0.6)), 1, "change from declared <= 0.02"),
    ("a mixture as declared", shares(MIX, ("web", 0.51)), 0, "PASS"),
    ("a source that nobody declared", shares(MIX, ("web", 0.5), ("spam", 0.1)), 1, "source spam"),
    ("a mixture that nobody declared", shares(MIX, ("web", 0.6), declared=None), 3, "config declares no mixture"),
    (
        "the declared mixture without a limit",
        shares({name: MIX[name] for name in MIX if name != "change"} | {"budget": 1}, ("web", 0.6)),
        2,
        "`budget_from: declared` goes with `change` or `relative_change`",
    ),
    (
        "the declared mixture of all",
        shares(MIX | {"scope": {"per": "source"}}, ("web", 0.6)),
        2,
        "per split and source",
    ),
    ("a number between two limits", without_baseline([RATE | {"name": "two", "warn": 0.05}]), 0, "1 rule warns"),
    ("a number beyond both", lambda folder: gated(folder, [RATE | {"warn": 0.05}], COPIES), 1, "(warns at 0.05)"),
    (
        "a warning after the failure",
        without_baseline([RATE | {"name": "two", "warn": 0.6}]),
        2,
        "number below the limit",
    ),
    ("the manifest as its own baseline", compared(same=True), 0, "The baseline is this manifest itself"),
    ("a baseline of another dataset", compared(same=False), 0, "another dataset: other, this one is made"),
]


def empty(number, *, with_config):
    """Return a way: a build of a folder of empty files."""

    def way(folder):
        for one in range(number):
            (folder / f"{one}.jsonl").touch()
        (folder / "c.yaml").write_text("splits: {train: {paths: ['*.jsonl'], text: text, source: {constant: all}}}")
        given = folder / "c.yaml" if with_config else folder / "*.jsonl"
        return ["build", str(given), "--manifest", str(folder / "m"), "--workers", "0", "--quiet"]

    return way


NOTHING = [
    ("a corpus of empty files, with a config", empty(2, with_config=True), 4, "nothing was evaluated"),
    ("a corpus of empty files, without one", empty(2, with_config=False), 4, "nothing was evaluated"),
    ("more empty files than are looked at together", empty(7, with_config=False), 4, "nothing was evaluated"),
]


def forged(change):
    """Return a way: the demo's manifest with a core that was changed, its id made to fit."""

    def way(folder):
        shutil.copytree(DEMO, folder / "m")
        forge(folder / "m", core=change)
        return ["gate", str(folder / "m"), "--policy", str(policy(folder, RATE))]

    return way


def struck(*names):
    """Return a change: stages that are said not to have run."""

    def change(core):
        core["stages"] = [one for one in core["stages"] if one["name"] not in names and names]

    return change


def asking(**keys):
    """Return a way: a policy that asks for more than numbers, of an unsigned manifest."""
    return lambda folder: gated(folder, [RATE], FEW, more=("--public-key", str(public(folder))), **keys)


def public(folder):
    """Write a public key."""
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    path = folder / "some.pub"
    path.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


def twice(folder):
    """A key of the manifest that stands twice: parsers disagree on which value counts."""
    call = gated(folder, [RATE], COPIES)
    pointer = folder / "m" / "manifest.json"
    pointer.write_text(f'{{"id": "sha256:0", {pointer.read_text()[1:]}')
    return call


def paths(folder):
    """A list of shards in place of the shards."""
    (folder / "a.jsonl").write_text('{"text": "one"}\n')
    (folder / "list.txt").write_text(f"{folder}/a.jsonl\n")
    return ["build", str(folder / "list.txt"), "--manifest", str(folder / "m"), "--workers", "0"]


FORGED = [
    ("no stage at all", forged(struck()), 1, "names no stage volume, which every build runs"),
    ("a stage that is struck out, its numbers left", forged(struck("near_dup")), 1, "names no stage near_dup"),
    ("a split that is struck out", forged(lambda core: core["splits"].pop()), 1, "contradicts itself"),
    ("a key that stands twice", twice, 2, "stands twice in one object"),
    ("no signature where the policy asks for one", asking(require_signature=True), 1, "not signed"),
    ("a list of paths as the data", paths, 2, "lists paths of files, no data"),
]
WAYS = [*TIME, *UNSIZED, *LOST, *NAMES, *LIMITS, *NOTHING, *FORGED]


@pytest.mark.tables
@pytest.mark.parametrize(("way", "code", "says"), sample([pytest.param(*row[1:], id=row[0]) for row in WAYS], 2))
def test_the_gate_is_not_led(tmp_path, way, code, says):
    result = CliRunner().invoke(main, way(tmp_path), env={"COLUMNS": "200"})
    told = " ".join(result.output.split())
    assert (result.exit_code, says in told) == (code, True), result.output
