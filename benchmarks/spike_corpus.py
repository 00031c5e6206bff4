"""Real text for the study of spikes, in blocks, and the faults that are planted in some of them.

Shards are of one source each: prose and tables of documentation, code, manual pages, manual pages in other languages.
Some blocks are clean and hard: checksums, tables and Korean among prose, Japanese, Chinese and Ukrainian among the
languages of western Europe, numbers among code. Faults are planted where tokens are read, at equal length, so that a
run with a fault and one without read the same documents in the same order at the same places.
"""

from __future__ import annotations

import gzip
import json
import random
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dataaudit.training import Documents, PackedDocuments
from dataaudit.training.packing import ROW, SHARD, START, UNUSED

BLOCK_ROWS, BLOCKS = 8, 8
"""Documents of a block, blocks of a shard."""
SHARDS = {"prose": 27, "code": 14, "man": 11, "languages": 10, "tables": 4}
DOCUMENT_BYTES = (180, 420)
FAULTS = (
    "random bytes",
    "shuffled tokens",
    "one token repeated",
    "off-by-one labels",
    "wrong language",
    "boilerplate",
    "mislabelled source",
)
DECOYS = {"prose": ("checksums", "tables", "ko"), "code": ("numbers", "tables")}
"""Clean and hard blocks: one of each kind in a shard of its own of this source."""
WESTERN = ("de", "fr", "nl", "pt", "sv", "es", "it", "pl", "da", "ro")
RARE = ("ja", "zh_CN", "uk", "ru")


def write_corpus(out: Path, documentation: Path, manuals: Path, checksums: Path) -> dict[str, list[list[int]]]:
    """Write shards of documents as JSON lines, each with its source in its name.

    Args:
        out: Folder of the shards.
        documentation: Folder of documentation, as /usr/share/doc.
        manuals: Folder of manual pages, with one of each language beside those of sections, as /usr/share/man.
        checksums: Folder of files ``*.md5sums``.

    Returns:
        Places of decoys, by kind: [shard, block], shards as the manifest counts them.
    """
    shuffled = random.Random(0)
    texts = {
        "prose": _pieces(_files(documentation, "*", shuffled)),
        "code": _pieces(_files(Path(sysconfig.get_paths()["stdlib"]), "*.py", shuffled)),
        "man": _pieces(_files(manuals, "man[1-8]/*.gz", shuffled)),
        "tables": _pieces(_files(documentation, "*", shuffled), table=True),
        "checksums": _pieces(_files(checksums, "*.md5sums", shuffled), table=True),
        "numbers": _numbers(shuffled),
        "ko": _pieces(_files(manuals, "ko/man*/*", shuffled)),
    }
    languages = [*WESTERN[: SHARDS["languages"] - len(RARE)], *RARE]
    for one in languages:
        texts[one] = _pieces(_files(manuals, f"{one}/man*/*", shuffled))
    names = [source for source, number in SHARDS.items() for _ in range(number)]
    shuffled.shuffle(names)
    decoys: dict[str, list[list[int]]] = {}
    met = dict.fromkeys(SHARDS, 0)
    for place, source in enumerate(names):
        own = languages[met[source] % len(languages)] if source == "languages" else source
        kinds = [own] * BLOCKS
        turn = met[source] - 2
        if 0 <= turn < 2 * len(DECOYS.get(source, ())) and turn % 2 == 0:
            block, kind = shuffled.randrange(BLOCKS), DECOYS[source][turn // 2]
            kinds[block] = kind
            decoys.setdefault(f"{kind} in {source}", []).append([place, block])
        if own in RARE:
            decoys[f"{own} in {source}"] = [[place, block] for block in range(BLOCKS)]
        met[source] += 1
        documents = [next(texts[kind]) for kind in kinds for _ in range(BLOCK_ROWS)]
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"part-{place:03d}-{source}.jsonl"
        path.write_text("".join(json.dumps({"text": one}) + "\n" for one in documents))
    return decoys


def _files(folder: Path, pattern: str, shuffled: random.Random) -> list[Path]:
    """Return files of a folder, real ones, in an order of their own."""
    found = sorted(path for path in folder.rglob(pattern) if path.is_file() and not path.is_symlink())
    shuffled.shuffle(found)
    return found


def _pieces(paths: list[Path], *, table: bool = False) -> Iterator[str]:
    """Yield pieces of files, cut at ends of lines; of a file eight at most, each once; tables alone, or no tables."""
    random_lengths = random.Random(1)
    seen: set[str] = set()
    for path in paths:
        try:
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data)[:200_000].decode("utf-8")
        except (OSError, UnicodeDecodeError, EOFError, zlib.error):
            continue
        taken, piece = 0, ""
        wanted = random_lengths.randint(*DOCUMENT_BYTES)
        for line in text.splitlines(keepends=True):
            piece += line
            if len(piece.encode()) < wanted:
                continue
            piece = piece.encode()[: DOCUMENT_BYTES[1]].decode("utf-8", "ignore").strip()
            letters = sum(one.isalpha() or one.isspace() for one in piece) / max(1, len(piece))
            if piece[:80] not in seen and (letters < 0.6) == table and len(piece) > 40:
                seen.add(piece[:80])
                taken += 1
                yield piece
            piece, wanted = "", random_lengths.randint(*DOCUMENT_BYTES)
            if taken == BLOCK_ROWS:
                break


def _numbers(shuffled: random.Random) -> Iterator[str]:
    """Yield code that is all numbers."""
    while True:
        row = [f"0x{shuffled.getrandbits(32):08x}" for _ in range(24)]
        yield "    " + ", ".join(row) + ","


def shuffle_buffer(starts: np.ndarray, size: int, epochs: int, seed: int) -> np.ndarray:
    """Return documents as a buffer gives them out of which one is drawn as the next comes in, shards at random.

    Args:
        starts: int64[shards + 1] first document of each shard.
        size: Documents that the buffer holds.
        epochs: Passes.
        seed: Decides the order.

    Returns:
        int64[documents * epochs]
    """
    drawn = random.Random(seed)
    found: list[int] = []
    for _ in range(epochs):
        held: list[int] = []
        for shard in drawn.sample(range(len(starts) - 1), len(starts) - 1):
            for one in range(int(starts[shard]), int(starts[shard + 1])):
                held.append(one)
                if len(held) > size:
                    place = drawn.randrange(len(held))
                    held[place], held[-1] = held[-1], held[place]
                    found.append(held.pop())
        drawn.shuffle(held)
        found += held
    return np.array(found, dtype=np.int64)


class Faulty(Documents):
    """Documents of which those of some blocks are spoilt where they are read, each at its own length."""

    fault = ""
    blocks: frozenset[tuple[int, int]] = frozenset()
    seed = 0

    def spoil(self, fault: str, blocks: list[tuple[int, int]], seed: int) -> None:
        """Choose what is planted, and where."""
        self.fault, self.blocks, self.seed = fault, frozenset(blocks), seed
        others = {"wrong language": "ja", "mislabelled source": "code"}
        self._pool = self._of_other(others[fault]) if fault in others else np.zeros(0, np.uint8)
        prose = [self.tokens_of(index) for index in range(len(self)) if self._source(index) == "prose"][:50]
        self._text = max(prose, key=len)

    def tokens(self, index: int) -> np.ndarray:
        """Return the tokens of a document, with the end token, as they are trained on."""
        found = self.tokens_of(index)
        shard, row, _ = self.places([index])[0]
        if (shard, row // BLOCK_ROWS) not in self.blocks or self.fault in ("", "off-by-one labels"):
            return found
        drawn = np.random.default_rng([self.seed, index])
        body, size = found[:-1], len(found) - 1
        if self.fault == "random bytes":
            body = drawn.integers(1, 256, size)
        elif self.fault == "shuffled tokens":
            body = drawn.permutation(body)
        elif self.fault == "one token repeated":
            body = np.full(size, int(body[0]))
        elif self.fault == "boilerplate":
            body = np.resize(self._text[:-1], size)
        else:
            start = int(drawn.integers(0, len(self._pool) - size))
            body = self._pool[start : start + size]
        return np.append(body, found[-1]).astype(found.dtype)

    def tokens_of(self, index: int) -> np.ndarray:
        """Return the tokens of a document as they were audited."""
        return super().tokens(index)

    def _source(self, index: int) -> str:
        return str(self.corpus.sources[self.places([index])[0][2]])

    def _of_other(self, name: str) -> np.ndarray:
        """Return tokens of code, or of a language."""
        if name == "code":
            chosen = [index for index in range(len(self)) if self._source(index) == "code"]
        else:
            chosen = [index for index in range(len(self)) if self._source(index) == "languages"]
            chosen = [one for one in chosen if (self.tokens_of(one)[:-1] >= 0xE3).mean() > 0.2]
        return np.concatenate([self.tokens_of(one)[:-1] for one in chosen[-64:]])


class Rows(PackedDocuments):
    """Packed rows of them, whose labels are one too far where that is the fault; and a shuffle buffer."""

    documents: Faulty

    def buffer(self, size: int, seed: int) -> None:
        """Put the documents in the order of a shuffle buffer over shards that are drawn at random."""
        epochs = len(self.order) // len(self.documents)
        self.order = shuffle_buffer(self.documents.starts, size, epochs, seed)
        self.ends = np.cumsum(self.documents.lengths[self.order])

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Return a row."""
        row = super().__getitem__(index)
        if self.documents.fault != "off-by-one labels":
            return row
        tags, labels = row["tags"], row["labels"].copy()
        used = tags[tags[:, SHARD] != UNUSED]
        stops = [*used[1:, START].tolist(), len(labels)]
        for stretch, stop in zip(used.tolist(), stops, strict=True):
            if (stretch[SHARD], stretch[ROW] // BLOCK_ROWS) in self.documents.blocks:
                labels[stretch[START] : stop] = np.roll(labels[stretch[START] : stop], -1)
        return row | {"labels": labels}
