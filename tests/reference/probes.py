"""Slow, plain references of the kernels of probes; they share no code with them."""

import itertools
import math


def softmax(row):
    """Return the probabilities of a row of logits, -inf among them."""
    top = max(row)
    weights = [math.exp(value - top) if value > -math.inf else 0.0 for value in row]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def entropy(row):
    """Return the entropy of a row of logits, nats."""
    return -math.fsum(p * math.log(p) for p in softmax(row) if p > 0)


def cross_entropy(row, target):
    """Return the loss of a target, nats."""
    return -math.log(softmax(row)[target])


def top_mass(row, k):
    """Return the mass of the k most likely tokens."""
    return math.fsum(sorted(softmax(row), reverse=True)[:k])


def divergence(now, before):
    """Return KL(now || before) of two rows of logits, nats."""
    pairs = zip(softmax(now), softmax(before), strict=True)
    return math.fsum(p * math.log(p / q) for p, q in pairs if p > 0)


def merged_divergence(now, before, k):
    """Return KL(now || before) where all tokens but the k most likely before are one."""
    p, q = softmax(now), softmax(before)
    top = sorted(range(len(q)), key=lambda token: -q[token])[:k]
    rest = [token for token in range(len(q)) if token not in top]
    pairs = [(p[token], q[token]) for token in top]
    if rest:
        pairs.append((math.fsum(p[token] for token in rest), math.fsum(q[token] for token in rest)))
    return math.fsum(a * math.log(a / b) for a, b in pairs if a > 0)


def occurrences(span, documents):
    """Return how often a list of tokens stands in documents."""
    size = len(span)
    return sum(document[at : at + size] == span for document in documents for at in range(len(document) - size + 1))


def window_losses(ids, context, end, loss):
    """Return the losses of the tokens of a document, one after another.

    ``loss(before, token)`` is that of a token after a list of tokens.
    """
    made = []
    start = 0
    carried = [] if end is None else [end]
    while start < len(ids):
        stop = min(len(ids), start + context - len(carried))
        for at in range(start, stop):
            before = carried + ids[start:at]
            if before:
                made.append(loss(before, ids[at]))
        start, carried = stop, [ids[stop - 1]]
    return made


def exact_auc(mine, theirs):
    """Return the chance that one of mine is above one of theirs."""
    pairs = list(itertools.product(mine, theirs))
    return math.fsum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)


def exact_trend(times, successes):
    """Return the one-sided p of Cochran and Armitage's sum, over all arrangements."""
    doses = [math.log(1 + time) for time in times]
    own = math.fsum(dose for dose, success in zip(doses, successes, strict=True) if success)
    sums = [math.fsum(chosen) for chosen in itertools.combinations(doses, sum(successes))]
    return sum(total >= own - 1e-9 for total in sums) / len(sums)
