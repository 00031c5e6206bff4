"""From what lies on disk, or behind an address, to a model that probes take.

A folder of transformers (of ``save_pretrained``, or a checkpoint of its ``Trainer``), a ``ckpt.pt`` of nanoGPT, an
address of a server that speaks OpenAI's protocol; anything else by a function of yours, ``MODULE:FUNCTION``, which gets
the path and returns a module or function from ids to logits. Lightning, torchtitan and Megatron-LM checkpoints need
their model's code, so they go that way.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.probes.models import Model, ProbeModel, Tokenizer
from dataaudit.training.replay.replaying import called, load_function

_TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
"""Of nanoGPT's linear layers; those of transformers' GPT-2 are stored the other way round."""
_NO_CONTEXT = 1_024


def load_checkpoint(
    spec: str,
    *,
    tokenizer: str | None = None,
    end: int | str | None = None,
    function: str | None = None,
    context: int | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> tuple[Model, str]:
    """Return the model of a checkpoint, and the sha256 of its files; empty for an address.

    Args:
        spec: Folder, file or ``http(s)://`` address (``URL#model`` names the model of a server).
        tokenizer: File, folder, hub id or ``bytes``; by default what lies in a transformers folder.
        end: Token that ends a document: its id or text.
        function: ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION`` that loads it.
        context: Most tokens at once; as the checkpoint says by default.
        dtype: ``float32``, ``bfloat16`` or ``float16`` that weights are turned into; theirs by default.
        device: ``cpu``, ``cuda``, ...; ``cuda`` where there is one by default.

    Raises:
        ConfigError: It cannot be loaded.
    """
    if spec.startswith(("http://", "https://")):
        from dataaudit.probes.endpoint import EndpointModel

        if tokenizer is None:
            raise ConfigError("an address needs --tokenizer FILE: texts are cut and compared as tokens")
        return EndpointModel(spec, Tokenizer.load(tokenizer, end), context=context or _NO_CONTEXT), ""
    path = Path(spec)
    if not path.exists():
        raise ConfigError(f"there is no checkpoint {path}")
    made, found = _loaded(path, function)
    if dtype is not None or device is not None or hasattr(made, "to"):
        made = _moved(made, dtype, device)
    if tokenizer is None and not (path / "tokenizer.json").is_file():
        raise ConfigError(f"{path} holds no tokenizer.json", "Name one: --tokenizer FILE, or --tokenizer bytes.")
    own, most = Tokenizer.load(tokenizer or path, end), context or found or _NO_CONTEXT
    return ProbeModel(made, own, context=most, name=str(path), dtype=dtype or ""), digest_of(path)


def _loaded(path: Path, function: str | None) -> tuple[Any, int | None]:
    """Return a module or function, and its context where that is known."""
    if function is not None:
        return called(load_function(function, "--model"), path, where=f"--model {function}"), None
    if (path / "config.json").is_file():
        if importlib.util.find_spec("transformers") is None:
            raise ConfigError(f"{path} is a folder of transformers, which is not installed", "pip install transformers")
        with CatchErrors() as call:
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(path, dtype="auto", local_files_only=True)
            return model, getattr(model.config, "max_position_embeddings", None)
        raise ConfigError(
            f"transformers cannot load {path} ({call.origin})", "Load it yourself: --model FILE.py:FUNCTION."
        )
    why = "holds no config.json of transformers"
    if path.is_file():
        import torch

        with CatchErrors() as call:
            stored = torch.load(path, map_location="cpu", weights_only=True)
            if isinstance(stored, Mapping) and "model_args" in stored and "model" in stored:
                return from_nanogpt(stored["model_args"], stored["model"])
        why = "is no checkpoint of nanoGPT" + (f" ({call.origin})" if call.error is not None else "")
    raise ConfigError(f"{path} {why}", "Load it yourself: --model FILE.py:FUNCTION gets its path.")


def from_nanogpt(arguments: Mapping[str, Any], weights: Mapping[str, Any]) -> tuple[Any, int]:
    """Return transformers' GPT-2 with the weights of a ``ckpt.pt`` of nanoGPT, and its context.

    nanoGPT's own model returns logits of the last position alone when it gets no targets.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=arguments["vocab_size"],
        n_positions=arguments["block_size"],
        n_embd=arguments["n_embd"],
        n_layer=arguments["n_layer"],
        n_head=arguments["n_head"],
        activation_function="gelu",
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config)
    renamed = {}
    for name, value in weights.items():
        own = name.removeprefix("_orig_mod.")
        renamed[own] = value.t() if own.endswith(_TRANSPOSED) else value
    for name, value in model.state_dict().items():
        if name.endswith(".bias") and name not in renamed:  # `bias=False` of nanoGPT
            renamed[name] = value * 0
    model.load_state_dict(renamed)
    return model.eval(), int(arguments["block_size"])


def _moved(model: Any, dtype: str | None, device: str | None) -> Any:
    import torch

    if not hasattr(model, "to"):
        raise ConfigError("--dtype and --device need a module; your function returned a plain callable")
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype is not None and dtype not in kinds:
        raise ConfigError(f"--dtype: expected {', '.join(kinds)}, found {dtype}")
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with CatchErrors() as call:
        model = model.to(device=where, dtype=None if dtype is None else kinds[dtype])
    if call.error is not None:
        raise ConfigError(f"the model cannot be moved to {where} ({call.origin})")
    return model.eval() if hasattr(model, "eval") else model


def digest_of(path: Path) -> str:
    """Return ``sha256:<hex>`` of a file, or of the names and bytes of all files of a folder."""
    state = hashlib.sha256()
    for item in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if item.is_file():
            with item.open("rb") as handle:
                own = hashlib.file_digest(handle, "sha256").digest()
            state.update(str(item.relative_to(path)).encode("utf-8", "surrogateescape") + b"\0" + own)
    return f"sha256:{state.hexdigest()}"
