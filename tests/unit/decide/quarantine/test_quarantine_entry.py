"""Entries and lines: their form, their id, their schema, and lines that are none."""

import hashlib
import json

import jsonschema
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from quarantine_made import NOW, digest, entry, target

from dataaudit.base.errors import QuarantineDamaged, QuarantineError
from dataaudit.decide.quarantine.entry import Evidence, Target, make_entry, parse, plain_entry, read_entry
from dataaudit.schemas import render

FULL = entry(
    target=target("a", 7),
    until="2026-12-31",
    note="a 'note' with \"quotes\", \\ and \u2028",
    evidence=Evidence(metric="exact_dup_rate", value=0.25, limit=0.1, comparator="<=", limit_kind="budget"),
)
SAMPLES = [
    entry(),
    FULL,
    entry("propose"),
    entry("lift", lifts=(FULL.id,)),
    entry(accepts=FULL.id),
    entry(target=target("a", rows_digest=None)),
    entry(target=target("a", sha256=None)),
]


@pytest.mark.parametrize("one", SAMPLES)
def test_a_line_is_canonical_json_and_its_id_is_its_digest(one):
    """Checked with another writer of canonical JSON, and by hand."""
    plain = json.loads(one.line)
    assert rfc8785.dumps(plain) == one.line
    named = plain.pop("id")
    assert named == "sha256:" + hashlib.sha256(rfc8785.dumps(plain)).hexdigest()
    assert parse(one.line + b"\n", "x").entries == (one,)


@pytest.mark.parametrize("one", SAMPLES)
def test_every_kind_of_line_meets_the_schema(one):
    """`dataaudit schema quarantine` is what other programs check with."""
    jsonschema.Draft202012Validator(json.loads(render("quarantine"))).validate(json.loads(one.line))


BROKEN = [
    {"target": None},
    {"lifts": ["sha256:" + "0" * 64]},
    {"action": "lift"},
    {"action": "grow"},
    {"more": 1},
    {"reason": "two words"},
    {"reason": ""},
    {"who": ""},
    {"when": "yesterday"},
    {"until": "soon"},
    {"target": {"kind": "shard"}},
    {"target": {"kind": "shard", "sha256": "0" * 64, "row": 1}},
    {"target": {"kind": "document", "sha256": "0" * 64}},
    {"target": {"kind": "shard", "sha256": "0" * 63}},
    {"target": {"kind": "document", "sha256": "0" * 64, "row": "7"}},
    {"who": 7},
    {"target": {"kind": "document", "sha256": "0" * 64, "row": -1}},
    {"id": "sha256:0"},
    {"note": ""},
    {"evidence": {"limits": 1}},
    {"evidence": {"value": "1"}},
    {"action": "dismiss"},
    {"dismisses": ["0" * 64]},
    {"schema": {"name": "dataaudit-quarantine"}},
    {"schema": {"name": "dataaudit-quarantine", "version": 2}},
    {"after": []},
]


@pytest.mark.parametrize("change", BROKEN)
def test_what_the_code_refuses_the_schema_refuses(change):
    """Neither takes what the other does not."""
    plain = plain_entry(FULL) | change
    with pytest.raises(ValidationError):
        read_entry(json.dumps(plain).encode())
    assert list(jsonschema.Draft202012Validator(json.loads(render("quarantine"))).iter_errors(plain))


@pytest.mark.parametrize("until", ["2026-13-01", "2026-02-30"])
def test_a_day_that_the_calendar_does_not_have_is_refused(until):
    """Else it would sort somewhere and end an entry on no day that anybody meant."""
    with pytest.raises(ValidationError):
        entry(until=until)


@example("a", "b", 2.0**64)
@example("a", "b", -1e20)
@example("a", "b", 2.0**53)
@given(
    st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=50), st.floats(allow_nan=False, allow_infinity=False)
)
def test_any_text_and_number_survives_the_file(name, note, value):
    """Line ends, quotes, `","id":"` and controls in names do not cut a line or its id."""
    try:
        one = entry(
            target=target("a", uri=name), note=note + ',"id":"sha256:' + "0" * 64 + '",', evidence=Evidence(value=value)
        )
    except ValueError:
        assert any(0xD800 <= ord(character) < 0xE000 for character in name + note) or abs(value) > 2**53
        return
    assert b"\n" not in one.line
    read = parse(one.line, "x")
    assert (read.bad, read.entries) == ((), (one,))


def test_a_number_of_another_writer_keeps_its_id():
    """White space and order of keys are not content."""
    loose = json.dumps(json.loads(FULL.line), indent=None, sort_keys=False, separators=(", ", ": ")).encode()
    assert parse(loose, "x").entries == (FULL,)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", "not_json"),
        (b'{"text": "a document"}', "not_an_entry"),
        (b"[1]", "not_an_entry"),
        (b"\xff\xfe", "not_json"),
        (b"\0" * 20, "not_json"),
        (FULL.line[:-9], "not_json"),
        (FULL.line.replace(b"0.25", b"0.01"), "id_mismatch"),
        (FULL.line.replace(b'"reason":"manual",', b""), "invalid"),
        (FULL.line.replace(b'"version":3', b'"version":0'), "invalid"),
        (FULL.line.replace(b'"version":3', b'"version":true'), "invalid"),
        (FULL.line.replace(b'"version":3', b'"version":"3"'), "invalid"),
        (b"1" * 5000, "not_json"),
        (FULL.line.replace(b'{"', b'{"reason":"spike","', 1), "invalid"),
        (FULL.line.replace(b'"id":', b'"id":"sha256:' + b"0" * 64 + b'","id":'), "invalid"),
        (FULL.line.replace(b'"name":"', b'"name":"other","name":"', 1), "invalid"),
        (b'{"schema":' * 5000, "not_json"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_the_others_are_read(line, code):
    """In the middle of the file; nothing of the line is repeated."""
    contents = parse(b"\n".join([entry().line, line, FULL.line, b""]), "list")
    assert [(bad.number, bad.code) for bad in contents.bad] == [(2, code)]
    assert len(contents.entries) == 2
    with pytest.raises(QuarantineDamaged, match=rf"line 2 \({code}\)") as caught:
        contents.check("list")
    assert caught.value.exit_code == 3
    assert "document" not in str(caught.value)


def test_a_key_twice_is_refused_whatever_the_id_says():
    """Who writes the line computes the id, too: over the bytes, or over what one reader takes."""
    twice = FULL.line.replace(b'"reason":"manual"', b'"reason":"spike","reason":"manual"')
    body = twice.replace(b',"id":"%s"' % FULL.id.encode(), b"")
    own = twice.replace(FULL.id.encode(), b"sha256:" + hashlib.sha256(body).hexdigest().encode())
    for line in (twice, own, own.replace(b'"reason":"spike"', b'"re\\u0061son":"spike"')):
        [bad] = parse(line + b"\n", "x").bad
        assert (bad.code, bad.problem) == (
            "invalid",
            "the key `reason` is given twice: readers would take either value",
        )


def test_a_last_line_that_is_not_whole_is_called_truncated():
    """One that lacks its end alone is whole: its id says so."""
    assert [bad.code for bad in parse(entry().line + b"\n" + FULL.line[:-1], "x").bad] == ["truncated"]
    assert parse(entry().line + b"\n" + FULL.line, "x").bad == ()


@pytest.mark.parametrize(
    ("version", "do"), [(1, "Begin a new list"), (2, "Begin a new list"), (4, "Install the version")]
)
def test_another_version_is_refused_by_name(version, do):
    """What an earlier or later version means is not known, so nothing is read; the message says what to do."""
    other = FULL.line.replace(b'"version":3', b'"version":%d' % version)
    with pytest.raises(
        QuarantineError, match=f"line 2: schema version {version}, this program reads version 3 alone"
    ) as e:
        parse(entry().line + b"\n" + other, "x")
    assert (e.value.exit_code, do in str(e.value)) == (2, True)


def test_a_bad_line_that_is_lifted_no_longer_counts():
    """By the digest of its bytes: another bad line still does."""
    bad = FULL.line[:40]
    lift = entry("lift", lifts=("sha256:" + hashlib.sha256(bad).hexdigest(),))
    contents = parse(b"\n".join([bad, lift.line, b"another"]), "x")
    assert ([one.number for one in contents.passed_over], [one.number for one in contents.bad]) == ([1], [3])


def test_a_target_needs_a_digest():
    """A name alone would hold back whatever lies there later."""
    with pytest.raises(ValidationError, match="needs sha256 or rows_digest"):
        Target(kind="shard", split="train", uri="a.parquet")


def test_the_same_thing_at_another_time_is_another_entry():
    """So that it can be added, lifted and added again."""
    assert entry().id != entry(when=NOW.replace(microsecond=1)).id
    assert make_entry(FULL.action, who="ana", when=NOW, reason="manual", target=target("a")).id == entry().id
    assert digest("a") != digest("b")
