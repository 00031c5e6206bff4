"""Small corpora for tests of near-duplicates: documents in shards, every join run on them, and the truth beside it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import places_of, rows_of, shards_of
from dataaudit.metrics.near_dup.candidates import (
    CANDIDATES,
    CLASS_MEMBERS,
    CROWDS,
    CUT,
    DROPPED,
    HELD_OUT_CUT,
    KEYED_CANDIDATES,
    MEMBERS,
    MET,
    MISSED,
    PAIRS,
    SKETCHED,
    BandJoin,
    CrowdJoin,
    PairJoin,
    SketchJoin,
    first_spread,
    link_classes,
    sketch_matrix,
)
from dataaudit.metrics.near_dup.clusters import Corpus, NearClusters, cluster
from dataaudit.metrics.near_dup.stage import NearDup
from dataaudit.metrics.near_dup.verification import (
    NO_BUCKET,
    VERIFIED,
    NearSets,
    NeighbourJoin,
    Recall,
    VerifyJoin,
    wanted_documents,
)
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.cross_shard.joins import LINK_FILES
from dataaudit.scan.cross_shard.keyed import NUM_BYTES, write_keyed
from dataaudit.scan.cross_shard.keyed import named as named_files
from dataaudit.scan.kernels.plain_words import text_shingles, words_of
from dataaudit.scan.kernels.words import split_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Texts of one split and source, cut into parts."""

    texts: list[str]
    split: int = 0
    source: str = "web"
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What every step of the search returned."""

    members: pa.Table
    candidates: pa.Table
    verified: pa.Table
    recall: Recall
    cut: pa.Table
    missed: int
    dropped: int
    clusters: NearClusters

    def pairs(self):
        """Return {((shard, row), (shard, row)): jaccard} of all reported pairs."""
        rows = self.clusters.pairs.to_pylist()
        return {
            ((row["left_shard"], row["left_row"]), (row["right_shard"], row["right_row"])): row["jaccard"]
            for row in rows
        }


def batch_of(texts, rows, source="web"):
    """Return documents as the scan shows them to a stage."""
    array = pa.array(texts, pa.large_string())
    offsets, values = text_buffers(array)
    return DocBatch(
        texts=array,
        rows=np.array(rows, dtype=np.int64),
        source_codes=np.zeros(len(texts), dtype=np.int32),
        source_names=(source,),
        annotations={"words": split_words(values, offsets)},
    )


def search(shards, folder: Path, stage: NearDup, *, held_out=(False,), partitions=1, bits=0) -> Search:
    """Emit, join, visit, verify and cluster."""
    folder.mkdir(exist_ok=True)
    parts = []
    for ordinal, shard in enumerate(shards):
        for start, stop in pairwise([0, *shard.cuts, len(shard.texts)]):
            batch = batch_of(shard.texts[start:stop], range(stop - start), shard.source)
            name = f"{ordinal}-{start}-{len(parts)}"
            for kind, table in stage.emit(batch).items():
                write_keyed(folder / f"{name}.{kind}", [table], stage.emits[kind])
            parts.append((name, ordinal, shard.split, start, batch))

    def files(*kinds):
        rows = [(part, kind) for kind in kinds for part in parts]
        columns = [
            [bytes(folder / f"{part[0]}.{kind}") for part, kind in rows],
            *([part[index] for part, _ in rows] for index in (1, 2, 3)),
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, LINK_FILES, strict=True)], schema=LINK_FILES)

    def join(function, given, emits=None, kind="x"):
        bounds = [NUM_BYTES * index // partitions for index in range(partitions + 1)]
        done, names = [], []
        for number, (start, stop) in enumerate(pairwise(bounds)):
            joined = function(given, start, stop)
            done.append(joined.tables)
            for name, schema in (emits or {}).items():
                path = folder / f"{kind}{number}.{name}"
                write_keyed(path, [joined.keyed[name]], schema)
                names.append(path)
        columns = [[bytes(path) for path in names], *([value] * len(names) for value in (-1, -1, 0))]
        made = pa.table([pa.array(c, f.type) for c, f in zip(columns, LINK_FILES, strict=True)], schema=LINK_FILES)
        return done, made

    def table(done, name, schema):
        return pa.concat_tables([schema.empty_table(), *(tables[name] for tables in done)])

    members = table(join(link_classes, files("documents"))[0], "members", CLASS_MEMBERS)
    by_bands = BandJoin(small=stage.small_bucket, met=stage.recall_documents, held_out=tuple(held_out))
    bands, formed = join(by_bands, files("bands"), {"pairs": PAIRS, "crowds": CROWDS}, "bands")
    values = stage.values()
    drawn = first_spread(table(bands, "met", MET)["place"].to_numpy(), stage.recall_documents)
    by_class = SketchJoin(values=values, drawn=tuple(np.sort(drawn).tolist()))
    sketches, members_of = join(
        by_class, pa.concat_tables([files("sketches"), formed]), {"members": MEMBERS}, "sketches"
    )
    by_crowds = CrowdJoin(values=values, held_out=tuple(held_out), limits=stage.limits())
    crowds, more = join(by_crowds, members_of, {"pairs": PAIRS}, "crowds")
    found = table(sketches, "drawn", SKETCHED).sort_by("place")
    chosen = np.searchsorted(found["place"].to_numpy(), drawn)
    by_sketch = NeighbourJoin(drawn, sketch_matrix(found["sketch"], values)[chosen], stage.threshold)
    neighbours, near = join(by_sketch, files("sketches"), {"candidates": KEYED_CANDIDATES}, "neighbours")
    by_pairs = PairJoin(limits=stage.limits(), values=values)
    paired = pa.concat_tables([named_files(formed, "pairs"), more])
    pairs, kept = join(by_pairs, paired, {"candidates": KEYED_CANDIDATES}, "pairs")
    candidates = pa.concat_tables([table(done, "candidates", CANDIDATES) for done in (pairs, neighbours)])
    of_crowds = table(crowds, "cut", HELD_OUT_CUT)
    earlier = of_crowds.append_column("is_later", pa.array(np.zeros(len(of_crowds), dtype=bool)))
    cut = pa.concat_tables([table(pairs, "cut", CUT), earlier])
    task, seen = NearSets(ngram=stage.ngram), []
    wanted = wanted_documents(candidates, cut["place"].to_numpy(), bits)
    for name, ordinal, _, start, batch in parts:
        rows = wanted["row"].to_numpy() - start
        own = (wanted["shard"].to_numpy() == ordinal) & (rows >= 0) & (rows < len(batch))
        asked = pa.table({"row": rows[own], "partition": wanted["partition"].to_numpy()[own]})
        chosen = np.unique(rows[own])
        found = task.run(
            batch_of(batch.texts.take(pa.array(chosen)).to_pylist(), chosen, batch.source_names[0]),
            asked,
            lambda texts: texts,
        )
        write_keyed(folder / f"{name}.sets", [found["sets"]], task.emits["sets"])
        places = places_of(np.full(len(chosen), ordinal), chosen + start)
        seen.append(pa.table({"place": places, "source": found["seen"]["source"]}))
    partitions = 1 << min(bits, 8)
    done, _ = join(VerifyJoin(bits=bits), pa.concat_tables([kept, near, files("sets")]))
    verified = table(done, "verified", VERIFIED)
    compared = verified.filter(pc.not_equal(verified["bands"], NO_BUCKET))
    is_near = compared["intersection"].to_numpy() / np.maximum(compared["union"].to_numpy(), 1) >= stage.threshold
    edges = compared.filter(pa.array(is_near))
    corpus = Corpus(
        split_of=np.array([shard.split for shard in shards], dtype=np.int32), held_out=np.array(held_out, dtype=bool)
    )
    return Search(
        members=members,
        candidates=candidates.filter(pc.not_equal(candidates["bands"], NO_BUCKET)),
        verified=compared,
        recall=Recall.of(
            drawn[: min(done["done"]["documents"][0].as_py() for done in neighbours)], verified, edges, stage.threshold
        ),
        cut=cut,
        missed=sum(table(crowds, "missed", MISSED)["missed"].to_pylist()),
        dropped=sum(table(pairs, "dropped", DROPPED)["dropped"].to_pylist()),
        clusters=cluster(members, edges, pa.concat_tables(seen), corpus, cut),
    )


def named(candidates):
    """Return {((shard, row), (shard, row))} of a table of places."""
    sides = []
    for side in ("left", "right"):
        places = candidates[side].to_numpy()
        sides.append(zip(shards_of(places).tolist(), rows_of(places).tolist(), strict=True))
    return set(zip(*sides, strict=True))


@cache
def _shingles(text, ngram):
    return frozenset(text_shingles([word.text for word in words_of(text)], ngram))


def true_similarity(left, right, ngram=5):
    """Return the Jaccard similarity of two texts, in plain Python."""
    first, second = _shingles(left, ngram), _shingles(right, ngram)
    return len(first & second) / len(first | second) if first | second else 0.0


def random_words(generator: random.Random, vocabulary, count):
    """Return a list of random words."""
    return [generator.choice(vocabulary) for _ in range(count)]


def edited(generator: random.Random, words, vocabulary, changes):
    """Return words with some of them replaced, left out, put in or moved."""
    words = list(words)
    for _ in range(changes):
        place = generator.randrange(len(words))
        kind = generator.randrange(4)
        if kind == 0:
            words[place] = generator.choice(vocabulary)
        elif kind == 1 and len(words) > 6:
            del words[place]
        elif kind == 2:
            words.insert(place, generator.choice(vocabulary))
        else:
            words = words[place:] + words[:place]
    return words
