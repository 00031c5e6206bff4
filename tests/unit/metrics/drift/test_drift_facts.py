"""What is said of drift: two questions, the same answer in the sentence, the mark, the colour and what stands out."""

import pyarrow as pa
import pytest

from dataaudit.base.render.blocks import Cell, Table
from dataaudit.base.render.line import PLAIN, spell
from dataaudit.metrics.drift import definition
from dataaudit.metrics.drift.definition import section

ABOVE, BELOW = 0.2, 0.03
CASES = {
    (ABOVE, 0.1): ("above 0.05, beyond chance", "above 0.05 nats and surely beyond chance", "warn"),
    (ABOVE, 0.001): ("above 0.05, beyond chance", "above 0.05 nats and surely beyond chance", "warn"),
    (ABOVE, -0.1): ("above 0.05, as chance could give", "above 0.05 nats, but chance alone could give it", ""),
    (ABOVE, None): ("above 0.05, chance not known", "above 0.05 nats; how much chance gives is not known", "warn"),
    (BELOW, 0.01): ("beyond chance, not above 0.05", "surely beyond chance, but not above 0.05 nats", ""),
    (BELOW, -0.01): ("", "not above 0.05 nats", ""),
    (BELOW, None): ("", "not above 0.05 nats", ""),
    (0.05, 0.04): ("beyond chance, not above 0.05", "surely beyond chance, but not above 0.05 nats", ""),
}


class NoTokens:
    """A manifest whose table of drift is empty."""

    def table(self, _):
        """Return no row."""
        return pa.table({name: pa.array([], pa.string()) for name in ("split", "source", "rank")})


def drift(split, kl, low):
    """Return a drift as of a build."""
    excess = None if low is None else low + 0.01
    return {
        "split": split,
        "source": "",
        "kl": kl,
        "js": 0.01,
        "noise": 0.01,
        "excess_low": low,
        "excess": excess,
        "reason": "",
    }


def said(found):
    """Return the sentence, the tone, and the marks and tones of KL of the table's rows."""
    made = section(NoTokens(), found)
    (table,) = (one for one in made.blocks if isinstance(one, Table))
    tones = [row[2].tone if isinstance(row[2], Cell) else "" for row in table.rows]
    return spell(made.lead, PLAIN), made.tone, [spell(row[-1], PLAIN) for row in table.rows], tones


@pytest.mark.parametrize(("case", "expected"), CASES.items())
def test_sentence_mark_and_colour_say_one_thing(case, expected, monkeypatch):
    """KL above the alarm is one question, KL beyond chance another; the alarm is an answer to both."""
    found = [drift("train", *case)]
    mark, sentence, tone = expected
    lead, own, marks, tones = said(found)
    assert lead.endswith(f", in train: {sentence}.")
    assert (own, marks, bool(tones[0])) == (tone, [mark], tone == "warn")
    monkeypatch.setattr(definition, "drifts", lambda _: found)
    highlights = [one.text for one in definition._highlights(None)]
    assert len(highlights) == mark.startswith("above")
    assert all(("beyond chance" in one) == ("beyond chance" in mark) for one in highlights)
    assert all(("above 0.05" in one) == ("above 0.05" in mark) for one in highlights)


def test_an_alarm_that_is_not_the_largest_divergence_is_named():
    """The largest may be chance; a smaller one that is not is what turns the section."""
    lead, tone, marks, tones = said([drift("a", 0.3, -0.1), drift("b", 0.1, 0.05), drift("c", 0.06, 0.01)])
    assert "0.3000 nats, in a: above 0.05 nats, but chance alone could give it." in lead
    assert lead.endswith(" In b it is 0.1000 nats: above 0.05 nats and surely beyond chance.")
    assert (tone, [bool(one) for one in tones]) == ("warn", [False, True, True])
    assert marks[0] == "above 0.05, as chance could give"
