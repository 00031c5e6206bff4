"""How many planted items are found, by how they were edited, and how many clean documents are flagged."""

from __future__ import annotations

import random

import pytest
from protected_made import match, matcher

from dataaudit.scan.corpus.protected.ngram_index import MatchBatch

SCRIPTS = {
    "latin": "abcdefghijklmnopqrstuvwxyz",
    "cyrillic": "\u0430\u0431\u0432\u0433\u0434\u0435\u0436\u0437\u0438\u043a\u043b\u043c\u043d\u043e\u043f\u0440",
    "han": "".join(map(chr, range(0x4E00, 0x4E00 + 400))),
}
NUM_ITEMS = 120


def sentences(rng, script, words):
    """Return a text of so many words, of which some recur and some are numbers; Han is written without spaces."""
    letters = SCRIPTS[script]
    frequent = [rng.choice(letters) + (rng.choice(letters) if script != "han" else "") for _ in range(40)]
    made = []
    for place in range(words):
        if rng.random() < 0.06:
            made.append(str(rng.randrange(1, 5_000)))
        elif rng.random() < 0.4:
            made.append(rng.choice(frequent))
        else:
            made.append("".join(rng.choice(letters) for _ in range(1 if script == "han" else rng.randrange(3, 9))))
        if place % 12 == 11 and script != "han":
            made[-1] += "."
    return made


def joined(words, script):
    """Return words as they are written in a script."""
    return (" " if script != "han" else "").join(words)


def lines_of(words, script):
    """Return words as lines of seven; in Han no number may stand at an end, where the next one would join it."""
    lines = [[]]
    for word in words:
        digits = script == "han" and (word.isdigit() or (lines[-1] and lines[-1][-1].isdigit()))
        if len(lines[-1]) >= 7 and not digits:
            lines.append([])
        lines[-1].append(word)
    return lines


def replaced(rng, script, every):
    """Return a function that replaces one word in ten, at random or each tenth."""

    def edit(words):
        other = sentences(rng, script, len(words))
        return [
            new if (place % 10 == 9 if every else rng.random() < 0.1) else word
            for place, (word, new) in enumerate(zip(words, other, strict=True))
        ]

    return edit


@pytest.fixture(scope="module", params=sorted(SCRIPTS))
def world(request):
    """Items of 20 to 120 words in one script, a matcher for them, and clean documents."""
    rng = random.Random(7)
    items = [sentences(rng, request.param, rng.randrange(20, 120)) for _ in range(NUM_ITEMS)]
    pages = [sentences(rng, request.param, rng.randrange(50, 900)) for _ in range(300)]
    return request.param, items, pages, matcher(sets=[[(joined(words, request.param), None) for words in items]])


def recall(world, edit, *, inside, tier):
    """Return the share of items that are found in the pages they are planted in, and flags of other items."""
    script, items, pages, found = world
    rng = random.Random(11)
    texts = []
    for number, words in enumerate(items):
        page = pages[number % len(pages)]
        place = rng.randrange(len(page)) if inside else 0
        middle = edit(words)
        middle = middle if isinstance(middle, str) else joined(middle, script)
        gap = (" " if script != "han" else "\uff0c") if inside else "\n\n"
        texts.append(gap.join([joined(page[:place], script), middle, joined(page[place:], script)]))
    matches: MatchBatch = match(found, texts)
    rows = {(document, item) for document, _, item, _, own, *_ in matches.items.tolist() if own <= tier}
    wanted = {(number, number) for number in range(NUM_ITEMS)}
    return len(rows & wanted) / NUM_ITEMS, len(rows - wanted)


@pytest.mark.parametrize("inside", [False, True], ids=["apart", "inside a paragraph"])
@pytest.mark.parametrize("change", ["as it is", "re-cased", "re-wrapped"])
def test_every_verbatim_item_is_found(world, change, inside):
    """Recall 1.00, and no other item is flagged."""
    script = world[0]
    edit = {
        "as it is": lambda words: words,
        "re-cased": lambda words: joined(words, script).upper(),
        "re-wrapped": lambda words: "\n".join(joined(line, script) for line in lines_of(words, script)),
    }[change]
    assert recall(world, edit, inside=inside, tier=0) == (1.0, 0)


@pytest.mark.parametrize(
    ("edit", "least"), [("numbers", 1.0), ("each tenth", 0.97), ("random", 0.93), ("deleted", 0.95), ("inserted", 0.95)]
)
def test_edited_items_are_found(world, edit, least):
    """With other numbers, or one word in ten replaced, deleted or inserted, inside a paragraph."""
    script, rng = world[0], random.Random(13)
    edits = {
        "numbers": lambda words: [str(rng.randrange(9_999)) if word.isdigit() else word for word in words],
        "each tenth": replaced(rng, script, every=True),
        "random": replaced(rng, script, every=False),
        "deleted": lambda words: [word for word in words if rng.random() >= 0.1],
        "inserted": lambda words: [
            new for word in words for new in ([word, "w" * rng.randrange(1, 9)] if rng.random() < 0.1 else [word])
        ],
    }
    share, others = recall(world, edits[edit], inside=True, tier=1)
    assert share >= least
    assert others == 0


def test_clean_documents_are_not_flagged(world):
    """Not one of 300, in either tier."""
    script, _, pages, found = world
    assert len(match(found, [joined(page, script) for page in pages]).items) == 0
