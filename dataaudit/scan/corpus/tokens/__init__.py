"""Token ids: gigatoken on the fast path, always equal to the reference encoders.

``resolve_tokenizer`` turns the user's setting into a content-named file. ``inspect_risks`` finds the texts on which the
two encoders differ for this vocabulary. ``load_encoder`` returns the encoder that sends these to the reference, and
checks a sample of the rest.
"""

from __future__ import annotations

from dataaudit.scan.corpus.tokens.encoder import Encoder, Risks, TokenBatch, load_encoder
from dataaudit.scan.corpus.tokens.guard import inspect_risks
from dataaudit.scan.corpus.tokens.spec import TokenizerFile, resolve_tokenizer

__all__ = [
    "Encoder",
    "Risks",
    "TokenBatch",
    "TokenizerFile",
    "inspect_risks",
    "load_encoder",
    "resolve_tokenizer",
]
