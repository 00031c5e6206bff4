"""What probes ask of a model: losses of given tokens, logits, continuations. Any callable from ids to logits does.

``ProbeModel`` takes a module or function of torch. It pads on the right, which no causal model sees, and batches by
tokens in an order that the rows alone decide, so a probe gives the same bits whenever it runs on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from dataaudit.base.cache import private_folder, user_places
from dataaudit.base.errors import ConfigError
from dataaudit.manifest.canonical import canonical_json
from dataaudit.training.documents import Encoder, byte_encoder

if TYPE_CHECKING:
    import torch

Ids = npt.NDArray[np.int64]
BATCH_TOKENS = 8_192
_ENDS = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<\uff5cend\u2581of\u2581sentence\uff5c>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Sampling of continuations, pinned by a seed for each of them, so that batches change nothing.

    Raises:
        ConfigError: A number is out of its range.
    """

    tokens: int = 100
    """Tokens of a continuation, at most."""
    temperature: float = 1.0
    """0: the most likely token each time."""
    top_p: float = 1.0
    """Mass of the most likely tokens that are drawn from."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(f"decoding: expected tokens >= 1, temperature >= 0, 0 < top_p <= 1, found {asdict(self)}")

    def words(self) -> str:
        """Return it as canonical JSON, for the artifact hash."""
        return canonical_json(asdict(self)).decode()

    def uniforms(self, key: int) -> npt.NDArray[np.float64]:
        """Return float64[tokens], the numbers in [0, 1) that decide the continuation of a key."""
        return np.random.Generator(np.random.Philox(key=[self.seed, key])).random(self.tokens)

    def choose(self, logits: npt.NDArray[np.float32], uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the next token of each row, by the inverse of the cumulative distribution.

        Args:
            logits: float32[n, V]
            uniform: float64[n]

        Raises:
            FloatingPointError: A logit is NaN, and nothing can be drawn.
        """
        if np.isnan(logits).any():
            raise FloatingPointError("a logit is NaN")
        if self.temperature == 0:
            return np.asarray(logits.argmax(1), dtype=np.int64)
        scaled = logits.astype(np.float64) / self.temperature
        weights = np.exp(scaled - scaled.max(1, keepdims=True))
        order = np.argsort(-weights, axis=1, kind="stable")
        ordered = np.take_along_axis(weights, order, 1)
        before = np.cumsum(ordered, 1) - ordered
        ordered[before >= self.top_p * ordered.sum(1, keepdims=True)] = 0.0
        below = np.cumsum(ordered, 1)
        at = (below <= uniform[:, None] * below[:, -1:]).sum(1)
        return np.take_along_axis(order, np.minimum(at, logits.shape[1] - 1)[:, None], 1)[:, 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """From text to tokens and back, with the digest that stands for it."""

    encoder: Encoder
    decode: Callable[[list[int]], str]
    digest: str

    @classmethod
    def of_bytes(cls, end: int | None = None) -> Tokenizer:
        """Return the tokenizer whose tokens are the bytes of UTF-8."""
        encoder = byte_encoder(end)
        return cls(
            encoder=encoder,
            decode=lambda ids: bytes(i for i in ids if i < 256 and i != end).decode("utf-8", "replace"),
            digest=f"{encoder.name} end={end}",
        )

    @classmethod
    def load(cls, spec: str | Path, end: int | str | None = None) -> Tokenizer:
        """Return a tokenizer of a file, folder or hub id, as ``dataaudit build --tokenizer`` takes it, or ``bytes``.

        Args:
            spec: Of the tokenizer.
            end: Token that ends a document, an id or its text; by default ``<|endoftext|>``, ``</s>`` or the like.

        Raises:
            ConfigError: It has no such token.
            TokenizerError: It cannot be found or read.
        """
        if str(spec) == "bytes":
            if isinstance(end, str):
                raise ConfigError(f"--end: bytes have no token `{end}`", "Name an id, such as --end 256.")
            return cls.of_bytes(end)
        from dataaudit.scan.corpus.tokens.libraries import load_decoder, load_reference
        from dataaudit.scan.corpus.tokens.spec import resolve_tokenizer, vocabulary_pieces

        cache = private_folder(*user_places("tokenizers"))
        if cache is None:
            raise ConfigError("no folder for a copy of the tokenizer can be written")
        file = resolve_tokenizer(str(spec), base_dir=Path(), cache_dir=cache)
        reference = load_reference(file)
        if not isinstance(end, int):
            pieces = {piece: token for token, piece in vocabulary_pieces(file, file.special_ids).items()}
            if end and end not in pieces:
                known = ", ".join([*pieces][:20]) or "none"
                raise ConfigError(f"--end: no special token of {spec} is `{end}`", f"There are {known}; or name an id.")
            end = next((pieces[name] for name in ((end,) if end else _ENDS) if name in pieces), None)
        encoder = Encoder(
            encode=lambda text: reference.encode([text])[0],
            name=f"{file.name} {file.sha256}",
            vocab=file.vocab_size,
            end=end,
        )
        return cls(encoder=encoder, decode=load_decoder(file), digest=f"sha256:{file.sha256}")

    @property
    def start(self) -> Ids:
        """The end token, which stands before a document in training; nothing where there is none."""
        return np.array([] if self.encoder.end is None else [self.encoder.end], dtype=np.int64)

    def encode(self, text: str) -> Ids:
        """Return int64[n] tokens of a text, without special ones."""
        return np.asarray(self.encoder.encode(text), dtype=np.int64)


class Model(Protocol):
    """What every probe asks of a model; logits only a :class:`ProbeModel` has."""

    name: str
    tokenizer: Tokenizer
    context: int
    dtype: str

    def scored(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[npt.NDArray[np.float64]] | None:
        """Return float64[tokens] losses, nats, of the second of each pair after the first; None: it has no losses."""

    def continued(self, prompts: Sequence[Ids], keys: Sequence[int], decoding: Decoding) -> list[Ids]:
        """Return int64[<= tokens], a continuation of each prompt, without the token that ends it."""


class ProbeModel:
    """A model of torch in this process.

    Args:
        model: From int64[B, T] ids to logits [B, T, V]: a module or function; what it returns may hold them as
            ``logits``, or first in a tuple.
        tokenizer: Whose ids the model takes.
        context: Most tokens that it takes at once.
        name: In reports.
        dtype: Of its weights; that of the first parameter by default.
        batch_tokens: Tokens of a batch.

    Raises:
        ConfigError: It is no callable, or knows fewer tokens than the tokenizer.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        tokenizer: Tokenizer,
        *,
        context: int,
        name: str = "model",
        dtype: str = "",
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        import torch

        if not callable(model):
            raise ConfigError(f"expected a module or function of torch, found {type(model).__name__}")
        table = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
        most = max(tokenizer.encoder.vocab - 1, *tokenizer.start.tolist(), 0)
        if (known := getattr(table, "num_embeddings", None)) is not None and known <= most:
            raise ConfigError(
                f"the tokenizer has ids up to {most:,}, and the model embeds {known:,} tokens",
                "Give the model's own: --tokenizer FILE.",
            )
        self.module = model if isinstance(model, torch.nn.Module) else None
        first = None if self.module is None else next(self.module.parameters(), None)
        self.model, self.tokenizer, self.context, self.name = model, tokenizer, context, name
        self.device = torch.device("cpu") if first is None else first.device
        self.dtype = dtype or ("float32" if first is None else str(first.dtype).removeprefix("torch."))
        self._rows, self._cached = batch_tokens, hasattr(model, "prepare_inputs_for_generation")

    def unharmed(self) -> AbstractContextManager[None]:
        """Return a context without gradients after which random states, buffers and modes are what they were."""
        from dataaudit.training.run_start import untouched

        return untouched(self.module)

    def logits(self, ids: npt.ArrayLike) -> torch.Tensor:
        """Return [B, T, V] logits of int64[B, T] ids, on the model's device.

        Raises:
            ConfigError: The model returns something else.
        """
        import torch

        given = torch.as_tensor(np.asarray(ids, dtype=np.int64)).to(self.device)
        made: Any = self.model(given)
        made = getattr(made, "logits", made)
        made = made[0] if isinstance(made, tuple) else made
        if getattr(made, "ndim", 0) != 3 or tuple(made.shape[:2]) != tuple(given.shape):
            shape = tuple(getattr(made, "shape", ())) or type(made).__name__
            raise ConfigError(
                f"{self.name}: expected logits of {tuple(given.shape)} positions and a vocabulary, found {shape}",
                "Give a function that returns the logits of every position.",
            )
        return made

    def batches(self, rows: Sequence[Ids]) -> Iterator[tuple[list[int], Ids]]:
        """Yield the numbers of some rows and int64[B, T] of these, padded by 0 on the right; long rows come first."""
        order = sorted(range(len(rows)), key=lambda row: (-len(rows[row]), row))
        while order:
            longest = max(1, len(rows[order[0]]))
            size = max(1, self._rows // longest)
            mine, order = order[:size], order[size:]
            padded = np.zeros((len(mine), longest), dtype=np.int64)
            for at, row in enumerate(mine):
                padded[at, : len(rows[row])] = rows[row]
            yield mine, padded

    def scored(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[npt.NDArray[np.float64]]:
        """Return float64 losses, nats, of the second of each pair after the first.

        Where the first is empty, the first token of the second has no loss and is left out. Of what is longer than the
        context, the beginning of the first is cut.
        """
        import torch

        from dataaudit.probes.kernels import distributions, losses_of

        kept = [(before[max(0, len(before) + len(ids) - self.context) :], ids[: self.context]) for before, ids in pairs]
        rows = [np.concatenate(pair) for pair in kept]
        found: list[npt.NDArray[np.float64]] = [np.zeros(0) for _ in rows]
        with self.unharmed():
            for mine, padded in self.batches(rows):
                if padded.shape[1] < 2:
                    continue
                logits = self.logits(padded)[:, :-1].flatten(0, 1)
                targets = torch.as_tensor(padded[:, 1:]).to(self.device).flatten()
                losses = losses_of(logits, distributions(logits, 1).log_total, targets)
                table = losses.view(len(mine), -1).cpu().numpy()
                for at, row in enumerate(mine):
                    before, ids = kept[row]
                    found[row] = table[at, max(0, len(before) - 1) : len(before) + len(ids) - 1]
        return found

    def continued(self, prompts: Sequence[Ids], keys: Sequence[int], decoding: Decoding) -> list[Ids]:
        """Return int64[<= tokens], a continuation of each prompt of a token at least, without the end token.

        A transformers model keeps its cache; of any other all tokens are computed again at each token.
        """
        found: list[Ids] = [np.zeros(0, np.int64) for _ in prompts]
        room = max(1, self.context - decoding.tokens)
        rows = [np.asarray(prompt, np.int64)[-room:] for prompt in prompts]
        groups: dict[int, list[int]] = {}
        for row, prompt in enumerate(rows):
            groups.setdefault(len(prompt), []).append(row)
        with self.unharmed():
            for length, members in sorted(groups.items()):
                step = max(1, self._rows // (length + decoding.tokens))
                for start in range(0, len(members), step):
                    mine = members[start : start + step]
                    drawn = self._drawn(np.stack([rows[row] for row in mine]), [keys[row] for row in mine], decoding)
                    for at, row in enumerate(mine):
                        ends = np.flatnonzero(drawn[at] == self.tokenizer.encoder.end)
                        found[row] = drawn[at, : ends[0] if len(ends) else None]
        return found

    def _drawn(self, ids: Ids, keys: Sequence[int], decoding: Decoding) -> Ids:
        """Return int64[B, tokens] that follow upon int64[B, T]."""
        import torch

        uniforms = np.stack([decoding.uniforms(key) for key in keys])
        made, cache, given, end = ids, None, ids, self.tokenizer.encoder.end
        for at in range(min(decoding.tokens, self.context - ids.shape[1])):
            if self._cached:
                output = self.model(torch.as_tensor(given).to(self.device), past_key_values=cache, use_cache=True)
                cache, last = output.past_key_values, output.logits[:, -1]
            else:
                last = self.logits(made)[:, -1]
            token = decoding.choose(last.float().cpu().numpy(), uniforms[:, at])
            given = token[:, None]
            made = np.concatenate([made, given], axis=1)
            if end is not None and (made[:, ids.shape[1] :] == end).any(1).all():
                break
        return made[:, ids.shape[1] :]
