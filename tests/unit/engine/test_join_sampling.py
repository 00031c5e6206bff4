"""The sample of a judge: which strata there are, and whose documents are drawn."""

from collections import Counter

import pytest
import strategies
from made_build import HereRunner, config, context_of, gathered, read_shards, write_partials, write_reading

from dataaudit.engine import join as joins
from dataaudit.engine.store import PartialStore
from dataaudit.manifest.locate import rows_of
from dataaudit.metrics.toxicity.stage import EDGES, Toxicity
from dataaudit.scan.cross_shard.sampling import Question, draw

GUESSES = {level: (level + 1) / 20 for level in range(-1, len(EDGES) + 1)}


def question(*, most=60, languages=("en",)):
    """Return what is asked for."""
    return Question(
        metric="data_toxicity_rate", half_width=0.001, most=most, languages=languages, guesses=GUESSES, salt=1
    )


@pytest.fixture
def context(tmp_path, monkeypatch):
    """Return a maker of linkings over shards of (text, source), all in English."""
    monkeypatch.setattr(strategies, "LANGUAGES", ("en",))

    def made(*shards, **more):
        (tmp_path / "state").mkdir(exist_ok=True)
        store = PartialStore(tmp_path / "state")
        read = [gathered(ordinal, documents) for ordinal, documents in enumerate(shards)]
        for shard, documents in zip(read, shards, strict=True):
            write_partials(store, shard.planned.parts[0], documents)
            write_reading(store, shard.planned.parts[0], records=len(documents))
        read = read_shards([shard.planned for shard in read], store)
        return context_of(Toxicity(), read, store, HereRunner(), config(**more))

    return made


def test_a_source_called_other_is_drawn_from_as_the_rest_is(context):
    """The stratum of small sources and a source of that very name are one; documents of both are drawn."""
    sources = ["web"] * 300 + ["other"] * 99 + ["tiny"]
    sampled = draw(context([(f"text number {index}", name) for index, name in enumerate(sources)]), question(most=200))
    assert sampled.frame.sources == ("web",)
    drawn = Counter(sources[row] for row in rows_of(sampled.places).tolist())
    assert sum(drawn.values()) == 200
    assert drawn["other"] > 20


def test_there_are_no_more_strata_than_can_be_looked_into(context):
    """Twenty sources of equal size and 14 documents to judge: few sources stand alone, and no stratum is left out."""
    documents = [(f"text number {index:03}", f"source{index % 20:02}") for index in range(400)]
    sampled = draw(context(documents), question(most=14))
    assert len(sampled.frame.sources) == 6
    assert sampled.documents.sum() == 400
    assert (sampled.plan.counts > 0).all()
    assert len(sampled.places) == 14


def test_sources_that_are_not_reported_by_name_have_no_rates_of_their_own(context):
    """`max_sources` holds for a judge too."""
    documents = [(f"text number {index:03}", ("web", "web", "books")[index % 3]) for index in range(90)]
    assert draw(context(documents), question()).frame.sources == ("books", "web")
    assert draw(context(documents, max_sources=1), question()).frame.sources == ("web",)


def test_without_a_document_nothing_is_drawn(context):
    """No shard was read: no strata, no sample."""
    sampled = draw(context(), question())
    assert (len(sampled.documents), len(sampled.places), sampled.unread) == (0, 0, 0)


def test_partitions_are_made_for_all_rows_that_are_joined(context, monkeypatch):
    """Documents in languages that the judge does not read lie in the same files, and count for their size."""
    monkeypatch.setattr(joins, "ROWS_PER_PARTITION", 50)
    world = context([("a text" * (1 + 20 * (index % 2)), "web") for index in range(400)])
    table = world.survey.by_split["toxicity", "strata"]
    languages = ["de" if index else "en" for index in range(table.num_rows)]
    assert "de" in languages
    place = table.schema.get_field_index("language")
    world.survey.by_split["toxicity", "strata"] = table.set_column(place, table.schema.field(place), [languages])
    draw(world, question())
    assert len(world.run.keywords["services"].runner.ran) == 8
