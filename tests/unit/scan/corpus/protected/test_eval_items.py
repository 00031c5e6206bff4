"""Which items are found in which texts, and by which rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protected_made import match, matcher, numbered

from dataaudit.metrics.overlap.link import can_be_judged
from dataaudit.scan.corpus.protected.eval_items import CONTEXT_WORDS, MOST_WORDS, SEED_TEXTS, Judged
from dataaudit.scan.corpus.protected.matching import RULES

QUESTION = (
    "A baker fills 12 trays with 30 rolls each, sells half of them before noon and gives 15 to a neighbour."
    " How many rolls are left in the shop?"
)
ANSWER = (
    "He bakes 12 * 30 = 360 rolls altogether. Half of these are sold, which leaves 180. After the gift there remain"
    " 165 rolls for the evening."
)
BEFORE = "Some page about other things entirely. " * 5
AFTER = " And then it goes on with more words that nobody protects. " * 5


def found(sets, text):
    """Return {(item, part): (tier, rule, the text found)} of one document."""
    rows = match(matcher(sets=sets), [text]).items
    return {
        (item, ("question", "answer", "both")[part]): (
            ("verbatim", "similar")[tier],
            RULES[rule],
            text.encode()[start:end].decode(),
        )
        for _, _, item, part, tier, rule, start, end, _, _ in rows.tolist()
    }


@pytest.mark.parametrize(
    "change",
    [
        str,
        str.upper,
        lambda text: text.replace(" ", "\n"),
        lambda text: text.replace(" ", "  \t "),
        lambda text: text.replace(",", " --").replace(".", ";").replace("*", "x")[:-1].replace("x", " "),
    ],
    ids=["as it is", "upper case", "re-wrapped", "other white space", "other punctuation"],
)
def test_an_item_is_verbatim_however_it_is_written(change):
    """Inside a longer page, in any case, wrap and punctuation."""
    rows = found([[(QUESTION, ANSWER)]], BEFORE + change(QUESTION) + " " + change(ANSWER) + AFTER)
    assert {key: row[:2] for key, row in rows.items()} == {
        (0, part): ("verbatim", "verbatim") for part in ("question", "answer", "both")
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("12", "17").replace("30", "8"),
        lambda text: text.replace("baker", "potter").replace("rolls", "bowls"),
        lambda text: text.replace("fills", "").replace("each", "each and every one"),
    ],
    ids=["numbers", "replaced words", "deleted and inserted words"],
)
def test_an_edited_item_is_similar(change):
    """Numbers and up to three words in ten may differ."""
    text = change(QUESTION)
    rows = found([[(QUESTION, None)]], BEFORE + text + AFTER)
    assert rows == {(0, "question"): ("similar", "similar", text[:-1])}


def test_a_rewritten_item_and_its_numbers_alone_are_not_found():
    """Half of the words, or a table of the same shape, is not enough."""
    words = QUESTION.split()
    half = " ".join(word if index % 2 else f"other{index}" for index, word in enumerate(words))
    assert found([[(QUESTION, ANSWER)]], BEFORE + half + AFTER) == {}
    sums = "1 + 2 = 3 and 4 + 5 = 9 and 6 + 7 = 13 so that the whole sum becomes 25 in the end of it"
    assert found([[(sums, None)]], "17 23 40 99 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23") == {}


def test_a_short_answer_needs_its_question():
    """The answer is found near the question, before or behind it, and nowhere else."""
    sets = [[(QUESTION, "165 rolls remain")]]
    assert found(sets, "165 rolls remain" + AFTER) == {}
    rows = found(sets, QUESTION + AFTER + "165 rolls remain.")
    assert rows[0, "answer"] == ("verbatim", "context", "165 rolls remain")
    assert rows[0, "both"][0] == "verbatim"
    assert (0, "answer") in found(sets, "165 rolls remain. " + QUESTION)
    assert (0, "answer") not in found(sets, QUESTION + " word" * 201 + " 165 rolls remain")


def test_the_words_of_a_question_are_not_its_answer():
    """An answer that stands inside the question is not found there."""
    sets = [[(QUESTION, "rolls each")]]
    assert set(found(sets, BEFORE + QUESTION + AFTER)) == {(0, "question")}


RIVER = "Which river flows through the town of Ulm?"


def test_short_texts_of_common_words_need_each_other():
    """A short question of common words is found with its answer near it, word for word."""
    sets = [[("What is the name of the river there?", "the Danube")]]
    text = "What is the name of the river there? It is the Danube."
    assert {key: row[1] for key, row in found(sets, BEFORE + text).items()} == {
        (0, part): "context" for part in ("question", "answer", "both")
    }
    assert found(sets, BEFORE + text.replace("Danube", "Rhine")) == {}
    assert found(sets, BEFORE + text.replace("name", "place")) == {}


def test_a_short_text_of_common_words_without_another_stands_alone():
    """Between line breaks, or the document's ends; the tags that break lines do, too."""
    text = "Which river flows through this town?"
    sets = [[(text, None)]]
    assert set(found(sets, f"Quiz\n{text}\nNext")) == {(0, "question")}
    assert set(found(sets, f"Quiz <li>{text}</li> Next")) == {(0, "question")}
    assert set(found(sets, text)) == {(0, "question")}
    assert found(sets, f"Say: {text}\nNext") == {}
    assert found(sets, f"Quiz\n{text} Next") == {}


@pytest.mark.parametrize("answer", [None, "the Danube", "b"])
@pytest.mark.parametrize(
    "text",
    [
        RIVER,
        "Who painted the ceiling of the Sistine Chapel?",
        "How many moons does the planet Neptune have orbiting around it?",
        "In welchem Jahr wurde die Frauenkirche in Dresden wieder geweiht?",
    ],
)
def test_a_short_question_with_rare_words_is_found_in_a_paragraph(text, answer):
    """Of 8 to 12 words, without its answer, wherever it stands; not with a word changed."""
    sets = [[(text, answer)]]
    assert found(sets, BEFORE + text + AFTER) == {(0, "question"): ("verbatim", "verbatim", text[:-1])}
    words = text.split()
    for place in range(len(words)):
        changed = " ".join([*words[:place], "other", *words[place + 1 :]])
        assert found(sets, BEFORE + changed + AFTER) == {}


def test_a_short_question_and_its_answer_are_both():
    """The answer near it is found as well, and the two together."""
    rows = found([[(RIVER, "the Danube")]], BEFORE + RIVER + " It is the Danube." + AFTER)
    assert {key[1]: row[1] for key, row in rows.items()} == {
        "question": "verbatim",
        "answer": "context",
        "both": "verbatim",
    }


def test_the_denominator_holds_what_is_found_wherever_it_stands():
    """Every item counted is found in a paragraph without its answer; every other one has its reason."""
    questions = [
        (RIVER, "the Danube"),
        ("Who painted the ceiling of the Sistine Chapel?", None),
        ("What is the name of the river there?", "the Danube"),
        ("What is the name of the river there now?", None),
        ("Why is that so?", "because"),
        (QUESTION, ANSWER),
    ]
    items = matcher(sets=[questions]).index.items
    counted = can_be_judged(items)
    for number, (question, _) in enumerate(questions):
        assert ((number, "question") in found([questions], BEFORE + question + AFTER)) == counted[number, 0]
    assert counted[:, 0].tolist() == [True, True, False, False, False, True]
    assert counted[:, 1].tolist() == [True, False, True, False, False, True]
    assert counted[:, 2].tolist() == [True, False, True, False, False, True]
    assert [Judged(int(code)).name for code in items.judged[:, 0]] == [
        "SHORT",
        "SHORT",
        "CONTEXT",
        "CONTEXT",
        "TOO_SHORT",
        "INDEXED",
    ]


def test_texts_are_judged():
    """By length, by what tells them from chance, and by what the item has beside them."""
    long, numbers = " ".join(numbered("w", 20)), " ".join(map(str, range(20)))
    items = [
        (long, "yes"),
        (long + " more", "the Danube river"),
        ("no", "yes"),
        (numbers, None),
        ("two words", long),
        (RIVER, None),
        ("Which river flows through this town?", None),
        ("???", None),
    ]
    judged = matcher(sets=[items]).index.items.judged
    assert [tuple(Judged(int(code)).name for code in row) for row in judged] == [
        ("INDEXED", "TOO_SHORT"), ("INDEXED", "CONTEXT"), ("TOO_SHORT", "TOO_SHORT"), ("TOO_SHORT", "ABSENT"),
        ("CONTEXT", "INDEXED"), ("SHORT", "ABSENT"), ("CONTEXT", "ABSENT"), ("TOO_SHORT", "ABSENT"),
    ]  # fmt: skip


def test_what_too_many_texts_share_is_boilerplate():
    """A text that others contain is found by nothing of its own; the others keep what is theirs."""
    frame = " ".join(numbered("frame", 14))
    items = [
        (frame, None),
        *((f"{frame} {' '.join(numbered(f'own{word}', 12))}", None) for word in numbered("n", SEED_TEXTS)),
    ]
    found_in = matcher(sets=[items])
    assert [Judged(int(code)).name for code in found_in.index.items.judged[:2, 0]] == ["BOILERPLATE", "INDEXED"]
    assert match(found_in, [frame]).items.tolist() == []
    assert match(found_in, [items[5][0]]).items[:, 2].tolist() == [5]


def test_repeated_items_count_once_and_shared_texts_for_each():
    """Items with the same words are one; one question with two answers is two items."""
    sets = [[(QUESTION, ANSWER), (QUESTION.upper(), ANSWER), (QUESTION, "forty two rolls")], [(QUESTION, None)]]
    items = matcher(sets=sets).index.items
    assert list(zip(items.sets.tolist(), items.numbers.tolist(), strict=True)) == [(0, 0), (0, 2), (1, 0)]
    assert {key for key, _ in found(sets, QUESTION).items()} == {(0, "question"), (1, "question"), (2, "question")}


def test_items_of_a_script_without_spaces():
    """Each character is a word; a page around it changes nothing."""
    question = (
        "\u9762\u5305\u5e08\u505a\u4e86\u5341\u4e8c\u76d8\u9762\u5305\uff0c"
        "\u6bcf\u76d8\u4e09\u5341\u4e2a\uff0c\u5356\u6389\u4e86\u4e00\u534a\u3002"
    )
    around = "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3002"
    assert found([[(question, None)]], around + question + around)[0, "question"][0] == "verbatim"


ARTICLE = " ".join(numbered("article", MOST_WORDS))


def test_texts_with_the_same_beginning_are_different_items():
    """Of two questions behind one long article, a page with the article and one of them holds that one verbatim."""
    ends = [" ".join(numbered(name, 12)) for name in ("first", "second")]
    sets = [[(f"{ARTICLE} {end}", None) for end in ends]]
    assert len(matcher(sets=sets).index.items.sets) == 2
    rows = found(sets, f"{BEFORE}{ARTICLE} {ends[1]}{AFTER}")
    assert {key: row[0] for key, row in rows.items()} == {(0, "question"): "similar", (1, "question"): "verbatim"}
    assert rows[1, "question"][2] == f"{ARTICLE} {ends[1]}"
    assert {row[0] for row in found(sets, BEFORE + ARTICLE + AFTER).values()} == {"similar"}


def test_a_long_text_is_verbatim_wherever_all_of_it_stands():
    """Its beginning alone, before that, hides nothing; a changed last word is no verbatim."""
    text = f"{ARTICLE} and one more"
    sets = [[(text, None)]]
    assert found(sets, f"{ARTICLE} {BEFORE} {text}")[0, "question"] == ("verbatim", "verbatim", text)
    assert found(sets, f"{ARTICLE} and one other")[0, "question"][0] == "similar"


def test_a_short_text_of_many_words_is_found_whole_or_not_at_all():
    """Few different words over and over are no long text; its beginning is none of it."""
    text = " ".join(["which river flows through ulm", *["7"] * MOST_WORDS, "end"])
    sets = [[(text, None)]]
    assert found(sets, f"Quiz\n{text}\nNext")[0, "question"] == ("verbatim", "alone", text)
    assert found(sets, f"Quiz\n{text.removesuffix(' end')}\nNext") == {}


def test_of_many_items_with_one_question_those_are_found_whose_answers_stand_near():
    """Behind the question or before it, at any place of the question, the whole answer."""
    stem = "Which of these rivers flows through the town of Ulm"
    names = numbered("the river n", 300)
    sets = [[(stem, name) for name in names] + [(stem, f"{names[7]} delta")]]
    text = f"{stem} {names[5]}. {'word ' * 300} {names[7]} or {stem} {names[9]} {'word ' * 200} {names[11]}"
    rows = found(sets, text)
    assert {item for item, part in rows if part == "answer"} == {5, 7, 9}
    assert rows[7, "answer"][2] == names[7]


LETTERS = [letter * 5 for letter in "abcdefgh"]


@given(
    document=st.lists(st.sampled_from(LETTERS), max_size=30),
    answers=st.lists(st.lists(st.sampled_from(LETTERS[:4]), min_size=1, max_size=3).map(" ".join), max_size=6),
    again=st.integers(0, 30),
)
def test_short_answers_are_those_that_a_plain_search_finds(document, answers, again):
    """Within the words around each place of the question."""
    stem = ["which", "river", "flows", "through", "the", "town", "of", "ulm"]
    words = [*document[:again], *stem, "x", *stem, *document[again:], *["far"] * 190, *document]
    rows = found([[(" ".join(stem), answer) for answer in dict.fromkeys(answers)]], " ".join(words))
    expected = set()
    for number, answer in enumerate(dict.fromkeys(answers)):
        own = answer.split()
        for start in (place for place in range(len(words)) if words[place : place + len(stem)] == stem):
            end = start + len(stem)
            for low, high in ((end, end + CONTEXT_WORDS), (max(0, start - CONTEXT_WORDS), start)):
                window = words[low:high]
                if any(window[place : place + len(own)] == own for place in range(len(window) - len(own) + 1)):
                    expected.add(number)
    assert {item for item, part in rows if part == "answer"} == expected


SEALS = "what did the harbour master of lindesnes write down about the seven grey seals?"
RIGHT = [
    "Orlanda Vreeswijk of Tavistock",
    "that it was Orlanda Vreeswijk of Tavistock",
    "ORLANDA  VREESWIJK, Tavistock",
]


@pytest.mark.parametrize("place", range(len(RIGHT)))
def test_each_accepted_answer_is_looked_for(place):
    """Joined to one text they would never be found; a document with any of them has the answer, once."""
    sought = matcher(sets=[[(SEALS, RIGHT), ("another question about something else entirely", ["no"])]])
    rows = match(sought, [f"{SEALS} {RIGHT[place]}.", "nothing of it"]).items
    parts = {tuple(row[[2, 3, 4]].tolist()) for row in rows}
    alone = match(matcher(sets=[[(SEALS, RIGHT[place])]]), [f"{SEALS} {RIGHT[place]}."]).items
    assert parts == {tuple(row[[2, 3, 4]].tolist()) for row in alone}
    assert {part for _, part, _ in parts} == {0, 1, 2}
    assert len(rows) == 3


def test_an_item_is_judged_by_the_best_of_its_answers():
    items = matcher(sets=[[(SEALS, ["no", " ".join(numbered("z", 14)), ""]), (SEALS, ["", "?"])]]).index.items
    assert items.owners.tolist() == [0, 0, 1]
    assert items.best_judged().tolist() == [[Judged.INDEXED, Judged.INDEXED], [Judged.INDEXED, Judged.ABSENT]]


@given(st.lists(st.lists(st.sampled_from(["a b c", "d e", "f"]), max_size=3), max_size=5))
def test_items_with_the_same_answers_in_any_order_are_one(listed):
    items = matcher(sets=[[(SEALS, answers) for answers in listed]]).index.items
    wanted = list(dict.fromkeys(frozenset(answers) for answers in listed))
    assert len(items.sets) == len(wanted)
    assert items.numbers.tolist() == [
        next(place for place, answers in enumerate(listed) if frozenset(answers) == accepted) for accepted in wanted
    ]
    assert np.bincount(items.owners, minlength=len(wanted)).tolist() == [max(1, len(accepted)) for accepted in wanted]
