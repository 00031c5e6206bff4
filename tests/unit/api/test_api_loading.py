"""A loaded manifest: each column read once, data frames, names that are not there, what a notebook shows."""

import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path

import hostile_manifest
import made_manifest
import made_verdict
import pytest
import yaml
from made_manifest import shard

from dataaudit import api
from dataaudit.base.errors import ConfigError, ManifestError
from dataaudit.manifest.load import load_manifest

DEMO = Path(__file__).parents[3] / "manifests/demo"
STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


@pytest.fixture
def manifest(tmp_path):
    """A manifest of two shards."""
    made_manifest.make(tmp_path / "m", [shard("a"), shard("b", documents=7)])
    return api.load(tmp_path / "m")


def test_names_that_are_not_there_name_the_nearest(manifest):
    """Tables, columns, metrics; a metric that is known and was not measured has no record."""
    with pytest.raises(ConfigError, match=r"no table `shard` .did you mean `shards`"):
        manifest.table("shard")
    with pytest.raises(ConfigError, match=r"no column `token` .did you mean `tokens`"):
        manifest.polars("shards", ["token"])
    with pytest.raises(ConfigError, match=r"no metric `token` .did you mean `tokens`"):
        manifest.metrics("token")
    assert manifest.metrics("pii_hit_rate") == []


def test_data_frames_have_the_rows_of_the_table(manifest):
    """In pandas and polars, with the scope of a metric as columns."""
    table = manifest.table("metrics")
    for frame in (manifest.pandas("metrics"), manifest.polars("metrics")):
        assert list(frame.columns) == table.flatten().column_names
        assert frame["value"].to_list() == table["value"].to_pylist()
        assert "scope.split" in frame.columns
    shards = manifest.pandas("shards", ["uri", "documents"])
    shards["documents"] += 1
    assert manifest.table("shards", ["documents"])["documents"].to_pylist() == [10, 7]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_library_says_what_to_type(manifest, package, monkeypatch):
    """In one line, as an error of ours."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest))
    with pytest.raises(ConfigError, match=f"{package} is not installed\n  pip install {package}"):
        getattr(manifest, package)("shards")


def test_loading_takes_a_path_or_a_manifest(manifest, tmp_path):
    """What is loaded stays as it is; what is no path is a TypeError, what is no manifest an error of ours."""
    assert api.load(manifest) is manifest
    assert api.load(load_manifest(manifest.folder)).id == manifest.id
    assert api.load(str(manifest.folder)).id == manifest.id
    with pytest.raises(ManifestError, match="no manifest at"):
        api.load(tmp_path / "none")
    with pytest.raises(TypeError, match="manifest: expected a path, found int"):
        api.load(3)


def test_what_is_asked_of_a_manifest_is_checked(manifest):
    """A name that is not there names the nearest; a wrong type is a TypeError, no lack of an attribute."""
    with pytest.raises(ConfigError, match=r"has no stat `rat` \(known: bytes, count"):
        manifest.metrics("exact_dup_rate", "rat")
    with pytest.raises(TypeError, match=r"scope: expected a Scope.*, found dict"):
        manifest.metrics("exact_dup_rate", scope={"split": "train"})
    with pytest.raises(TypeError, match="columns: expected names in a list, found the text `uri`"):
        manifest.table("shards", "uri")
    with pytest.raises(TypeError, match=r"verdict: expected a Verdict.*, found int"):
        api.failing(manifest, 3)


class Markup(HTMLParser):
    """The tags, attributes and text of some HTML."""

    def __init__(self, shown):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = set(), set(), [], []
        self.feed(shown)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= set(attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, odd_numbers):
    """A manifest whose every name is hostile."""
    return api.load(hostile_manifest.make_hostile(tmp_path_factory.mktemp("hostile") / "m"))


def shown(hostile):
    """Yield what notebooks show of results in which every name is hostile."""
    yield hostile
    yield api.diff(api.load(DEMO), hostile)
    yield from map(made_verdict.hostile, [*hostile_manifest.PAYLOADS, *made_verdict.HOSTILE])


def test_no_name_is_markup_in_a_notebook(hostile):
    """Only our own tags and styles, each closed; nothing that runs, loads, steers or sets a formula."""
    for one in shown(hostile):
        markup = Markup(one._repr_html_())
        assert markup.open == []
        assert markup.tags <= {"b", "div", "li", "p", "span", "table", "tbody", "td", "th", "thead", "tr", "ul"}
        assert {name for name, _ in markup.attributes} == {"class", "style"}
        assert all(
            re.fullmatch(r"[a-z0-9:#;. -]+|tex2jax_ignore mathjax_ignore", value) for _, value in markup.attributes
        )
        text = "".join(markup.text)
        assert not STEERS.search(text)
        assert [data for data in markup.text if ("$" in data or "\\" in data) and len(data) > 1] == []
        assert len(text) < 100_000


def test_no_name_steers_a_terminal_in_a_repr(hostile):
    """One line, printable, not endless."""
    for one in shown(hostile):
        text = repr(one)
        assert not STEERS.search(text)
        assert len(text) < 2500


def test_a_manifest_shows_what_stands_out_first():
    """The headline, then the problems, then how much there is: the list of the terminal's screen."""
    text = " ".join(Markup(api.load(DEMO)._repr_html_()).text)
    parts = ["things stand out", "7 secrets confirmed", "1 of 19 shards not read", "12,961", "Held out: val", "built"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert repr(api.load(DEMO)).startswith("<Manifest dataaudit-demo 1.3.0: 12,961 documents, 7,769,878 tokens, 18 sh")


def test_a_damaged_manifest_says_so(manifest):
    """A notebook gets the error as text, not a traceback."""
    (manifest.folder / "metrics.parquet").write_bytes(b"no table")
    assert "metrics.parquet of" in api.load(manifest.folder)._repr_html_()


def test_a_verdict_shows_what_does_not_hold_first():
    """The headline and what to do, then the cases with their shards, then waivers and facts."""
    text = " ".join(Markup(made_verdict.mixed()._repr_html_()).text)
    parts = [
        "FAIL, NOT EVALUATED: made 1.0.0 by release-gate",
        "Do not release it",
        "What does not hold",
        "train/part-3.jsonl (12",
        "Waivers",
        "exit code 3",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert repr(made_verdict.mixed()).startswith(
        "<Verdict FAIL, NOT EVALUATED: made 1.0.0 by release-gate, 2 rules fail"
    )
    assert "PASS" in api.gate(DEMO, POLICY)._repr_html_()


LENIENT = """
policy: lenient
rules:
  - {name: copies, metric: exact_dup_rate, stat: rate, unit: ratio, budget: 1.0}
  - {name: coverage, metric: coverage_unread_bytes, stat: shard_bytes, unit: bytes, budget: 1000000000}
"""
POLICY = yaml.safe_load(LENIENT)


def test_a_difference_shows_which_bump_it_means_first(manifest, tmp_path):
    """The headline and why, then the totals, shards and metrics; of equal manifests the headline alone."""
    made_manifest.make(tmp_path / "new", [shard("a"), shard("c", documents=9)])
    difference = api.diff(manifest, tmp_path / "new")
    text = " ".join(Markup(difference._repr_html_()).text)
    parts = ["made 1.0.0 -> made 1.0.0: ", "Totals", "bytes of text", "Shards", "as before"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert repr(difference).startswith("<Difference made 1.0.0 -> made 1.0.0: ")
    assert "equal" in api.diff(manifest, manifest)._repr_html_()
    assert "Totals" not in api.diff(manifest, manifest)._repr_html_()
