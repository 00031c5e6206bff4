"""One scheme of language codes: BCP 47 primary subtags, for every detector.

lid.176 gives them already, but for ``als``, by which it means Alemannic (``gsw``). CLD2 has older codes for some
languages, and tells scripts apart, which a primary subtag does not.
"""

from __future__ import annotations

from dataaudit.corpus.languages import UND

_ALIASES = {
    "als": "gsw",  # Wikipedia's code; in BCP 47 it is Tosk Albanian
    "iw": "he",
    "in": "id",
    "ji": "yi",
    "jw": "jv",
    "mo": "ro",
    "un": UND,
    "xxx": UND,
    "zzp": UND,  # Pig Latin
}
_SCRIPTS = {"bugi": "bug", "goth": "got"}
"""CLD2 names two languages by their script alone."""


def language_code(label: str) -> str:
    """Return the code of a detector's own label: ``__label__als``, ``zh-Hant``, ``iw``, ``xx-Goth``, ``un``."""
    primary, _, rest = label.removeprefix("__label__").lower().replace("_", "-").partition("-")
    if primary == "xx":
        return _SCRIPTS.get(rest, UND)
    return _ALIASES.get(primary, primary)


def known_languages(labels: list[str]) -> tuple[str, ...]:
    """Return the codes of a detector's labels, ``und`` first, the others sorted."""
    return (UND, *sorted({language_code(label) for label in labels} - {UND}))
