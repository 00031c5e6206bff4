"""Every rule of the config, and that what is wrong is said with its place and in plain words."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import explain, in_words, load_yaml, nearest
from dataaudit.config import AuditConfig, load_config, parse_config
from dataaudit.manifest.canonical import canonical_json

SMALL = {"splits": {"train": {"paths": ["a.jsonl"]}}}
FULL = """
dataset: {name: my-corpus, version: 1.2.0}
splits:
  train: {paths: ["data/train/*.parquet"], text: body.text, source: {column: meta.source}}
  val: {paths: data/val/*.jsonl.zst, held_out: true, source: {pattern: '(?P<source>[^/]+)/'}}
  test: {paths: [x, x], source: {constant: web}}
tokenizer: tokenizers/gpt2.json
reference: manifests/2026-10
stages: {lengths: {max_distinct: 5000}, exact_dup: false, volume: true}
upstream_filters: [{name: c4, version: "1", in: 1200000, out: 1000000}]
mixture: {web: {weight: 0.7, epochs: 2}, code: {weight: 0.3}}
reader: {max_bad_records: 0.01, follow_symlinks: true}
max_sources: 50
seed: 7
"""
JARGON = re.compile(
    r"(?i)input should|instance of|dictionary|tuple|valid (string|integer|boolean)|pydantic|NoneType|dict\["
)


A_NAME = "expected a name of letters, digits, `.`, `_` and `-` that begins with a letter or digit"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
"""What a text can hold: a NUL is refused."""
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def merged(**changes) -> dict:
    """Return the smallest config with other keys."""
    return {**SMALL, **changes}


def problems(data) -> list[str]:
    """Return the lines of the error, in which no jargon may stand."""
    with pytest.raises(ConfigError) as caught:
        parse_config(data, where="c.yaml")
    first, *lines = caught.value.message.splitlines()
    assert first == f"c.yaml: {len(lines)} problem(s)"
    assert "dataaudit explain config" in caught.value.hint
    assert not JARGON.search(caught.value.message), caught.value.message
    return [line.removeprefix("  - ") for line in lines]


def train(**keys) -> dict:
    """Return a config whose split has some keys."""
    return {"splits": {"train": {"paths": ["a"], **keys}}}


class TestReading:
    def test_everything_that_can_be_said(self, tmp_path):
        """A file with every key gives the values that stand in it."""
        path = tmp_path / "c.yaml"
        path.write_text(FULL, encoding="utf-8")
        config = load_config(path)
        assert config.dataset.version == "1.2.0"
        assert config.splits["val"].paths == ("data/val/*.jsonl.zst",)
        assert config.splits["train"].text == "body.text"
        assert config.splits["test"].paths == ("x", "x")
        assert config.stages == {"lengths": {"max_distinct": 5000}, "exact_dup": False, "volume": True}
        assert (config.upstream_filters[0].documents_in, config.upstream_filters[0].documents_out) == (1200000, 1000000)
        assert (config.mixture["web"].epochs, config.mixture["code"].epochs) == (2.0, 1.0)
        assert (config.reader.max_bad_records, config.max_sources, config.seed) == (0.01, 50, 7)

    def test_only_splits_are_needed(self):
        """Everything else has a default."""
        config = parse_config(SMALL, where="c")
        assert (config.dataset.name, config.tokenizer, config.seed, config.max_sources) == ("dataset", None, 0, 10_000)
        assert (config.splits["train"].text, config.splits["train"].source) == (None, None)
        assert not config.splits["train"].held_out

    @pytest.mark.parametrize("name", ["absent.yaml", "folder"])
    def test_file_that_cannot_be_read(self, tmp_path, name):
        """A missing file and a folder are named."""
        (tmp_path / "folder").mkdir()
        with pytest.raises(ConfigError, match=f"cannot read the config file .*{name}"):
            load_config(tmp_path / name)

    def test_file_that_is_not_utf8(self, tmp_path):
        """Bytes of another encoding are named as such."""
        (tmp_path / "c.yaml").write_bytes(b"dataset: {name: \xff}")
        with pytest.raises(ConfigError, match="it is not UTF-8"):
            load_config(tmp_path / "c.yaml")

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("", "nothing"),
            ("- a", "a list"),
            ("just words", "the text 'just words'"),
            ("3", "the number 3"),
            ("[]", "an empty list"),
        ],
    )
    def test_file_that_holds_no_mapping(self, tmp_path, text, found):
        """An empty file, a list or a word is no config; a smallest one is shown."""
        (tmp_path / "c.yaml").write_text(text)
        with pytest.raises(ConfigError, match="expected a mapping with a key `splits`") as caught:
            load_config(tmp_path / "c.yaml")
        assert caught.value.message.endswith(f"found {found}")
        assert "splits: {train:" in caught.value.hint


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("a: 1\nb: [1,\nc: 2\n", 4, "expected ','"),
            ("a: 1\n\tb: 2\n", 2, "cannot start any token"),
            ("a: 'x\n", 2, "unexpected end"),
            ("a: b: c\n", 1, "mapping values are not allowed"),
            ("a: 1\n--- \nb: 2\n", 2, "but found another document"),
            ("a: !!python/object:os.system x\n", 1, "could not determine a constructor"),
            ("a: *nothing\n", 1, "undefined alias"),
            ("a: 2024-13-45\n", 1, "put text in quotes"),
            ("a: !!int many\n", 1, "put text in quotes"),
            ("? [1, 2]\n: x\n", 1, "expected text"),
        ],
    )
    def test_what_is_not_yaml_is_named_with_its_line(self, text, line, words):
        """The error says file, line, column and what is wrong."""
        with pytest.raises(ConfigError, match=rf"c\.yaml is not valid YAML, line {line}, column \d+: .*{words}"):
            load_yaml(text, where="c.yaml")

    @pytest.mark.parametrize(
        ("text", "line", "first"),
        [
            ("seed: 1\nsplits: {}\nseed: 2\n", 3, 1),
            ("splits: {train: {paths: a, paths: b}}", 1, 1),
            ("splits:\n  train: {paths: a}\n  train: {paths: b}\n", 3, 2),
            ('a: 1\n"a": 2\n', 2, 1),
            ("- {x: 1}\n- {x: 1, y: 2,\n   x: 3}\n", 3, 2),
        ],
    )
    def test_a_key_that_is_given_twice_is_an_error(self, text, line, first):
        """The last one does not win silently: both lines are named."""
        with pytest.raises(
            ConfigError, match=rf"line {line}, column \d+: the key .* given twice, first in line {first}$"
        ):
            load_yaml(text, where="c.yaml")

    def test_anchors_and_merges_are_fine(self):
        """A merged key may be overridden; that is what a merge is for."""
        text = "base: &b {x: 1, y: 2}\nmore: &m {<<: *b, y: 3}\none: {<<: *m, x: 4}\ntwo: *m\n"
        value = load_yaml(text, where="c")
        assert value["one"] == {"x": 4, "y": 3}
        assert value["two"] == value["more"] == {"x": 1, "y": 3}

    def test_nesting_without_end_is_an_error(self):
        """Ten thousand brackets are no traceback."""
        with pytest.raises(ConfigError, match="nested too deeply"):
            load_yaml("[" * 10_000, where="c")

    def test_control_characters_are_an_error(self):
        """A NUL byte is refused in one line."""
        with pytest.raises(ConfigError, match="is not valid YAML") as caught:
            load_yaml("a: \0", where="c")
        assert "\n" not in caught.value.message

    @given(PLAIN)
    def test_what_yaml_writes_is_read(self, value):
        """Any plain value survives being written and read."""
        assert load_yaml(yaml.safe_dump(value), where="c") == value

    @pytest.mark.parametrize(("text", "value"), [("1e6", 1e6), ("-2E-3", -2e-3), ("1.5e3", 1500.0), ("e6", "e6")])
    def test_numbers_with_an_exponent(self, text, value):
        """1e6 is a number, as everybody who writes it means."""
        assert load_yaml(text, where="c") == value


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("data", "line"),
        [
            (merged(sed=1), "sed: unknown key (did you mean `seed`?)"),
            (merged(dataset={"nam": "x"}), "dataset.nam: unknown key (did you mean `name`?)"),
            (train(txt="t"), "splits.train.txt: unknown key (did you mean `text`?)"),
            (
                train(source={"colum": "s", "constant": "x"}),
                "splits.train.source.colum: unknown key (did you mean `column`?)",
            ),
            (
                {"splits": {"source": {"paths": ["a"], "heldout": True}}},
                "splits.source.heldout: unknown key (did you mean `held_out`?)",
            ),
            (
                merged(upstream_filters=[{"name": "c4", "in": 2, "out": 1, "outt": 1}]),
                "upstream_filters.0.outt: unknown key (did you mean `out`?)",
            ),
            (
                merged(mixture={"web": {"weight": 1, "epoch": 2}}),
                "mixture.web.epoch: unknown key (did you mean `epochs`?)",
            ),
            (merged(reader={"batch_byte": 4096}), "reader.batch_byte: unknown key (did you mean `batch_bytes`?)"),
            (merged(text="content"), "text: unknown key (did you mean `splits.NAME.text`?)"),
            (merged(paths=["a"]), "paths: unknown key (did you mean `splits.NAME.paths`?)"),
            (merged(weight=1), "weight: unknown key (did you mean `mixture.NAME.weight`?)"),
            (merged(dataset={"qqqq": 1}), "dataset.qqqq: unknown key (known: name, version)"),
        ],
    )
    def test_nearest_known_key_is_named_at_every_level(self, data, line):
        """An unknown key is an error that names the nearest key of its own section."""
        assert problems(data) == [line]

    def test_nearest(self):
        """Without anything near, the known names are listed in order."""
        assert nearest("tocenizer", ["tokenizer", "seed"]) == " (did you mean `tokenizer`?)"
        assert nearest("zzz", ["b", "a"]) == " (known: a, b)"
        assert nearest("nonsense", ["documents", "tokens", "languages"]) == " (known: documents, languages, tokens)"


class TestValues:
    @pytest.mark.parametrize(
        ("data", "line"),
        [
            ({}, "splits: required, but absent"),
            ({"splits": {}}, "splits: expected at least one entry, found an empty mapping"),
            ({"splits": None}, "splits: expected a mapping (keys with values), found nothing"),
            ({"splits": ["a"]}, "splits: expected a mapping (keys with values), found a list"),
            (
                {"splits": {"train": "a.jsonl"}},
                "splits.train: expected a mapping (keys with values), found the text 'a.jsonl'",
            ),
            ({"splits": {"train": {}}}, "splits.train: expected exactly one of paths, dataset; found neither"),
            (train(paths=[]), "splits.train: expected exactly one of paths, dataset; found neither"),
            (
                train(paths=["a"], dataset={"id": "org/x"}),
                "splits.train: expected exactly one of paths, dataset; found both",
            ),
            (train(paths=[""]), "splits.train.paths.0: expected text that is not empty, found empty text"),
            (train(paths=[1]), "splits.train.paths.0: expected text, found the number 1; put it in quotes"),
            (train(paths={"a": 1}), "splits.train.paths: expected a list, found a mapping"),
            (train(text=""), "splits.train.text: expected text that is not empty, found empty text"),
            (train(text=False), "splits.train.text: expected text, found false; put it in quotes"),
            (train(held_out="yes"), "splits.train.held_out: expected true or false, found the text 'yes'"),
            (train(held_out=1), "splits.train.held_out: expected true or false, found the number 1"),
            (train(source="web"), "splits.train.source: expected a mapping (keys with values), found the text 'web'"),
            ({"splits": {"a b": {"paths": ["a"]}}}, f"splits: the name `a b`: {A_NAME}, found the text 'a b'"),
            (
                {"splits": {2024: {"paths": ["a"]}}},
                "splits: the name `2024`: expected text, found the number 2024; put it in quotes",
            ),
            (
                merged(dataset={"version": 1.2}),
                "dataset.version: expected text, found the number 1.2; put it in quotes",
            ),
            (merged(tokenizer=""), "tokenizer: expected text that is not empty, found empty text"),
            (merged(seed=True), "seed: expected a whole number, found true"),
            (merged(seed=1.0), "seed: expected a whole number, found the number 1.0"),
            (merged(seed="1"), "seed: expected a whole number, found the text '1'"),
            (merged(seed=-1), "seed: expected at least 0, found the number -1"),
            (merged(seed=2**53), "seed: expected less than 9007199254740992, found the number 9007199254740992"),
            (
                merged(pii={"model": "en_core_web_sm"}),
                "pii: model is given, but not who uses it; expected analyzer: presidio",
            ),
            (merged(max_sources=0), "max_sources: expected at least 1, found the number 0"),
            (merged(reader={"max_bad_records": 2}), "reader.max_bad_records: expected at most 1.0, found the number 2"),
            (
                merged(reader={"max_bad_records": "1%"}),
                "reader.max_bad_records: expected a number, found the text '1%'",
            ),
            (merged(reader={"part_bytes": 10}), "reader.part_bytes: expected at least 1024, found the number 10"),
            (
                merged(stages={"volume": "off"}),
                "stages.volume: expected true, false or the stage's parameters by name, found the text 'off'",
            ),
            (
                merged(stages={"volume": {1: 2}}),
                "stages.volume: expected true, false or the stage's parameters by name, found a mapping",
            ),
            (merged(stages=["volume"]), "stages: expected a mapping (keys with values), found a list"),
            (
                merged(mixture={"web": {"weight": float("nan")}}),
                "mixture.web.weight: expected a finite number, found the number nan",
            ),
            (
                merged(mixture={"web": {"weight": float("inf")}}),
                "mixture.web.weight: expected a finite number, found the number inf",
            ),
            (merged(mixture={"web": {"weight": -1}}), "mixture.web.weight: expected at least 0.0, found the number -1"),
            (
                merged(mixture={"web": {"weight": 1, "epochs": 0}}),
                "mixture.web.epochs: expected more than 0.0, found the number 0",
            ),
            (merged(mixture={"web": 0.5}), "mixture.web: expected a mapping (keys with values), found the number 0.5"),
            (merged(upstream_filters={"c4": 1}), "upstream_filters: expected a list, found a mapping"),
            (
                merged(upstream_filters=[{"name": "c4", "in": 1, "out": 2}]),
                "upstream_filters.0: out (2) is larger than in (1)",
            ),
            (merged(upstream_filters=[{"name": "c4", "in": -1, "out": -2}]), None),
        ],
    )
    def test_wrong_values_are_explained_in_plain_words(self, data, line):
        """Place, what was expected, what was found; nothing is turned into another type silently."""
        found = problems(data)
        assert found == [line] if line else len(found) == 2

    def test_every_problem_is_listed(self):
        """One run shows all that is wrong, not the first alone."""
        assert len(problems({"splits": {}, "seed": "x", "sed": 1, "mixture": {"a": {"weight": "b"}}})) == 4

    def test_dates_are_found(self):
        """An unquoted date is no text, and the error shows it as it was written."""
        data = load_yaml("splits: {train: {paths: [a]}}\ndataset: {version: 2026-01-02}", where="c")
        assert problems(data) == ["dataset.version: expected text, found the date 2026-01-02; put it in quotes"]

    def test_a_value_that_holds_itself(self):
        """An anchor inside itself is an error, not an endless loop."""
        data = load_yaml("splits: &s {train: *s}", where="c")
        assert problems(data)[0].startswith("splits.train")

    def test_keys_that_are_no_text(self):
        """`on:` is the YAML word for true; mappings from Python have keys of any kind; the error says to quote it."""
        [line] = problems({True: 1, "splits": {"train": {"paths": ["a"]}}})
        assert line.endswith("expected a key that is text, found true; put it in quotes")

    @pytest.mark.parametrize(
        ("key", "found"),
        [
            ("on", "`on` is read as true, expected text; put it in quotes"),
            ("NO", "`NO` is read as false, expected text; put it in quotes"),
            ("1", "`1` is read as the number 1, expected text; put it in quotes"),
            ("1.50", "`1.50` is read as the number 1.5, expected text; put it in quotes"),
            ("~", "`~` is read as no value (null), expected text; put it in quotes"),
            ("null", "`null` is read as no value (null), expected text; put it in quotes"),
            ("2024-01-01", "`2024-01-01` is read as the date 2024-01-01, expected text; put it in quotes"),
            ("? [a,   b]\n", "`[a, b]` is read as a list, expected text"),
            ("? {a: b}\n", "`{a: b}` is read as a mapping, expected text"),
            ("!!int '3'", "`!!int '3'` is read as the number 3, expected text; put it in quotes"),
        ],
    )
    @pytest.mark.parametrize("inside", ["# c\n{}: 1\n", "a: &x {{b: y}}\nd:\n- {}: {{}}\n", "x:\n  {}: [y]\n"])
    def test_keys_of_files_are_named_as_they_stand(self, key, found, inside):
        """With their line, at any depth, in every YAML file that people write."""
        text = inside.format(key)
        line = text[: text.index(key)].count("\n") + 1
        with pytest.raises(ConfigError) as caught:
            load_yaml(text, where="c.yaml")
        assert caught.value.message.startswith(f"c.yaml is not valid YAML, line {line}, column ")
        assert caught.value.message.endswith(found)

    def test_a_key_that_is_empty(self):
        """It cannot be shown as it stands; its place is."""
        with pytest.raises(ConfigError, match=r"line 2, column 2: a key that is empty is read as no value \(null\)"):
            load_yaml("a: 1\n?\n: x\n", where="c.yaml")

    def test_keys_that_are_text_are_read(self):
        """Quoted, plain, merged from an anchor."""
        text = "a: &a {'1': x, \"on\": y, 1:30: z, n.o: w}\nb: {<<: *a, c: 1}"
        assert load_yaml(text, where="c")["b"] == {"1": "x", "on": "y", "1:30": "z", "n.o": "w", "c": 1}

    def test_words_for_values(self):
        """Each kind of value has words; long text is cut."""
        words = [in_words(value) for value in (None, True, {"a": 1}, {}, [1], "", "x" * 99)]
        assert words[:6] == ["nothing", "true", "a mapping", "an empty mapping", "a list", "empty text"]
        assert len(words[6]) < 75

    def test_explain_falls_back_to_the_library_s_words(self):
        """A kind of problem without words of ours is still told."""
        from pydantic import BaseModel, Field, ValidationError

        class Odd(BaseModel):
            value: int = Field(multiple_of=5)

        with pytest.raises(ValidationError) as caught:
            Odd.model_validate({"value": 3})
        assert explain(caught.value, Odd) == ["value: Input should be a multiple of 5, found the number 3"]


class TestSource:
    @pytest.mark.parametrize(
        "source", [{"column": "meta.source"}, {"pattern": "train/(?P<source>[^/]+)/"}, {"constant": "web"}]
    )
    def test_three_ways(self, source):
        """A column, a pattern with a group `source`, or a constant."""
        rule = parse_config(train(source=source), where="c").splits["train"].source
        assert rule.model_dump(exclude_none=True) == source

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ({}, "exactly one of column, pattern, constant; found none"),
            ({"column": "a", "constant": "b"}, "exactly one of column, pattern, constant; found column, constant"),
            ({"pattern": "("}, "pattern is not a regular expression: missing )"),
            ({"pattern": "data/([^/]+)/"}, "pattern needs a group named source"),
            ({"constant": ""}, "expected text that is not empty"),
            ({"column": ""}, "expected text that is not empty"),
        ],
    )
    def test_anything_else_is_refused(self, source, words):
        """None, two, a broken pattern or one without its group are errors that say what is needed."""
        [line] = problems(train(source=source))
        assert line.startswith("splits.train.source")
        assert words in line


def shuffled(value, order: random.Random):
    """Return a value whose mappings have another order of keys."""
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


class TestSemantic:
    def test_holds_no_path_and_nothing_that_decides_no_number(self):
        """Globs, tokenizer, reference, dataset and how the work is cut are not part of it."""
        data = yaml.safe_load(FULL)
        data["splits"]["train"]["paths"] = ["/machine/alpha/*.parquet"]
        data |= {"tokenizer": "/machine/beta.json", "reference": "/machine/gamma"}
        text = canonical_json(parse_config(data, where="c").semantic()).decode()
        for word in ("/machine", "paths", "tokenizer", "reference", "my-corpus", "batch_bytes", "part_bytes"):
            assert word not in text

    @pytest.mark.parametrize(
        "change",
        [
            {"dataset": {"name": "other"}},
            {"tokenizer": "other.json"},
            {"reference": "other"},
            {"reader": {"batch_bytes": 2048}},
            {"reader": {"part_bytes": 2048}},
            {"language": {"model": "a.bin"}},
            {"splits": {"train": {"paths": ["b", "c"]}}},
            {"toxicity": {"device": "cpu", "config_path": "x"}},
        ],
    )
    def test_is_the_same_for_what_decides_no_number(self, change):
        """The same numbers have the same identity."""
        assert parse_config(merged(**change), where="c").semantic() == parse_config(SMALL, where="c").semantic()

    @pytest.mark.parametrize(
        "change",
        [
            {"max_sources": 3},
            {"reader": {"max_bad_records": 0.5}},
            {"reader": {"max_line_bytes": 2048}},
            {"reader": {"follow_symlinks": True}},
            {"splits": {"train": {"paths": ["a"], "text": "body"}}},
            {"splits": {"train": {"paths": ["a"], "held_out": True}}},
            {"splits": {"other": {"paths": ["a"]}}},
            {"splits": {"train": {"paths": ["a"], "source": {"constant": "x"}}}},
            {"language": {"detector": "fasttext"}},
            {"language": {"min_confidence": 0.4}},
        ],
    )
    def test_differs_for_what_decides_numbers(self, change):
        """Whatever may change a number changes the identity."""
        assert parse_config(merged(**change), where="c").semantic() != parse_config(SMALL, where="c").semantic()

    @given(st.integers())
    def test_order_of_keys_never_counts(self, seed):
        """However the file is ordered, the canonical bytes are the same."""
        data = yaml.safe_load(FULL)
        other = shuffled(data, random.Random(seed))
        first, second = (parse_config(one, where="c").semantic() for one in (data, other))
        assert canonical_json(first) == canonical_json(second)


class TestSchema:
    def test_json_schema_takes_what_the_program_takes(self):
        """The schema for editors accepts the full example and refuses an unknown key."""
        jsonschema = pytest.importorskip("jsonschema")
        schema = AuditConfig.model_json_schema(by_alias=True)
        data = yaml.safe_load(FULL)
        data["splits"]["val"]["paths"] = [data["splits"]["val"]["paths"]]
        jsonschema.validate(data, schema)
        with pytest.raises(jsonschema.ValidationError, match="sed"):
            jsonschema.validate(data | {"sed": 1}, schema)

    def test_a_single_path_is_in_the_schema(self):
        """An editor must not mark `paths: data/*.parquet`, which the program takes."""
        jsonschema = pytest.importorskip("jsonschema")
        jsonschema.validate({"splits": {"t": {"paths": "a"}}}, AuditConfig.model_json_schema(by_alias=True))

    def test_the_demo_config_is_valid(self):
        """The recipe in the repository loads."""
        assert load_config(Path(__file__).parents[2] / "pipelines" / "demo.yaml").splits["val"].held_out


@pytest.mark.parametrize(
    "text",
    [
        "0x10", "-0x10", "1_0", "1_0.5", "1.5_0", "1_", "0x_", "0o17", "0b1", "010", "1:30", "1,0", "\uff11\uff10",
        "1e", "+-1", "1e1_0",
    ],
)  # fmt: skip
def test_a_number_has_digits_alone(text):
    """Readers of YAML disagree about the others, and a budget is compared with what people read."""
    assert load_yaml(f"a: {text}", where="c") == {"a": text}
    for tag in ("!!int", "!!float"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_yaml(f"a: {tag} '{text}'", where="c")


@pytest.mark.parametrize("unseen", "\r\x85\u2028\u2029\u202a\u202e\u2066\u2069")
def test_no_line_is_hidden_from_a_reader(unseen):
    """Behind a line end that no editor shows a comment holds a key: `severity: warn` behind `budget: 0 # note`."""
    with pytest.raises(
        ConfigError, match=f"c is refused, line 2: U\\+{ord(unseen):04X} shows other lines than are read"
    ):
        load_yaml(f"a: 0\nb: 0 # note{unseen}c: 1", where="c")
    assert load_yaml(f'a: "\\u{ord(unseen):04x}"\r\n', where="c") == {"a": unseen}


@pytest.mark.parametrize("escape", ["0", "x00", "u0000", "ud800", "udfff", "U0000DC80"])
def test_text_that_no_file_can_hold_is_refused(escape):
    """As a value, a key, in a list: a path with a NUL and a source of half a pair ended as internal errors."""
    for text in (f'a: "b\\{escape}"', f'"a\\{escape}": 1', f'a: {{b: ["\\{escape}"]}}'):
        with pytest.raises(ConfigError, match=r"a text holds U\+[0-9A-F]{4}, which no file"):
            load_yaml(text, where="c")


@pytest.mark.parametrize(
    ("text", "number"),
    [("10", 10), ("-0", 0), ("+10", 10), ("1e1", 10.0), (".5", 0.5), ("5.", 5.0), ("1.5E-3", 0.0015)],
)
def test_decimal_numbers_are_read(text, number):
    """With sign, point and exponent."""
    assert load_yaml(f"a: {text}", where="c") == {"a": number}
