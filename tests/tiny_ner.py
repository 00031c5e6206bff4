"""Makes a small spaCy model on disk: an English pipeline that knows a few names, places and organisations."""

from __future__ import annotations

from pathlib import Path

NAMES = {
    "PERSON": ("Anna Berg", "Jos\u00e9 Ruiz"),
    "GPE": ("Lisbon",),
    "ORG": ("Acme Corp",),
    "MONEY": ("ten dollars",),
}


def write_model(folder: Path) -> Path:
    """Write the model into a folder and return it."""
    import spacy

    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": label, "pattern": name} for label, names in NAMES.items() for name in names])
    nlp.to_disk(folder)
    return folder
