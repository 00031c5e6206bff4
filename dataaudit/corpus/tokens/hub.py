"""tokenizer.json from a model hub, by id; every failure is one clear error."""

from __future__ import annotations

from pathlib import Path

from dataaudit.errors import TokenizerError


def download_tokenizer_json(spec: str) -> bytes:
    """Fetch tokenizer.json, and nothing else, of ``org/name`` or ``org/name@revision``.

    Raises:
        TokenizerError: The hub cannot be reached, or has no such file for this user.
    """
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - heavy, and only hub ids need it

    repo, _, revision = spec.partition("@")
    try:
        return Path(hf_hub_download(repo, "tokenizer.json", revision=revision or None)).read_bytes()
    except Exception as error:  # noqa: BLE001 - networks fail in more ways than the library names
        raise TokenizerError(f"tokenizer {spec}: {error}", "Give a file instead.") from None
