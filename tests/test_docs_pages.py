"""The reference pages say what the code does: tables, keys, codes, names; and their examples run."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import made_manifest
import make_format_page

from dataaudit.base.errors import ConfigError
from dataaudit.config import AuditConfig, SourceRule, parse_config
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify
from dataaudit.metrics.pii.stage import CONFIRMED, DOCUMENTS, HITS
from dataaudit.metrics.pii.stage import METRIC as PERSONAL
from dataaudit.metrics.stages import STAGES
from dataaudit.metrics.toxicity.stage import METRIC as TOXIC
from dataaudit.metrics.toxicity.stage import THRESHOLDS
from dataaudit.scan.corpus.fields import NOTHING, TEXT
from dataaudit.scan.corpus.infer import infer_source, infer_splits, infer_text
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import discover

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "manifest"


def page(name: str) -> str:
    """Return a page's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of Markdown tables, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0].startswith("`")]


def code(cell: str) -> str:
    """Return what stands between back-quotes."""
    found = re.fullmatch(r"`([^`]+)`", cell)
    assert found, cell
    return found.group(1)


def spelled(scopes: str) -> str:
    """Return scopes of the metrics page, its two short forms spelled out."""
    by_entity = "entity, split and entity, source and entity, split and source and entity"
    return scopes.replace("by entity", by_entity).replace("everywhere", "all, split, source, split and source")


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def in_yaml(value):
    """Return a default as the page writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value).translate({40: "[", 41: "]", 39: None})


class TestFormatPage:
    def test_tables_are_those_of_the_schemas(self):
        """Every table and column stands there; `make_format_page.py --update-golden` renews the page."""
        text = page("docs/reference/format.md")
        assert make_format_page.updated(text) == text
        names = {code(row[0]) for row in rows(make_format_page.format_tables())}
        assert names >= {name for spec in TABLES.values() for name in spec.schema.names}

    def test_every_column_has_a_meaning(self):
        for spec in TABLES.values():
            for field in spec.schema:
                assert field.metadata[b"meaning"].strip(), (spec.name, field.name)

    @pytest.mark.parametrize("number", range(len(blocks(page("docs/reference/format.md"), "python"))))
    def test_python_examples_run(self, number, capsys):
        """Each example works on the golden manifest, the verification by hand among them."""
        example = blocks(page("docs/reference/format.md"), "python")[number]
        exec(compile(example, f"example {number}", "exec"), {"folder": str(GOLDEN)})  # noqa: S102 - our own page
        record = "[{'metric': 'exact_dup_rate', 'stat': 'rate', 'value': 0.111111111111, 'unit': 'ratio'}]\n"
        assert capsys.readouterr().out == ["", record, "9 5\n"][number]

    @pytest.mark.parametrize("damage", ["manifest.json", "shards.parquet"])
    def test_verification_by_hand_finds_damage(self, tmp_path, damage):
        """The example is a check, not a show: with an edited core or another table it fails."""
        folder = Path(shutil.copytree(GOLDEN, tmp_path / "m"))
        if damage == "manifest.json":
            path = folder / damage
            path.write_text(path.read_text(encoding="utf-8").replace('"golden"', '"gilded"'), encoding="utf-8")
        else:
            shutil.copy(folder / "pairs.parquet", folder / damage)
        example = blocks(page("docs/reference/format.md"), "python")[0]
        with pytest.raises(AssertionError):
            exec(compile(example, "example", "exec"), {"folder": str(folder)})  # noqa: S102 - our own page


def keys(model: type[BaseModel], prefix: str = "") -> dict[str, object]:
    """Return every key of the config as the page spells it, with its default (... when required)."""
    found: dict[str, object] = {}
    inner = {
        "splits": "splits.NAME",
        "protected": "protected.NAME",
        "mixture": "mixture.SOURCE",
        "upstream_filters": "upstream_filters[]",
    }
    for name, field in model.model_fields.items():
        own = prefix + (field.alias or name)
        below = _models(field.annotation)
        for kind in below:
            found |= keys(kind, inner.get(own, own) + ".")
        if not below or not isinstance(field.default, BaseModel):
            found[own] = ... if field.is_required() else field.default
    return found


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in getattr(annotation, "__args__", ()) for kind in _models(part)]


class TestConfigPage:
    def test_every_key_stands_there_with_its_default(self):
        """The table of keys is the models' own: none is missing, none is invented, defaults are right."""
        text = page("docs/reference/config.md").partition("## Stages")[0]
        told = {code(row[0]): row[1] for row in rows(text)}
        known = keys(AuditConfig)
        assert set(told) == set(known)
        for name, default in known.items():
            if default is ...:
                assert told[name] == "required", name
            elif isinstance(default, bool | int | float):
                assert told[name] == f"`{str(default).lower()}`", name
            elif isinstance(default, str) and default:
                assert told[name] == f"`{default}`", name

    def test_every_stage_and_parameter_stands_there(self):
        told = [
            (code(row[0]), row[1].strip("`"), row[2].strip("`"))
            for row in rows(page("docs/reference/config.md").partition("## Stages")[2])
        ]
        known = [
            (kind.name, field.name, in_yaml(getattr(kind(), field.name)))
            for kind in STAGES
            for field in dataclasses.fields(kind)
        ]
        assert [one for one in told if one[1]] == known
        assert {one[0] for one in told} == {kind.name for kind in STAGES}

    @pytest.mark.parametrize("number", range(2))
    def test_examples_are_valid(self, number):
        """What the page shows can be used as it stands, and the long example has every key."""
        data = yaml.safe_load(blocks(page("docs/reference/config.md"), "yaml")[number])
        config = parse_config(data, where="page")
        assert config.splits["train"].paths
        if number == 1:
            assert set(data) == set(AuditConfig.model_fields)

    def test_identity_column_is_true(self):
        """The keys that the page says are no part of the identity are those that `semantic` leaves out."""
        text = page("docs/reference/config.md").partition("## Stages")[0]
        told = {code(row[0]) for row in rows(text) if row[2] == "no"}
        config = parse_config({"splits": {"t": {"paths": ["a"]}}}, where="c")
        left_out = set(type(config.reader).model_fields) - set(config.semantic()["reader"])
        assert told == {f"reader.{name}" for name in left_out}


class TestInferencePage:
    @pytest.mark.parametrize(
        ("name", "split"),
        [
            ("data/train/a.jsonl", "train"), ("data/a.valid.jsonl", "val"),
            ("data/TEST-00001-of-00002.parquet", "test"), ("holdout/a.jsonl", "heldout"),
            ("train/run/dev.jsonl", "val"), ("latest/a.jsonl", "train"), ("values.jsonl", "train"),
            ("shard_000.parquet", "train"),
        ],
    )  # fmt: skip
    def test_splits(self, tmp_path, name, split):
        """Each example of the page is in the split that it says, and all but train are held out."""
        assert f"`{name}`" in page("docs/reference/inputs.md")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        found = infer_splits([name], tmp_path)
        assert list(found) == [split]
        assert found[split].held_out == (split != "train")

    @pytest.mark.parametrize(
        ("columns", "text"),
        [
            ({"id": "int64", "content": TEXT, "body": TEXT}, "content"),
            ({"id": "int64", "story": TEXT}, "story"),
            ({"question": TEXT, "answer": TEXT}, None),
            ({"document": "int64", "page": TEXT}, "page"),
            ({"text": NOTHING, "url": TEXT}, None),
            ({"ids": "list"}, None),
            ({}, None),
        ],
    )
    def test_text(self, columns, text):
        """Each example of the page gives the column that it says, or an error that names the columns."""
        assert all(f"`{name}`" in page("docs/reference/inputs.md") for name in columns)
        if text is not None:
            assert infer_text("train", [columns]) == text
            return
        with pytest.raises(ConfigError) as raised:
            infer_text("train", [columns])
        assert all(name in raised.value.message for name in columns or ["no columns"])

    @pytest.mark.parametrize(
        ("names", "columns", "rule"),
        [
            (["web/a.jsonl"], {"source": TEXT}, SourceRule(column="source")),
            (["web/a.jsonl", "code/b.jsonl"], {"source": "int64"}, None),
            (["source=web/a.parquet"], {}, SourceRule(column="source")),
            (["lang=de/year=2020/a.parquet", "lang=fr/year=2020/b.parquet"], {}, SourceRule(column="lang")),
            (["web/year=2020/a.parquet", "code/year=2021/b.parquet"], {}, None),
            (["a.jsonl", "b.jsonl"], {}, SourceRule(constant="all")),
            (["a.jsonl", "code/b.jsonl"], {}, SourceRule(constant="all")),
        ],
    )
    def test_source(self, tmp_path, names, columns, rule):
        """Each example of the page gives the rule that it says; a folder rule gives the folder's name."""
        for name in names:
            assert f"`{name}`" in page("docs/reference/inputs.md") or rule == SourceRule(column="source")
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
        config = parse_config({"splits": {"train": {"paths": names}}}, where="c")
        shards = discover(config.splits, tmp_path, root_at_base=True, follow_symlinks=False).shards
        found = infer_source(shards, columns)
        if rule is not None:
            assert found == rule
            return
        assert found.pattern is not None
        matches = [re.search(found.pattern, shard.uri) for shard in shards]
        assert [match and match.group("source") for match in matches] == ["code", "web"]


class TestLossesPage:
    def test_every_code_stands_there_once(self):
        told = rows(page("docs/reference/losses.md").partition("\n## What each bad input gets")[0])
        assert sorted(code(row[0]) for row in told) == sorted(Reason)
        assert [row for row in told if len(row) != 3 or not row[1].strip() or not row[2].strip()] == []


CORPUS = {
    "data/train/a.jsonl": ['{"text": "one two three", "source": "web"}', '{"text": "one  two three", "source": "web"}'],
    "data/train/c.jsonl": [
        '{"text": "six words stand here on line", "source": "web"}',
        '{"text": "anna.berg@posteo.de, pay GB82 WEST 1234 5698 7654 32", "source": "web"}',
        '{"text": "host 84.23.17.9, 12 High Street", "source": "web"}',
        '{"text": "AKIAQYLPMN5HFIQR7XYA https://bob:hT5kWq9Zr2@db.posteo.de/x", "source": "web"}',
        '{"text": "password: \'kP9#vX2$mQ7z\'", "source": "web"}',
        '{"text": "glpat-x3K9mQ2vB7nR5tY8wZ1c", "source": "web"}',
        '{"text": "Four!", "source": "web"}',
    ],
    "data/train/d.jsonl": ['{"text": "held back", "source": "web"}'],
    "eval/set.jsonl": ['{"question": "Six words stand here on line"}', "no json"],
    "data/val/b.jsonl": ['{"text": "", "source": "code"}', '{"text": "four", "source": "code"}', "no json"],
}
BUILD_CONFIG = """
splits:
  train: {paths: data/train, text: text, source: {column: source}}
  val: {paths: data/val, text: text, source: {column: source}, held_out: true}
protected:
  set: {paths: eval/set.jsonl, question: question}
mixture: {web: {weight: 3}, books: {weight: 1}}
upstream_filters: [{name: c4, version: "2", in: 10, out: 5}]
reader: {max_bad_records: 0.75}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The manifest of a tiny corpus, built by the program itself, under a list that holds one shard back."""
    folder = tmp_path_factory.mktemp("built")
    for name, lines in CORPUS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    (folder / "c.yaml").write_text(BUILD_CONFIG, encoding="utf-8")
    program = "from dataaudit.cli import main; main()"
    digest = hashlib.sha256((folder / "data/train/d.jsonl").read_bytes()).hexdigest()
    calls = [["quarantine", "add", "list.jsonl", f"sha256:{digest}", "--reason", "spam", "--who", "ana"]]
    for target, more in (("older", []), ("m", ["--reference", "older", "--quarantine", "list.jsonl"])):
        calls.append(["build", "c.yaml", "--manifest", target, "--workers", "0", "--quiet", *more])
    for options in calls:
        command = [sys.executable, "-c", program, *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    return load_manifest(folder / "m")


@pytest.mark.judges
class TestMetricsPage:
    def told(self, *, judged: bool = False) -> dict[tuple[str, str], list[str]]:
        """Return the page's rows by metric and statistic: of any build, or of one with judges."""
        found = {}
        for section in re.split(r"^## ", page("docs/reference/metrics.md"), flags=re.MULTILINE)[1:]:
            name = code(section.partition("\n")[0].strip())
            always, _, more = section.partition("\n### ")
            found |= {(name, code(row[0])): row[1:] for row in rows(more if judged else always)}
        return found

    def test_stats_of_judges_are_those_that_the_families_make(self):
        told = self.told(judged=True)
        both = {"judge_reads", "judged_share", "judge_failed", "judge_partly"}
        toxic = {"rate", *(f"rate_at_{one:g}" for one in THRESHOLDS)}
        stats = {(TOXIC, stat) for stat in toxic | both}
        stats |= {(PERSONAL, stat) for stat in {DOCUMENTS, HITS, CONFIRMED} | both}
        assert set(told) == stats
        assert told[PERSONAL, HITS][0] == "hits per million tokens"

    def test_names_stats_units_and_scopes_are_those_of_a_build(self, built):
        """Every record of a real manifest stands on the page as it is, and the page tells of no other."""
        made: dict[tuple[str, str], tuple[set[str], set[str], set[str]]] = {}
        for record in built.metrics():
            units, scopes, methods = made.setdefault((record.metric, record.stat), (set(), set(), set()))
            units.add(record.unit)
            scopes.add(" and ".join(record.scope.as_dict()) or "all")
            methods.add(record.method)
        told = {key: row for key, row in self.told().items() if row[1] != "shard"}  # these are columns of shards
        assert set(told) == set(made)
        for key, (unit, scopes, method, _) in told.items():
            assert made[key][0] == {unit}, key
            assert made[key][1] == set(spelled(scopes).split(", ")), key
            assert made[key][2] - {"exact"} <= set(method.split(" or ")), key

    def test_the_build_verifies(self, built):
        assert verify(built) == []
        assert built.core.ledger.documents.bad == 1


def test_the_example_of_the_leakage_page_lists_the_documents_to_remove(tmp_path):
    """Each document once, with its shard's name; those that only share 13-grams are left out."""
    match = {"set": "quiz", "item": "1", "part": "question", "tier": "verbatim", "start": 0, "end": 9, "score": 1.0}
    places = ((1, 4, "verbatim", 1.0), (0, 7, "span", 1.0), (0, 8, "span", 0.0), (0, 2, "ngram", 1.0))
    places = (*places, (1, 4, "similar", 1.0))
    names = ("shard", "row", "rule", "score_without_common")
    rows = [match | dict(zip(names, place, strict=True)) for place in places]
    made_manifest.make(
        tmp_path / "m", [made_manifest.shard("a.jsonl"), made_manifest.shard("b.jsonl")], tables={"overlap": rows}
    )
    (example,) = blocks(page("docs/concepts/leakage.md"), "python")
    names = {"folder": str(tmp_path / "m")}
    exec(compile(example, "example", "exec"), names)  # noqa: S102 - our own page
    found = names["remove"].select(["split", "uri", "shard", "row"]).to_pylist()
    assert [tuple(one.values()) for one in found] == [("train", "a.jsonl", 0, 7), ("train", "b.jsonl", 1, 4)]


FRAMEWORKS = [path for path in ROOT.glob("docs/frameworks/*.md") if path.stem != "index"]
PYTHON = (
    {
        "docs/concepts/duplicates.md": "look-ups in files of a build, which tests/e2e/test_repeats.py does",
        "docs/concepts/leakage.md": "tests/test_docs_pages.py",
        "docs/howto/cluster.md": "no loop; it needs a cluster",
        "docs/howto/quarantine.md": "tests/unit/decide/quarantine/test_quarantine_docs.py",
        "docs/howto/queries.md": "tests/test_queries.py",
        "docs/live/actions.md": "tests/unit/live/test_actions_in_training.py",
        "docs/live/checklists.md": "tests/unit/training/test_watch_run.py",
        "docs/live/checkpoints.md": "tests/unit/live/test_checkpoints_page.py",
        "docs/probes/canary.md": "tests/unit/probes/test_canary.py",
        "docs/probes/probes.md": "tests/unit/probes/test_probes_page.py",
        "docs/live/heartbeats.md": "tests/unit/live/test_live_page.py",
        "docs/live/trackers.md": "tests/unit/live/test_trackers.py",
        "docs/mechanism.md": "it shards a model over ranks, as tests/unit/vitals/test_sharded.py does",
        "docs/live/alerts.md": "part of a loop, which tests/unit/live/test_in_training.py runs",
        "docs/reference/api.md": "tests/test_api_page.py",
        "docs/reference/format.md": "tests/test_docs_pages.py",
        "docs/tutorial.md": "tests/test_tutorial.py",
    }
    | dict.fromkeys(
        (
            "docs/howto/reconstruct.md", "docs/howto/replay.md", "docs/howto/token-files.md",
            "docs/howto/training-loaders.md", "docs/reference/training-open.md", "docs/training.md", "docs/vitals.md",
        ),
        "tests/unit/training/test_examples.py",
    )
    | {str(path.relative_to(ROOT)): "tests/unit/training/test_framework_pages.py" for path in FRAMEWORKS}
)  # fmt: skip
"""By page: the test that runs its blocks of Python, or why none does."""


def test_every_page_with_python_has_a_test_that_runs_it_or_a_reason():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    assert {str(one.relative_to(ROOT)) for one in pages if "```python" in one.read_text("utf-8")} == set(PYTHON)
    for name, test in PYTHON.items():
        if test.endswith(".py") and " " not in test:
            listed = path.stem if (path := ROOT / name) in FRAMEWORKS else name
            assert listed in page(test), f"{test} does not name {name}"
