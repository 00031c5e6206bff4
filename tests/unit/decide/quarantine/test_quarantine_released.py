"""Nothing is released that a list holds back: lists that policies name, and lines of lists that verdicts pin."""

import json

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from made_manifest import make, shard
from quarantine_made import AUTHOR, asked, digest, target

from dataaudit import api
from dataaudit.base.errors import ConfigError, CorpusRefused, QuarantineDamaged, QuarantineError, ReleasedHeldBack
from dataaudit.cli import main
from dataaudit.decide.gate.policy import load_policy
from dataaudit.decide.gate.run import judge
from dataaudit.decide.gate.verdict import ListSeen
from dataaudit.decide.quarantine.changes import AddRequest, add, lift
from dataaudit.decide.quarantine.entry import Evidence
from dataaudit.decide.quarantine.list import read
from dataaudit.decide.quarantine.released import check_judged
from dataaudit.manifest.load import load_manifest
from dataaudit.training import open_manifest

RULE = {"name": "some", "metric": "documents", "stat": "count", "unit": "documents", "comparator": ">=", "budget": 1}


def run(*arguments, expect=0):
    """Run a command; return what it says."""
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exit_code == expect, done.output
    return " ".join(done.output.split())


def policy_of(**keys):
    """Return a policy that the manifest keeps."""
    return {"policy": "p", "rules": [RULE], **keys}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A manifest of two shards, a policy in a folder of its own that names the list beside it, an empty list, a key."""
    names = ("a.jsonl", "b.jsonl")
    shards = [
        shard(name, size=size, sha256=digest(f"stored {name}"), rows_digest=digest(f"rows {name}"))
        for size, name in enumerate(names, start=50)
    ]
    make(tmp_path / "m", shards)
    (tmp_path / "team").mkdir()
    (tmp_path / "team/held.jsonl").write_bytes(b"")
    for name, keys in {"plain": {}, "naming": {"quarantine_list": "held.jsonl"}}.items():
        (tmp_path / f"team/{name}.yaml").write_text(json.dumps(policy_of(**keys)))
    key = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "k.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "k.pub").write_bytes(public)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_policy_names_its_list(place):
    """Relative to the policy's folder, wherever the gate runs; every command that judges by the policy refuses."""
    naming = ("--policy", "team/naming.yaml")
    run("gate", "m", *naming)
    add(place / "team/held.jsonl", [asked("b.jsonl")], AUTHOR)
    run("gate", "m", "--policy", "team/plain.yaml")
    for call in (
        ("gate", "m", *naming, "--out", "gate.json"),
        ("report", "m", *naming, "--out", "r.html"),
        ("export", "verdict", "m", *naming, "--out", "v.json"),
    ):
        assert "holds back 1 shard that the manifest releases: train/b.jsonl" in run(*call, expect=1)
    assert not any((place / name).exists() for name in ("gate.json", "r.html", "v.json"))
    with pytest.raises(CorpusRefused, match="holds back 1 shard that the manifest releases"):
        open_manifest("m", require="passed", policy="team/naming.yaml", check="size")
    with pytest.raises(ReleasedHeldBack):
        api.gate("m", policy_of(quarantine_list="team/held.jsonl"))
    lift(place / "team/held.jsonl", ["train/b.jsonl"], "mended", AUTHOR)
    run("gate", "m", *naming)


def test_a_listed_shard_whose_rows_have_changed_is_named(place):
    """Appending a line to a bad shard gave it another digest, and the gate passed it without a word."""
    gate = ("gate", "m", "--policy", "team/naming.yaml", "--out", "g.json")
    before = [target("b before", row, uri="b.jsonl") for row in (None, 3)] + [target("of no manifest")]
    add(
        place / "team/held.jsonl",
        [AddRequest(target=one, reason="spam", evidence=Evidence()) for one in before],
        AUTHOR,
    )
    remark = (
        "A quarantine list names 1 shard under another digest; their rows of today are not left out: train/b.jsonl."
    )
    assert remark in run(*gate)
    verdict = json.loads((place / "g.json").read_bytes())["verdict"]
    assert verdict["quarantine_lists"][0]["changed"] == ["train/b.jsonl"]
    assert any(text.startswith(remark) for text in verdict["remarks"])
    lift(place / "team/held.jsonl", ["train/b.jsonl", "train/b.jsonl:3"], "mended", AUTHOR)
    assert "another digest" not in run(*gate)


def test_a_list_of_the_policy_and_one_that_is_given_both_count(place):
    """Whoever runs the gate can add a list, and take none away."""
    (place / "other.jsonl").write_bytes(b"")
    both = ("gate", "m", "--policy", "team/naming.yaml", "--quarantine-list", "other.jsonl")
    verdict = ("export", "verdict", "m", "--policy", "team/plain.yaml", "--quarantine-list", "other.jsonl")
    run(*both)
    add(place / "team/held.jsonl", [asked("b.jsonl")], AUTHOR)
    assert "team/held.jsonl holds back 1 shard" in run(*both, expect=1)
    lift(place / "team/held.jsonl", ["train/b.jsonl"], "mended", AUTHOR)
    run(*verdict, "--out", "v.json")
    add(place / "other.jsonl", [asked("a.jsonl", 3)], AUTHOR)
    for call in (both, (*verdict, "--out", "w.json")):
        assert "other.jsonl holds back 1 document that the manifest releases: train/a.jsonl:3" in run(*call, expect=1)


@pytest.mark.parametrize(
    "call",
    [
        ("gate", "m", "--out"),
        ("gate", "m", "--failing"),
        ("export", "verdict", "m", "--out"),
        ("report", "m", "--out"),
        ("history", "m", "m", "--out"),
    ],
)
def test_what_a_policy_names_is_no_file_to_be_written(place, call):
    """`gate` deleted the list, as a file of an earlier verdict."""
    before = (place / "team/held.jsonl").read_bytes()
    done = run(*call, "team/held.jsonl", "--policy", "team/naming.yaml", expect=2)
    assert f"{call[-1]} and `quarantine_list` of the policy name the same file" in done
    assert (place / "team/held.jsonl").read_bytes() == before


def test_of_two_lists_the_build_saw_one(place):
    """The other one has none of its lines, which is no loss; a line that is in neither is one."""
    held, other = place / "team/held.jsonl", place / "other.jsonl"
    add(held, [asked("c"), asked("d")], AUTHOR)
    add(other, [asked("e")], AUTHOR)
    pointer = json.loads((place / "m/manifest.json").read_bytes())
    seen = read(held)
    pointer["run"]["quarantine"] = {"digest": seen.digest, "lines": seen.lines, "on": "2026-11-21"}
    (place / "m/manifest.json").write_text(json.dumps(pointer))
    for policy, option in (("naming", other), ("plain", held)):
        run("gate", "m", "--policy", f"team/{policy}.yaml", "--quarantine-list", option)
    only = ("gate", "m", "--policy", "team/plain.yaml", "--quarantine-list", other)
    assert "2 line(s) are lost that the manifest" in run(*only, expect=3)
    held.write_bytes(held.read_bytes().splitlines(keepends=True)[0])
    both = ("gate", "m", "--policy", "team/naming.yaml", "--quarantine-list", other)
    assert "other.jsonl and team/held.jsonl: 1 line(s) are lost that the manifest" in run(*both, expect=3)


def test_a_list_that_a_policy_names_and_that_is_not_there_is_an_error(place):
    """Nothing held back and a typing error must not look alike; nor may a caller forget the list."""
    (place / "team/held.jsonl").unlink()
    assert "no quarantine list at team/held.jsonl" in run("gate", "m", "--policy", "team/naming.yaml", expect=2)
    with pytest.raises(QuarantineError, match=r"no quarantine list at team/held\.jsonl"):
        open_manifest("m", require="passed", policy="team/naming.yaml")
    with pytest.raises(ConfigError, match="the policy p names a quarantine list"):
        judge(load_manifest(place / "m"), load_policy(place / "team/naming.yaml"))
    wrong = place / "team/wrong.yaml"
    wrong.write_text(json.dumps(policy_of(quarantine_list="")))
    assert "quarantine_list: " in run("gate", "m", "--policy", wrong, expect=2)


def test_a_policy_without_a_list_keeps_its_digest(place):
    """What was pinned by digest stays pinned; the name of the list is a part of the policy."""
    plain, naming = (load_policy(place / f"team/{name}.yaml") for name in ("plain", "naming"))
    assert "quarantine_list" not in plain.model_dump(exclude_none=True)
    assert plain.digest == api.gate("m", policy_of()).policy_digest
    assert naming.digest != plain.digest


def test_a_verdict_pins_the_lines_of_its_lists(place):
    """In gate.json and in the signed statement; a tail that is cut off later shows against either."""
    held = place / "team/held.jsonl"
    add(held, [asked("c")], AUTHOR)
    [added] = add(held, [asked("d")], AUTHOR).added
    naming = ("--policy", "team/naming.yaml")
    run("gate", "m", *naming, "--out", "gate.json")
    sign = ("--sign", "--key", "k.pem")
    run("export", "verdict", "m", *naming, "--out", "m.verdict.dsse.json", *sign)
    verdict = api.gate("m", place / "team/naming.yaml")
    whole = read(held)
    assert verdict.quarantine_lists == (ListSeen(digest=whole.digest, lines=whole.lines),)
    pinned = json.loads((place / "gate.json").read_bytes())["verdict"]["quarantine_lists"]
    assert pinned == [{"digest": whole.digest, "lines": list(whole.lines), "changed": []}]
    by_verdict = ("quarantine", "list", held, "--verdict", "gate.json")
    verify = ("verify", "m", "--quarantine-list", held)
    signed = (*verify, "--signature", "m.verdict.dsse.json", "--public-key", "k.pub")
    for call in (by_verdict, verify, signed):
        run(*call)
    add(held, [asked("e")], AUTHOR)
    run(*signed)
    lines = held.read_bytes().splitlines(keepends=True)
    held.write_bytes(lines[0])
    run(*verify)
    gone = f"1 line(s) are lost that the signed verdict names {added.id}"
    assert gone in run(*signed, expect=3)
    assert gone.replace("signed verdict", "verdict gate.json") in run(*by_verdict, expect=3)
    assert '"exit_code": 3' in run(*by_verdict, "--json", expect=3)
    with pytest.raises(CorpusRefused, match="lost that the signed verdict names"):
        open_manifest("m", public_key=place / "k.pub", quarantine=held, root=place)
    run("gate", "m", "--policy", "team/plain.yaml", "--out", "none.json")
    assert "names no quarantine list" in run(*by_verdict[:-1], "none.json", expect=2)


def test_of_several_lists_a_verdict_means_the_one_that_is_held_against_it(place):
    """Each list is held against its own lines, and none against another's."""
    paths = [place / f"{name}.jsonl" for name in "ab"]
    for path in paths:
        add(path, [asked(path.stem), asked(path.stem, 3)], AUTHOR)
    seen = [ListSeen(digest=one.digest, lines=one.lines) for one in map(read, paths)]
    for path in paths:
        check_judged(read(path), seen, str(path), "the verdict")
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
        with pytest.raises(QuarantineDamaged, match="lost that the verdict names"):
            check_judged(read(path), seen, str(path), "the verdict")
    empty = [ListSeen(digest=seen[0].digest, lines=())]
    check_judged(read(paths[0]), empty, "list", "the verdict")
