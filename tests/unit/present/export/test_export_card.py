"""Dataset cards: read by the hub's own classes, updated without touching anything else, safe against names."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st
from made_manifest import make, shard
from made_verdict import HOSTILE

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.volume.definition import overview
from dataaudit.present.export.card import BEGIN, END, export_card, replaced, section

pytestmark = pytest.mark.usefixtures("odd_numbers")
DEMO = Path(__file__).parents[4] / "manifests/demo"
INNER = f"{BEGIN}\n\nnew\n\n{END}\n"


@pytest.fixture(scope="module")
def demo():
    return section(load_manifest(DEMO), overview(load_manifest(DEMO)))


def test_the_hub_reads_a_new_card(tmp_path):
    export_card(DEMO, tmp_path / "README.md", None)
    card = DatasetCard.load(tmp_path / "README.md")
    assert card.data.pretty_name == "dataaudit-demo"
    assert card.data.size_categories == ["10K<n<100K"]
    assert card.data.language[:3] == ["en", "pt", "ja"]
    assert "und" not in card.data.language
    assert card.text.startswith("\n# dataaudit-demo\n\n<!-- dataaudit:begin -->")


def test_the_card_is_printed_without_a_file(tmp_path):
    done = CliRunner().invoke(main, ["export", "card", str(DEMO)])
    export_card(DEMO, tmp_path / "README.md", None)
    assert done.output == (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "| `train` | 14 | 12,844 | 30.1 MB | 7,700,365 | 3.908 | 227 | 1,990 | 0.0349 | 0.0349 |",
        "| `code` | 1,815 | 18.1 MB | 4,360,363 | 0.5663 | 0.4700 | +0.0963 |",
        "| `en` | 6,449 | 25.5 MB | 6,331,085 | 0.8222 |",
        "- 0.0365 of the documents are exact duplicates of an earlier one, white space aside.",
        "- 0.2137 of the documents of the held-out split `val` have a near-duplicate in training data.",
        "- `EMAIL_ADDRESS`: in 313 documents, 0.0241 of all, as patterns find it.",
        "- The audit read 18 of 19 shards, 10,773,120 of 10,963,081 stored bytes.",
    ],
)
def test_the_section_holds_the_numbers_of_the_manifest(demo, line):
    assert line in demo.splitlines()


def test_the_section_names_the_manifest(demo):
    assert f"`{load_manifest(DEMO).id}`." in demo.splitlines()


def test_an_update_twice_gives_the_same_bytes(tmp_path):
    path = tmp_path / "README.md"
    path.write_bytes(b"---\nlicense: mit\n---\n# Mine\n\nText.\n")
    assert "the section is new" in export_card(DEMO, None, path).words
    first = path.read_bytes()
    assert "nothing has changed" in export_card(DEMO, None, path).words
    assert path.read_bytes() == first
    assert first.startswith(b"---\nlicense: mit\n---\n# Mine\n\nText.\n\n<!-- dataaudit:begin -->\n")
    assert DatasetCard.load(path).data.license == "mit"


@given(before=st.binary(max_size=60), after=st.binary(max_size=60), old=st.text("ab |`\n", max_size=30))
def test_every_byte_outside_of_the_markers_stays(before, after, old):
    """Whatever its encoding; the text between them is gone."""
    if {BEGIN.encode(), END.encode()} & {before, after} or b"\r" in before + after:
        return
    card = before + b"\n" + f"{BEGIN}\n{old}\n{END}".encode() + b"\n" + after
    new = replaced(card, INNER, "card")
    assert new == before + b"\n" + INNER.encode() + after
    assert replaced(new, INNER, "card") == new


@given(card=st.binary(max_size=60))
def test_a_card_without_markers_gets_the_section_at_its_end(card):
    new = replaced(card, INNER, "card")
    assert new.startswith(card)
    assert replaced(new, INNER, "card") == new


def test_line_ends_of_the_card_are_kept():
    card = f"# Mine\r\n{BEGIN}\r\nold\r\n{END}\r\nrest\r\n".encode()
    assert replaced(card, INNER, "card") == f"# Mine\r\n{BEGIN}\r\n\r\nnew\r\n\r\n{END}\r\nrest\r\n".encode()


@pytest.mark.parametrize(
    "card", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{END}\n{BEGIN}\n{END}", f"{BEGIN}\n{BEGIN}\n{END}"]
)
def test_damaged_markers_change_nothing(tmp_path, card):
    path = tmp_path / "README.md"
    path.write_text(card)
    with pytest.raises(ConfigError, match="expected one line <!-- dataaudit:begin -->"):
        export_card(DEMO, None, path)
    assert path.read_text() == card


def test_a_marker_within_a_line_is_text():
    card = f"Write `{BEGIN}` and {END} yourself.\n".encode()
    assert replaced(card, INNER, "card") == card + b"\n" + INNER.encode()


def test_files_that_do_not_go_together_or_are_absent_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="Give one of them"):
        export_card(DEMO, tmp_path / "a", tmp_path / "b")
    with pytest.raises(ConfigError, match=r"the card .* cannot be read"):
        export_card(DEMO, None, tmp_path / "absent.md")


@pytest.mark.judges
@pytest.mark.parametrize("name", [*HOSTILE, BEGIN, END, f"\n{END}\n"])
def test_hostile_names_stay_within_their_code_spans(tmp_path, name):
    text = name.encode("utf-8", "replace").decode() or "x"
    shards = [shard("a", split=text, sources={text: 100}), shard("b", sources={text: 50})]
    make(tmp_path / "m", shards, dataset=text)
    export_card(tmp_path / "m", tmp_path / "README.md", None)
    card = (tmp_path / "README.md").read_text()
    spans = re.compile(r"`[^`\n]*`")
    assert not re.search(
        r"[<>`\[\]@\x1b\u202e]|www|http", spans.sub("", card.split("---\n", 2)[2]).replace(BEGIN, "").replace(END, "")
    )
    for line in card.split("### Splits")[1].split("### Personal")[0].splitlines():
        if line.startswith("|"):
            assert line.count("|") in {6, 8, 11}
    assert DatasetCard.load(tmp_path / "README.md").data.size_categories == ["n<1K"]
    first = (tmp_path / "README.md").read_bytes()
    export_card(tmp_path / "m", None, tmp_path / "README.md")
    assert (tmp_path / "README.md").read_bytes() == first


def test_what_was_not_looked_for_is_said(tmp_path):
    make(tmp_path / "m", [shard("a")])
    shown = export_card(tmp_path / "m", None, None).data.decode()
    assert "- Personal data was not searched for." in shown
    assert "- Secrets (keys, tokens, passwords) were not searched for." in shown
    assert "### Toxicity" not in shown


def test_an_update_keeps_the_mode_of_the_card_and_refuses_a_link(tmp_path):
    """The card may not be for everybody; a link is somebody's choice of another file, and is named."""
    (tmp_path / "real.md").write_text("# Mine\n")
    (tmp_path / "real.md").chmod(0o600)
    (tmp_path / "README.md").symlink_to("real.md")
    with pytest.raises(ConfigError, match=r"README\.md is a link\n  Name the card itself: --update real\.md"):
        export_card(DEMO, None, tmp_path / "README.md")
    export_card(DEMO, None, tmp_path / "real.md")
    assert BEGIN in (tmp_path / "real.md").read_text()
    assert (tmp_path / "real.md").stat().st_mode & 0o777 == 0o600
