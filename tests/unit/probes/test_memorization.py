"""What a model knows by heart is found, by source and by how often it stands in training; what it never saw is not."""

import numpy as np
import pytest
from probe_world import END, Memory
from reference.probes import occurrences

torch = pytest.importorskip("torch", reason="models are of torch")
from dataaudit.base.errors import ManifestError  # noqa: E402
from dataaudit.probes import Decoding, Memorization, ProbeModel, ProbeSuite  # noqa: E402
from dataaudit.probes.memorization import IndexMatcher, ScanMatcher  # noqa: E402

pytestmark = pytest.mark.torch


def known(world, *times):
    """Return a model that knows the canaries that were planted so many times."""
    texts = [world.tokenizer.encode(text) for own in times for text in world.canaries[own]]
    return ProbeModel(Memory(texts), world.tokenizer, context=400)


def canaries(world, matcher=None, **more):
    """Return the probe of all canaries, and of texts that were never planted."""
    texts = [*world.unseen, *(text for own in world.canaries.values() for text in own)]
    documents = world.corpus.sample(held_out=False).documents
    return Memorization(
        rows=tuple(world.tokenizer.encode(text) for text in texts),
        sources=["code"] * len(texts),
        drawn=np.ones(len(texts), bool),
        matcher=matcher or ScanMatcher(documents),
        unprompted=4,
        free_decoding=Decoding(tokens=80, temperature=0.0),
        **more,
    )


def test_canaries_are_found_by_how_often_they_stand_in_training(world):
    report = ProbeSuite([canaries(world)]).run(known(world, 4, 16), 1)
    for stat in ("value", "extracted"):
        shares = {
            times: report.get("memorization_rate", stat, prompted="yes", times=times).value
            for times in ("0", "1", "4-15", "16-63")
        }
        assert shares == {"0": 0.0, "1": 0.0, "4-15": 1.0, "16-63": 1.0}
    assert report.get("memorization_rate", prompted="yes").value == 0.5
    assert report.get("memorization_rate", "times_trend_p", prompted="yes").value < 0.01


def test_what_is_written_without_a_prompt_is_found(world):
    """The model begins with a canary whenever it is asked."""
    model = known(world, 16)
    first = tuple(world.tokenizer.encode(world.canaries[16][0]).tolist())
    model.model.next[()] = first[0]
    report = ProbeSuite([canaries(world)]).run(model, 1)
    assert report.get("memorization_rate").value == 1.0
    assert report.get("memorization_rate", "outputs").low > 0.3
    assert ProbeSuite([canaries(world)]).run(known(world), 1).get("memorization_rate").value == 0.0


def test_the_index_finds_what_has_fifty_words(world):
    """The scan and the index agree on long documents; the index counts no more than there is."""
    documents = world.corpus.sample(held_out=False).documents
    scan = ScanMatcher(documents)
    index = IndexMatcher(world.manifest, documents, world.tokenizer)
    texts = [text for text in world.train["web"] if len(text.split()) >= 63][:3]
    rows = [world.tokenizer.encode(text) for text in (*texts, world.unseen[0], world.canaries[1][0])]
    exact, least = scan.counts(rows), index.counts(rows)
    plain = [list(text.encode()) for own in world.train.values() for text in own]
    for row, own in zip(rows, exact, strict=True):
        assert own[::37].tolist() == [occurrences(row[at : at + 50].tolist(), plain) for at in range(0, len(own), 37)]
    for row in range(3):
        assert least[row].min() >= 1
        assert (least[row] <= exact[row]).all()
    assert least[3].max() == 0
    assert (scan.method, index.method) == ("exact", "at_least")


def test_the_probe_of_a_manifest_takes_repeated_documents_too(world):
    probe = Memorization.of(world.corpus, prompts=6, unprompted=2)
    assert probe.drawn.sum() == 6
    report = ProbeSuite([probe]).run(known(world, 4, 16), 1)
    assert report.get("memorization_rate", "extracted", prompted="yes", times="16-63").value == 1.0
    again = Memorization.of(world.corpus, prompts=6, unprompted=2, through="index")
    assert again.artifacts(known(world)).differing(probe.artifacts(known(world))) == ("harness",)


def test_documents_that_were_chosen_since_they_are_repeated_are_no_source(world):
    """They were a source without a name and without a unit, so each corpus with repeats ended with exit code 3."""
    report = ProbeSuite([Memorization.of(world.corpus, prompts=6, unprompted=2)]).run(known(world, 4, 16), 1)
    assert "" not in {number.scope.get("source") for number in report.numbers}
    assert not report.not_evaluated


def test_a_short_context_leaves_the_prompt_whole(world):
    """The continuation had its 100 tokens, and of a context of 128 the prompt kept 28, with no word of it."""
    texts = [world.tokenizer.encode(text) for text in world.canaries[16]]

    def report(context):
        return ProbeSuite([canaries(world)]).run(ProbeModel(Memory(texts), world.tokenizer, context=context), 1)

    assert report(101).get("memorization_rate", "extracted", prompted="yes", times="16-63").value == 1.0
    assert report(100).get("memorization_rate", prompted="yes").reason == "context_below_101"
    assert report(100).get("memorization_rate").value is not None
    artifacts = [
        Memorization.of(world.corpus, prompts=2).artifacts(ProbeModel(Memory([]), world.tokenizer, context=context))
        for context in (160, 257, 400)
    ]
    assert artifacts[0].differing(artifacts[2]) == ("decoding",), "its outputs without a prompt are shorter"
    assert artifacts[1] == artifacts[2]


def test_a_manifest_without_an_index_says_how_to_build_it(world, tmp_path):
    documents = world.corpus.sample(held_out=False).documents
    with pytest.raises(ManifestError):
        IndexMatcher(tmp_path, documents, world.tokenizer)


def test_personal_data_and_secrets_in_outputs_are_counted(world):
    """Their text stands in no report."""
    texts = [text[:50] + " mail ana.lopez@posteo.de card 4012 8888 8888 1881 now" for text in world.unseen]
    rows = [world.tokenizer.encode(text) for text in texts]
    report = ProbeSuite([canaries(world)]).run(ProbeModel(Memory(rows), world.tokenizer, context=400), 1)
    assert report.get("pii_hit_rate", text="outputs").value == pytest.approx(3 / 16)
    assert report.get("pii_hit_rate", "per_million", text="outputs").value > 0
    assert report.get("secret_hit_rate", text="outputs").value == 0
    assert "posteo" not in str(report.document())


def test_a_tokenizer_without_an_end_cannot_begin(world):
    from dataaudit.probes import Tokenizer

    report = ProbeSuite([canaries(world)]).run(ProbeModel(Memory([]), Tokenizer.of_bytes(), context=400), 1)
    assert report.get("memorization_rate").reason == "no_end_token"


def test_outputs_do_not_depend_on_batches(world):
    heads = [world.tokenizer.encode(text)[:20] for text in (*world.unseen, *world.canaries[4])]
    made = [
        ProbeModel(Memory(heads), world.tokenizer, context=400, batch_tokens=size).continued(
            heads, range(6), Decoding(tokens=12, seed=3)
        )
        for size in (1, 10_000)
    ]
    assert [row.tolist() for row in made[0]] == [row.tolist() for row in made[1]]
    assert all(END not in row for row in made[0])
