"""Token counts: gigatoken on the fast path, always equal to the reference encoders.

``resolve_tokenizer`` turns what the user wrote into a content-named file, ``inspect_risks`` finds what the
two encoders do not agree on for this vocabulary, and ``load_encoder`` gives the encoder that routes each
document accordingly and checks a hash sample of the rest.
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
