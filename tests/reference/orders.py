"""Orders of other trainers from their published formats, in plain Python: whole streams, cut; no index arithmetic."""

import hashlib
import json
import random
import struct


def megatron_set(folder, name, documents, *, context, epochs, seed, extra=1, apart=False, kind="train"):
    """Write the cached indices of a data set as Megatron names them; return what the samples hold, in reading order.

    Args:
        folder: The cache.
        name: Path of the token file without its suffix.
        documents: Tokens of each sequence.
        context: Labels of a sample.
        epochs: Passes.
        seed: Of the shuffles.
        extra: Tokens of a sample beyond its labels.
        apart: Whether the last pass is shuffled by itself.
        kind: Split.

    Returns:
        Tokens of each sample, and the description.
    """
    draw = random.Random(seed)
    groups = [epochs - 1, 1] if apart else [epochs]
    index = []
    for number in groups:
        some = [one for _ in range(number) for one in range(len(documents))]
        draw.shuffle(some)
        index += some
    stream = [(place, at, token) for place, one in enumerate(index) for at, token in enumerate(documents[one])]
    number = (len(stream) - extra) // context
    samples = [[token for *_, token in stream[at * context : (at + 1) * context + extra]] for at in range(number)]
    begins = [stream[at * context][:2] if at * context < len(stream) else None for at in range(number + 1)]
    # Megatron ends a sample inside of its last document: with no extra token, behind that document's last one.
    if not extra:
        begins = [(0, 0)]
        for at in range(1, number + 1):
            place, token, _ = stream[at * context - 1]
            begins.append((place, token + 1))
    whole = (sum(map(len, documents)) * (epochs - 1) - extra) // context if apart else number
    orders = [list(range(whole)), list(range(whole, number))]
    for one in orders:
        draw.shuffle(one)
    shuffle = orders[0] + orders[1]
    said = {
        "class": "GPTDataset",
        "dataset_path": str(name),
        "num_samples": number,
        "index_split": kind,
        "random_seed": seed,
        "sequence_length": context,
    }
    prefix = _described(folder, said, "GPTDataset", kind)
    for what, values, width in (
        ("document_index", index, "i4"),
        ("sample_index", begins, "i4"),
        ("shuffle_index", shuffle, "u4"),
    ):
        _save(folder / f"{prefix}-{what}.npy", values, width)
    return [samples[one] for one in shuffle], said


def megatron_blend(folder, sets, weights, size, kind="train"):
    """Write the cached index of a blend; return the tokens of its samples.

    Args:
        folder: The cache.
        sets: What :func:`megatron_set` returned for each.
        weights: Of each; together 1.
        size: Samples.
        kind: Split.
    """
    taken, of, sample = [0] * len(sets), [], []
    for at in range(size):
        lacks = [weight * max(at, 1.0) - done for weight, done in zip(weights, taken, strict=True)]
        one = lacks.index(max(lacks))
        of.append(one)
        sample.append(taken[one])
        taken[one] += 1
    said = {"class": "BlendedDataset", "datasets": [said for _, said in sets], "split": kind, "weights": weights}
    prefix = _described(folder, said | {"size": size}, "BlendedDataset", kind)
    _save(folder / f"{prefix}-dataset_index.npy", of, "i2")
    _save(folder / f"{prefix}-dataset_sample_index.npy", sample, "i8")
    return [sets[one][0][at] for one, at in zip(of, sample, strict=True)]


def _save(path, values, kind):
    """Write whole numbers, or pairs of them, as NumPy's files of version 1.0 hold them (numpy.lib.format)."""
    pairs = bool(values) and isinstance(values[0], tuple)
    flat = [number for one in values for number in one] if pairs else values
    shape = (len(values), 2) if pairs else (len(values),)
    head = str({"descr": f"<{kind}", "fortran_order": False, "shape": shape}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    letter = {"i2": "h", "i4": "i", "u4": "I", "i8": "q"}[kind]
    numbers = struct.pack(f"<{len(flat)}{letter}", *flat)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + numbers)


def _described(folder, said, name, kind):
    text = json.dumps(said, indent=4)
    prefix = f"{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}-{name}-{kind}"
    (folder / f"{prefix}-description.txt").write_text(text)
    return prefix


def ramped(first, increment, samples, last, micro, steps):
    """Return (first sample, samples) of each step as Megatron ramps its batch up, rounded down to micro-batches."""
    consumed, found = 0, []
    for _ in range(steps):
        size = last
        if consumed <= samples:
            each = samples / ((last - first) / increment)
            done = 0
            while (done + 1) * each <= consumed:
                done += 1
            size = first + done * increment
        size -= size % micro
        found.append((consumed, size))
        consumed += size
    return found


def olmo_rows(files, context, chunk=1):
    """Return the rows of OLMo-core's data set: of each file's tokens, whole chunks of rows from its beginning on."""
    rows = []
    for tokens in files:
        kept = len(tokens) // (context * chunk) * chunk
        rows += [tokens[at * context : (at + 1) * context] for at in range(kept)]
    return rows


def titan_rows(documents, context, batch, ranks, number, orders):
    """Return labels of torchtitan's samples: of each micro-batch, rows of the first rank, of the second, ...

    Args:
        documents: Tokens of each, as the loader encodes them.
        context: Labels of a row.
        batch: Rows of a rank's micro-batch.
        ranks: How many there are.
        number: Samples.
        orders: From (documents of a rank, pass) to their order.
    """
    each, begin = [], 0
    for rank in range(ranks):
        size = len(documents) // ranks + (rank < len(documents) % ranks)
        own, labels, epoch = documents[begin : begin + size], [], 0
        while len(labels) < number // ranks * context:
            labels += [token for one in orders(size, epoch) for token in own[one][1:]]
            epoch += 1
        each.append([labels[at * context : (at + 1) * context] for at in range(number // ranks)])
        begin += size
    return [
        row
        for micro in range(number // ranks // batch)
        for rank in each
        for row in rank[micro * batch : (micro + 1) * batch]
    ]
