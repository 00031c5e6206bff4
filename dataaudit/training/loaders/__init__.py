"""Tags in the loaders that people have: torch's, Hugging Face's `datasets` and `Trainer`.

Each module needs its library alone, and nothing here imports one: take what you need from
``dataaudit.training.loaders.hub`` (`datasets`), ``.collator`` (torch), ``.streams`` (torch) or ``.trainer``
(transformers).
"""

from __future__ import annotations
