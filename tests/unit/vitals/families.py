"""Tiny models of every family that the installed transformers has a decoder of."""

import contextlib
import inspect
import math
from functools import partial

import torch

_SDPA = "scaled_dot_product_attention"

_NAMES = {
    96: "vocab_size",
    32: "hidden_size d_model n_embd embed_dim word_embed_proj_dim emb_dim embedding_size dim",
    48: "intermediate_size ffn_dim d_ff d_inner n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size",
    24: "moe_intermediate_size",
    4: (
        "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers "
        "num_encoder_layers num_attention_heads num_heads n_head n_heads encoder_attention_heads "
        "decoder_attention_heads qk_rope_head_dim num_experts num_local_experts n_routed_experts moe_num_experts "
        "rotary_dim"
    ),
    2: "num_key_value_heads num_kv_heads num_experts_per_tok eos_token_id",
    8: "head_dim d_kv kv_lora_rank qk_nope_head_dim v_head_dim",
    16: "q_lora_rank",
    12: "qk_head_dim",
    1: "n_group topk_group bos_token_id",
    64: "max_position_embeddings n_positions n_ctx",
    0: "pad_token_id",
}
SIZES = {name: size for size, names in _NAMES.items() for name in names.split()} | {"use_cache": False}


SPECIAL = {
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 16, "attn_layer_indices": [1, 3]},
    "granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 16, "layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "zaya": {"num_experts_per_tok": 1},
    "dots3_note": {"num_key_value_heads": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "num_layers": 4},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "minimax": {"layer_types": ["full_attention", "linear_attention"] * 2},
    "zamba": {"layer_types": ["mamba", "hybrid"] * 2},
    "zamba2": {"layer_types": ["mamba", "hybrid"] * 2},
    "ernie4_5_moe": {"moe_k": 2},
    "esmc": {"num_key_value_heads": 4},
    "mamba2": {"num_heads": 4, "head_dim": 16, "expand": 2, "n_groups": 1},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
}
"""What a family needs besides, by the folder of its module."""


def config_of(kind):
    """Return a tiny config of a class: sizes that it has by name."""
    names = inspect.signature(kind.__init__).parameters
    held = kind()
    found = {name: value for name, value in SIZES.items() if name in names or name in vars(held)}
    for inner in ("text_config", "decoder", "thinker_config"):
        own = getattr(held, inner, None)
        if own is not None and hasattr(own, "to_dict"):
            found[inner] = config_of(type(own)).to_dict()
    if "kv_lora_rank" in found:  # keys and values of latent attention are as many as queries
        found |= {"num_key_value_heads": 4, "head_dim": SIZES["qk_rope_head_dim"]}
    return kind(**{**found, **SPECIAL.get(kind.__module__.split(".")[-2], {})})


def kinds():
    """Return the config classes of models of text, by the name of their module's folder, each with its auto class."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    found = {}
    for mapping, name in (
        (auto.MODEL_FOR_MASKED_LM_MAPPING, "AutoModelForMaskedLM"),
        (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, "AutoModelForSeq2SeqLM"),
        (auto.MODEL_FOR_CAUSAL_LM_MAPPING, "AutoModelForCausalLM"),
    ):
        found |= {kind.__module__.split(".")[-2]: (kind, getattr(transformers, name)) for kind in mapping}
    return dict(sorted(found.items()))


def model_of(kind, auto, device="cpu"):
    """Return a tiny model of a config class, with attention that is not fused."""
    torch.manual_seed(0)
    with torch.device(device) if device != "cpu" else contextlib.nullcontext():
        return auto.from_config(config_of(kind), attn_implementation="eager").eval()


class Reference:
    """Entropies and largest logits in float64, head by head, from what modules hand to softmax or to torch's function.

    Args:
        modules: By layer, its attention.
        apart: Whether what goes to a sink is taken off after softmax, not within.
    """

    def __init__(self, modules, *, apart=False):
        self._modules, self._apart = modules, apart
        self.found, self._runs, self._now, self._handles = {}, {}, None, []
        for layer, module in modules.items():
            self._handles.append(module.register_forward_pre_hook(partial(self._begin, layer)))
            self._handles.append(module.register_forward_hook(self._end, always_call=True))
        self._own = {name: getattr(torch.nn.functional, name) for name in ("softmax", _SDPA)}
        torch.nn.functional.softmax = self._softmax
        torch.nn.functional.scaled_dot_product_attention = self._sdpa

    def close(self):
        for handle in self._handles:
            handle.remove()
        for name, own in self._own.items():
            setattr(torch.nn.functional, name, own)
        for layer, runs in self._runs.items():  # ALBERT's layers are one module
            entropies, largest = (torch.stack(one) for one in zip(*runs, strict=True))
            self.found[layer] = entropies.mean(0), largest.amax(0)

    def _begin(self, layer, *_):
        self._now = layer
        self._kept = False

    def _end(self, *_):
        self._now = None

    def _softmax(self, logits, *args, **named):
        if self._now is not None and logits.dim() >= 3 and not self._kept:
            self._keep(logits)
        return self._own["softmax"](logits, *args, **named)

    def _sdpa(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **named):
        if self._now is not None and not self._kept:
            key_ = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            logits = query.double() @ key_.double().transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
            if is_causal:
                logits = logits.masked_fill(~torch.ones(logits.shape[-2:], dtype=torch.bool).tril(), -math.inf)
            if attn_mask is not None and attn_mask.dtype == torch.bool:
                logits = logits.masked_fill(~attn_mask, -math.inf)
            elif attn_mask is not None:
                logits = logits + attn_mask
            self._keep(logits)
        return self._own[_SDPA](query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **named)

    def _keep(self, logits):
        self._kept = True
        wide = logits.detach().double()
        wide = wide[None] if wide.dim() == 3 else wide
        sinks = getattr(self._modules[self._now], "sinks", None)
        if sinks is not None and self._apart:
            wide = torch.cat([wide, sinks.detach().double()[None, :, None, None].expand(*wide.shape[:3], 1)], -1)
        weights = wide[0].softmax(-1)
        keys = wide[..., :-1] if wide.shape[-1] == wide.shape[-2] + 1 and not self._apart else wide  # a sink is none
        largest = keys[0].amax((-1, -2))
        if (wide.amax(-1) == 0).all():  # the model took the largest off before: what it was cannot be told here
            largest = torch.full_like(largest, math.nan)
        found = torch.special.entr(weights).sum(-1).mean(-1), largest
        self._runs.setdefault(self._now, []).append(found)
