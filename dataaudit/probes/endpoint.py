"""A model behind an address that speaks OpenAI's protocol of completions: vLLM, llama.cpp, TGI and others."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urldefrag
from urllib.request import Request, urlopen

import numpy as np
import numpy.typing as npt

from dataaudit.base.errors import ConfigError
from dataaudit.probes.models import Decoding, Ids, Tokenizer

KEY = "DATAAUDIT_PROBE_KEY"
"""Variable of the environment with the key that the server asks for; it is sent to that address alone."""
_TIMEOUT, _TRIES, _AT_ONCE = 120.0, 4, 8
_TEMPORARY = frozenset({408, 409, 429, 500, 502, 503, 504})


class EndpointModel:
    """Texts to texts, and losses where the server echoes a prompt with its log-probabilities.

    Args:
        address: Of the protocol's root, such as ``http://localhost:8000/v1``; ``#NAME`` chooses the model, by default
            the first that the server lists.
        tokenizer: The model's; prompts are cut, and outputs compared, as its tokens.
        context: Most tokens at once.
        pause: Seconds before the first repetition of a request that failed; the next ones wait twice as long.

    Raises:
        ConfigError: The server does not answer, or lists no model.
    """

    def __init__(self, address: str, tokenizer: Tokenizer, *, context: int, pause: float = 1.0) -> None:
        self._address, self.model = urldefrag(address.rstrip("/"))
        self._address = self._address.rstrip("/")
        self._pause = pause
        if not self.model:
            listed = self._asked("models", None).get("data") or []
            if not listed:
                raise ConfigError(f"{self._address} lists no model", "Name one: URL#NAME.")
            self.model = str(listed[0]["id"])
        self.tokenizer, self.context = tokenizer, context
        self.name, self.dtype = f"{self._address}#{self.model}", "as served"

    def scored(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[npt.NDArray[np.float64]] | None:
        """Return float64 losses, nats, of the server's tokens of each second text; None where it does not echo them.

        Raises:
            ConfigError: It echoes short texts alone.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            made = list(pool.map(self._losses, pairs))
        known = [own for own in made if own is not None]
        if len(known) == len(made):
            return known
        if self._losses((np.zeros(0, np.int64), self.tokenizer.encode("of it"))) is not None:
            longest = max(len(before) + len(ids) for (before, ids), own in zip(pairs, made, strict=True) if own is None)
            raise ConfigError(
                f"{self._address} gives losses of short texts, and none of {longest:,} tokens",
                "Name what it takes at once: --context N.",
            )
        return None

    def _losses(self, pair: tuple[Ids, Ids]) -> npt.NDArray[np.float64] | None:
        before, text = (self._text(ids) for ids in pair)
        body = {"prompt": before + text, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        try:
            choice = self._asked("completions", body)["choices"][0]
        except _Refused:
            return None
        stated = choice.get("logprobs") or {}
        offsets, values = stated.get("text_offset"), stated.get("token_logprobs")
        if not offsets or not values or len(offsets) != len(values) or offsets[0] != 0:
            return None  # it answered without the prompt
        inside = [
            -float(value)
            for offset, value in zip(offsets, values, strict=True)
            if len(before) <= offset < len(before) + len(text) and value is not None
        ]
        return np.array(inside, dtype=np.float64)

    def continued(self, prompts: Sequence[Ids], keys: Sequence[int], decoding: Decoding) -> list[Ids]:
        """Return the tokens of a continuation of each prompt; the server draws, by the seed that it is given."""

        def drawn(item: tuple[Ids, int]) -> Ids:
            prompt, key = item
            body = {
                "prompt": self._text(prompt),
                "max_tokens": decoding.tokens,
                "temperature": decoding.temperature,
                "top_p": decoding.top_p,
                "seed": (decoding.seed * 1_000_003 + key) % (1 << 31),
            }
            text = self._asked("completions", body)["choices"][0]["text"]
            return self.tokenizer.encode(text)[: decoding.tokens]

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(drawn, zip(prompts, keys, strict=True)))

    def _text(self, ids: Ids) -> str:
        """Return tokens as text; the end token, with which a text begins, is the server's own affair."""
        end = self.tokenizer.encoder.end
        return self.tokenizer.decode([token for token in ids.tolist() if token != end])

    def _asked(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what the server answers; busy servers and broken connections are asked again.

        Raises:
            ConfigError: It does not answer.
            _Refused: It refuses this request.
        """
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps({"model": self.model, **body}).encode()
        request = Request(f"{self._address}/{path}", data=data, headers=headers)  # noqa: S310 - http(s), checked
        why = ""
        for attempt in range(_TRIES):
            try:
                with urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - http(s), checked
                    made: Any = json.loads(answer.read())
                    if isinstance(made, dict):
                        return made
                    why = "no JSON object"
            except HTTPError as error:
                why = f"status {error.code}"
                if error.code not in _TEMPORARY:
                    kind = _Refused if error.code in {400, 404, 422} and body is not None else ConfigError
                    key = f"Put its key into the variable {KEY}." if error.code in {401, 403} else ""
                    hint = key or "Look at the server's log."
                    raise kind(f"{self._address}/{path} refuses: {why}", hint) from None
            except (URLError, http.client.HTTPException, OSError, ValueError) as error:
                why = type(getattr(error, "reason", error)).__name__
            time.sleep(self._pause * 2**attempt)
        raise ConfigError(
            f"{self._address} does not answer ({why}), {_TRIES} times", "Is the server up, and the address its /v1?"
        )


class _Refused(ConfigError):
    """The server does not do what was asked."""
