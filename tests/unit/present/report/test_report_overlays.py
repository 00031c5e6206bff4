"""Old and new distributions over each other: the same bins, shares that add up to 1, a table that says the same."""

import pytest
from made_manifest import make, shard

from dataaudit.base.render.blocks import Figure, Prose
from dataaudit.base.render.line import PLAIN, spell
from dataaudit.manifest.load import load_manifest
from dataaudit.present.report.overlays import overlays


def lengths(*pairs):
    """Rows of the table of lengths."""
    return [{"split": "train", "source": "web", "low": low, "high": low, "documents": count} for low, count in pairs]


def tokens(*pairs):
    """Rows of the table of token counts."""
    return [{"split": "train", "source": "web", "token": token, "count": count} for token, count in pairs]


def made(folder, *, of_lengths, of_tokens, screen):
    """A manifest of two shards."""
    shards = [shard("a", toxicity_screen=screen[0]), shard("b", toxicity_screen=screen[1])]
    make(folder, shards, tables={"lengths": of_lengths, "histogram": of_tokens})
    return load_manifest(folder)


@pytest.fixture
def pair(tmp_path):
    """An older manifest and a newer one with longer documents, other tokens and a shard of toxic text."""
    old = made(
        tmp_path / "old", of_lengths=lengths((10, 6), (100, 4)), of_tokens=tokens((1, 8), (2, 2)), screen=(0.0, 0.0)
    )
    new = made(
        tmp_path / "new",
        of_lengths=lengths((10, 2), (20, 1), (100, 7)),
        of_tokens=tokens((1, 1), (2, 9)),
        screen=(0.0, 0.5),
    )
    return old, new


def test_each_distribution_is_drawn_over_its_old_one(pair):
    """By name and in order, the old one dashed; both over the same edges, each adding up to 1."""
    figures = [one for one in overlays(*pair) if isinstance(one, Figure)]
    assert [one.id for one in figures] == ["chart-lengths-before-0", "chart-tokens-before", "chart-screen-before"]
    for one in figures:
        assert [name for name, _ in one.chart.series] == ["before", "now"]
        assert one.chart.dashed == {0}
        for _, values in one.chart.series:
            assert len(values) == len(one.chart.edges) - 1 == len(one.table.rows)
            assert sum(values) == pytest.approx(1)
        assert "Dashed: before." in spell(one.note, PLAIN)


def test_what_moved_is_said_and_stands_in_the_table(pair):
    """The text alternative names the bin that changed most, with both shares."""
    length, token, screen = overlays(*pair)
    assert [values for _, values in length.chart.series] == [
        (0.6, 0, 0, 0, 0, 0, 0, 0.4),
        (0.2, 0, 0.1, 0, 0, 0, 0, 0.7),
    ]
    said = spell(length.says, PLAIN)
    assert said == "0.4000 lie in other bins than before; most changed is 8 to 11.3: 0.6000 before, 0.2000 now."
    assert [spell(cell, PLAIN) for cell in length.table.rows[-1]] == ["90.5 to 128", "0.4000", "0.7000"]
    assert [values for _, values in token.chart.series] == [(0.8, 0, 0.2), (0.1, 0, 0.9)]
    assert screen.chart.series[0][1][0] == 1
    assert screen.chart.series[1][1][-1] == 0.5
    assert screen.chart.edges[-2] <= 0.5 < screen.chart.edges[-1]


def test_what_one_of_them_lacks_is_not_drawn(tmp_path, pair):
    """No figure is made of nothing."""
    make(tmp_path / "none", [shard("a", toxicity_screen=None)])
    assert not [one for one in overlays(load_manifest(tmp_path / "none"), pair[1]) if isinstance(one, Figure)]


def test_tokens_of_two_tokenizers_are_not_drawn_over_each_other(pair, monkeypatch):
    """Ranks and lengths would say nothing; the page says why."""
    monkeypatch.setattr("dataaudit.present.report.overlays.tokenizer_of", id)
    blocks = overlays(*pair)
    assert isinstance(blocks[0], Prose)
    assert [one.id for one in blocks[1:]] == ["chart-screen-before"]
