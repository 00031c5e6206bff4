"""What tests of orders share: files of two splits with their maps, the command, labels by the documents."""

import json

import numpy as np
from click.testing import CliRunner
from made_tokens import Corpus

from dataaudit import cli
from dataaudit.runlog.reader import load_run


def call(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(cli.main, [str(one) for one in arguments], env={"COLUMNS": "200"})


class Tokenized(Corpus):
    """A corpus whose documents stand in token files of two splits.

    Args:
        folder: Where to make it.
        number: Documents of a shard.
        more: As of :class:`made_tokens.Corpus`.
    """

    def __init__(self, folder, number, **more):
        super().__init__(folder, number, **more)
        how = ("--format", "megatron", "--workers", 0, "--quiet", "--split", "train", "--split", "val")
        done = call("tokenize", self.manifest, "--out", folder / "tokens", *how)
        assert done.exit_code == 0, done.output
        self.files = [folder / "tokens/train.bin", folder / "tokens/val.bin"]
        self.tokens = [np.fromfile(one, "<u2").tolist() for one in self.files]
        text = [json.loads(line)["text"] for line in (folder / "data/v.jsonl").read_bytes().splitlines()]
        self.every = {**self.texts, "val/data/v.jsonl": text}

    def sequences(self, file):
        """Return the tokens of each document of a file, the end token with them."""
        raw = self.files[file].with_suffix(".idx").read_bytes()
        number = int.from_bytes(raw[18:26], "little")
        stops = np.cumsum(np.frombuffer(raw[34 : 34 + 4 * number], "<i4")).tolist()
        return [self.tokens[file][start:stop] for start, stop in zip([0, *stops], stops, strict=False)]

    def reconstruct(self, run, *options, file=(0,), expect=0):
        """Reconstruct; return what the command printed."""
        named = [part for one in file for part in ("--file", self.files[one])]
        done = call("reconstruct", run, "--manifest", self.manifest, *named, *options, "--json")
        assert done.exit_code == expect, done.output
        return json.loads(done.stdout) if not expect else done.output

    def labels(self, run):
        """Return, by step, the labels of each row, read from the documents that the stretches name."""
        shards, found = list(self.every), {}
        stretches = load_run(run).table("stretches").to_pylist()
        for one in stretches:
            text = self.every[shards[one["shard"]]][one["row"]]
            tokens = [*self.encode(text), self.end][one["offset"] : one["offset"] + one["targets"]]
            assert len(tokens) == one["targets"]
            row = found.setdefault(one["step"], {}).setdefault(one["batch_row"], [])
            assert len(row) == one["start"]
            row += tokens
        self.stretches = len(stretches)
        return {step: [rows[at] for at in sorted(rows)] for step, rows in found.items()}
