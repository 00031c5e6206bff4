"""Keys: everything that decides a result changes them, and nothing else does.

The fields are taken by introspection, so one that is added later has to be sorted into one of the two here.
"""

import inspect
from dataclasses import fields, replace
from pathlib import Path

import pytest
from made_build import DECISIVE, STAGE_LIST, config, plan, probe, shard

from dataaudit.engine import plan as keys
from dataaudit.metrics.exact_dup.stage import ExactDup
from dataaudit.metrics.lengths.stage import Lengths
from dataaudit.metrics.overlap.stage import Overlap
from dataaudit.metrics.volume.stage import Volume
from dataaudit.scan.annotators import LANGUAGES, MATCHES, TOKENS, TOXICITY, Tokens
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.readers import Part, ReadRequest
from dataaudit.scan.corpus.tokens import Risks, TokenizerFile
from dataaudit.scan.detectors import LanguageModels
from dataaudit.scan.detectors.base import DetectorModel

RULE = FieldRule(text="text", source_column=None, source_constant="web", max_record_bytes=100)
READING = {
    "sha256": "aa",
    "split": "train",
    "format_": "jsonl",
    "compression": "none",
    "part": Part(0, 10),
    "fields": RULE,
}
FILE = TokenizerFile(name="t", format="tokenizer.json", sha256="bb", path=Path("/t"), vocab_size=5, special_ids=(1,))
DECIDES_NOTHING = {"restart"}
RISKS = Risks(supported=True, reason="ok", key="k")


def stage_key(reading, stage, decisive, **more):
    """Return the key of a stage's partial."""
    return keys.stage_key(reading, keys.stage_identity(stage, decisive), **more)


def other(value):
    """Return another value of the same type."""
    if value is None:
        return "column"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, Path):
        return value / "x"
    return {(): ("x",), (1,): (2,)}[value]


def variants(value):
    """Return the dataclass with each of its fields changed, by name."""
    names = [field.name for field in fields(value) if field.name not in DECIDES_NOTHING]
    return {name: replace(value, **{name: other(getattr(value, name))}) for name in names}


def test_the_example_covers_every_argument_of_a_reading_key():
    """A new argument of the key has to be added to the example above."""
    assert set(inspect.signature(keys.reading_key).parameters) == set(READING)


@pytest.mark.parametrize("name", ["sha256", "split", "format_", "compression"])
def test_every_plain_argument_changes_the_reading_key(name):
    """Content, split, format and compression each decide."""
    assert keys.reading_key(**READING | {name: READING[name] + "x"}) != keys.reading_key(**READING)


@pytest.mark.parametrize("value", [READING["part"], RULE])
def test_every_field_of_part_and_rule_changes_the_reading_key(value):
    """Each field alone gives another key, and no two give the same."""
    name = "part" if isinstance(value, Part) else "fields"
    made = {keys.reading_key(**READING | {name: changed}) for changed in variants(value).values()}
    assert keys.reading_key(**READING) not in made
    assert len(made) == len(variants(value))


def test_where_decoding_begins_changes_no_key():
    """It decides how long a part takes, and nothing that is found in it."""
    part = replace(READING["part"], restart=(5, 9))
    assert keys.reading_key(**READING | {"part": part}) == keys.reading_key(**READING)


def test_the_read_request_has_no_field_that_no_key_knows():
    """Of a request all is in the key but the place of the file and the size of batches, which decide nothing.

    What is stored is of all records: a request for some of them is never planned. Records that are held back are read,
    and are in the keys of what stages make of the others.
    """
    assert {field.name for field in fields(ReadRequest)} == {
        "path", "format", "compression", "part", "fields", "batch_bytes", "only", "without",
    }  # fmt: skip
    assert [part.request.only for part in plan(shard(), probe(parts=((0, 50), (50, 100)))).parts] == [None, None]


def test_what_is_held_back_changes_the_keys_of_stages():
    """And nothing held back changes none."""
    made = [stage_key("r", Volume(), DECISIVE, without=rows) for rows in ((), (1,), (1, 2))]
    assert len(set(made)) == 3
    assert made[0] == stage_key("r", Volume(), DECISIVE)


@pytest.mark.parametrize("name", ["__version__", "READER_VERSION", "STORE_VERSION"])
def test_every_version_changes_every_key(name, monkeypatch):
    """Another program, reader or form of the store finds nothing of the old one."""
    before = keys.reading_key(**READING)
    monkeypatch.setattr(keys, name, "another")
    assert keys.reading_key(**READING) != before


@pytest.mark.parametrize("name", ["NORMAL_FORM", "NORMAL_FORM_VERSION"])
def test_the_normal_form_changes_stage_keys(name, monkeypatch):
    """Duplicates rest on the normal form."""
    before = stage_key("r", ExactDup(), DECISIVE)
    monkeypatch.setattr(keys, name, "another")
    assert stage_key("r", ExactDup(), DECISIVE) != before


@pytest.mark.parametrize("library", [*keys.NUMERIC_LIBRARIES, "unicode"])
def test_every_library_that_affects_numbers_changes_every_key(library, monkeypatch):
    """An update of one of them computes everything anew."""
    before = keys.reading_key(**READING)
    versions = keys.library_versions()
    monkeypatch.setattr(keys, "library_versions", lambda: versions | {library: "0.0.0"})
    assert keys.reading_key(**READING) != before


def test_asking_for_versions_is_cheap_and_gives_a_dict_of_ones_own():
    """Every key asks; what one caller does to the answer does not reach the next."""
    keys.library_versions().clear()
    assert set(keys.library_versions()) == {*keys.NUMERIC_LIBRARIES, "unicode"}


def test_stage_name_version_and_parameters_change_its_key(monkeypatch):
    """Two stages, two versions of one and two settings of one never share a partial."""
    made = [stage_key("r", stage, DECISIVE) for stage in (*STAGE_LIST, Lengths(max_distinct=999))]
    made.append(stage_key("another reading", Volume(), DECISIVE))
    monkeypatch.setattr(Volume, "version", "another")
    made.append(stage_key("r", Volume(), DECISIVE))
    assert len(set(made)) == len(made)


LOOKED_AT = {
    "tokens": lambda stage: TOKENS in stage.needs,
    "languages": lambda stage: LANGUAGES in stage.needs,
    "matches": lambda stage: MATCHES in stage.needs,
    "toxicity": lambda stage: TOXICITY in stage.needs,
    "pii": lambda stage: stage.detector == "pii",
    "secrets": lambda stage: stage.detector == "secrets",
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_what_decides_an_answer_decides_only_the_stages_that_look_at_it(name):
    """Another tokenizer, detector, index or screen leaves all other partials; what looks at it cannot do without."""
    decisive, looks = DECISIVE | {"matches": "i"}, LOOKED_AT[name]
    stages = (*STAGE_LIST, Overlap())
    for stage in stages:
        first, other_one = (stage_key("r", stage, decisive | {name: value}) for value in ("a", "b"))
        assert (first == other_one) != looks(stage)
    looking = next(stage for stage in stages if looks(stage))
    with pytest.raises(AssertionError, match=name):
        stage_key("r", looking, {key: value for key, value in decisive.items() if key != name})


def test_what_of_a_detector_decides_languages_is_in_its_value():
    """Name, versions, content, languages, the least confidence, the sample and who is asked; a path is not."""
    model = DetectorModel(name="n", version="1", sha256="aa", languages=("und",), path=Path("/m"))
    models = LanguageModels(chosen=model, second=replace(model, name="o"), min_confidence=0.5)
    plain = models.key_value(seed=0)
    bare = replace(model, languages=())
    for name, changed in (variants(bare) | {"parts": replace(bare, parts=(model,))}).items():
        value = replace(models, chosen=changed).key_value(seed=0)
        assert (value != replace(models, chosen=bare).key_value(seed=0)) == (name != "path")
    assert replace(models, chosen=models.second, second=models.chosen).key_value(seed=0) != plain
    assert replace(models, min_confidence=0.6).key_value(seed=0) != plain
    assert models.key_value(seed=1) != plain
    assert plain["sample_one_in"] == 64


def test_what_of_a_tokenizer_decides_token_ids_is_in_its_value():
    """Format, content, routing, forced path and seed do; name and place do not."""
    plain = Tokens(tokenizer=FILE, risks=RISKS, force_reference=False, seed=0).decisive()
    deciding = {"format", "sha256"}
    follows = {"name", "path", "vocab_size", "special_ids"}  # of the content
    assert deciding | follows == {field.name for field in fields(TokenizerFile)}
    for name, changed in variants(FILE).items():
        value = Tokens(tokenizer=changed, risks=RISKS, force_reference=False, seed=0).decisive()
        assert (value != plain) == (name in deciding)
    for name in ("supported", "reason", "normal_forms", "patterns", "key"):
        changed = replace(RISKS, **{name: other(getattr(RISKS, name))})
        assert Tokens(tokenizer=FILE, risks=changed, force_reference=False, seed=0).decisive() != plain, name
    assert Tokens(tokenizer=FILE, risks=RISKS, force_reference=True, seed=0).decisive() != plain
    assert Tokens(tokenizer=FILE, risks=RISKS, force_reference=False, seed=1).decisive() != plain


def all_keys(planned):
    """Return every key of a planned shard."""
    return [(part.reading_key, dict(part.stage_keys)) for part in planned.parts]


def test_place_name_and_order_are_in_no_key():
    """A shard that is moved, renamed, renumbered, touched or differently batched keeps its keys."""
    expected = all_keys(plan(shard(), probe()))
    moved = shard(9, uri="b/c.jsonl", path="/else/where.jsonl", size=7)
    touched = replace(probe(), stat=replace(probe().stat, mtime_ns=77, ctime_ns=78, inode=79), hashed_ns=80)
    batched = config(reader={"batch_bytes": 2000, "part_bytes": 3000})
    for planned in (plan(moved, probe()), plan(shard(), touched), plan(shard(), probe(), settings=batched)):
        assert all_keys(planned) == expected


def test_content_split_and_cut_are_in_every_key():
    """Other bytes, another split and another range share nothing with the first."""
    planned = [
        plan(shard(), probe()),
        plan(shard(), probe("y")),
        plan(shard(split="val"), probe()),
        plan(shard(), probe(parts=((0, 99),))),
    ]
    made = [key for one in planned for reading, stages in all_keys(one) for key in (reading, *stages.values())]
    assert len(set(made)) == len(made)
