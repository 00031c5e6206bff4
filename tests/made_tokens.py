"""A corpus of some thousand documents with a small tokenizer, its manifest, and token files written by no code of ours.

The writers are the slow twins of `dataaudit.scan.corpus.token_files`: plain Python after what Megatron's reader reads.
"""

import gzip
import json
import random
import struct
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dataaudit import api

END = "<|endoftext|>"
OFF = dict.fromkeys(("near_dup", "toxicity", "pii", "secrets", "repeats", "filters", "language"), False)
CODES = {"uint16": (8, "H"), "int32": (4, "i"), "uint32": (None, "I")}
_WORDS = [
    "data", "shard", "token", "loss", "batch", "train", "audit", "leak", "split", "drift", "gate", "quarantine",
    "license", "model", "tensor", "café", "中文",
]  # fmt: skip


def texts(number, seed):
    """Return documents that all differ."""
    draw = random.Random(seed)
    return [f"{seed}-{one} " + " ".join(draw.choices(_WORDS, k=draw.randrange(8, 40))) for one in range(number)]


class Corpus:
    """Files, a manifest ``m`` and the tokens of every document, encoded by `tokenizers` alone.

    Three shards to train on: lines, compressed lines, and Parquet of several row groups; and one that is held out. Some
    texts stand more than once, some are empty, and one holds the end token's name.

    Args:
        folder: Where to make it.
        number: Documents of a shard.
        stages: Of the build; those that these texts say nothing to are left out.
    """

    def __init__(self, folder, number, stages=OFF):
        self.folder, self.manifest = folder, folder / "m"
        (folder / "data").mkdir(parents=True)
        every = [texts(number, seed) for seed in range(4)]
        every[0][5] = every[1][7] = every[1][9] = "the same text stands in more than one place of this corpus"
        every[0][11] = every[2][3] = ""
        every[1][20] = f"before {END} behind"
        for name, own in (("a.jsonl", every[0]), ("v.jsonl", every[3])):
            (folder / "data" / name).write_bytes(self._lines(own))
        (folder / "data/b.jsonl.gz").write_bytes(gzip.compress(self._lines(every[1]), mtime=0))
        table = pa.table({"text": every[2], "source": ["books"] * len(every[2])})
        pq.write_table(table, folder / "data/c.parquet", row_group_size=max(1, number // 4))
        self.texts = {
            f"train/data/{name}": own for name, own in zip(("a.jsonl", "b.jsonl.gz", "c.parquet"), every, strict=False)
        }
        self.tokenizer = self._train(every[0] + every[1])
        self.end = self.tokenizer.token_to_id(END)
        self.config = {
            "splits": {
                "train": {"paths": ["data/[abc].*"], "text": "text", "source": {"column": "source"}},
                "val": {"paths": ["data/v.jsonl"], "text": "text", "source": {"constant": "v"}, "held_out": True},
            },
            "tokenizer": "tiny.json",
            "stages": stages,
        }
        api.build(self.config, self.manifest, base=folder, workers=0, isolate=False)

    @staticmethod
    def _lines(own):
        return b"".join(json.dumps({"text": text, "source": "web"}).encode() + b"\n" for text in own)

    def _train(self, own):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        made.train_from_iterator(
            own, trainers.BpeTrainer(vocab_size=600, special_tokens=[END], initial_alphabet=alphabet)
        )
        made.save(str(self.folder / "tiny.json"))
        return made

    def encode(self, text):
        """Return the tokens of a text."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    @cached_property
    def _documents(self):
        found = [
            (f"{shard}:{row}", self.encode(text)) for shard, own in self.texts.items() for row, text in enumerate(own)
        ]
        return [(name, tokens) for name, tokens in found if tokens]

    def documents(self):
        """Return (name, tokens) of every document to train on that has any, in the manifest's order."""
        return list(self._documents)


def write_megatron(path, documents, dtype="uint16"):
    """Write a ``.bin`` and its ``.idx``; each of ``documents`` is a list of tokens, and one sequence."""
    code, letter = CODES[dtype]
    path.write_bytes(b"".join(struct.pack(f"<{len(one)}{letter}", *one) for one in documents))
    size = struct.calcsize(letter)
    at, pointers = 0, []
    for one in documents:
        pointers.append(at)
        at += len(one) * size
    head = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) + struct.pack("<B", code)
    counts = struct.pack("<QQ", len(documents), len(documents) + 1)
    lengths = struct.pack(f"<{len(documents)}i", *map(len, documents))
    places = struct.pack(f"<{len(documents)}q", *pointers)
    borders = struct.pack(f"<{len(documents) + 1}q", *range(len(documents) + 1))
    path.with_suffix(".idx").write_bytes(head + counts + lengths + places + borders)
    return path


def write_flat(path, documents, dtype="uint16"):
    """Write a flat file: documents, each with its end token, one after another."""
    letter = CODES[dtype][1]
    path.write_bytes(b"".join(struct.pack(f"<{len(one)}{letter}", *one) for one in documents))
    return path
