"""Spectra of updates by explicit products: every head's d x d matrix and its singular values, in float64 NumPy."""

import numpy as np
import torch
import vitals_models as made

SIZES = {
    "vocab_size": made.VOCAB,
    "hidden_size": made.WIDTH,
    "num_hidden_layers": made.LAYERS,
    "use_cache": False,
    "num_attention_heads": made.HEADS,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
OWN = {
    "phi3": ("Phi3", {"intermediate_size": 96, "num_key_value_heads": 2}),
    "gpt_neox": ("GPTNeoX", {"intermediate_size": 96}),
    "bloom": ("Bloom", {}),
    "falcon": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon_one_key": ("Falcon", {"multi_query": True}),
    "deepseek_v3": (
        "DeepseekV3",
        {
            "intermediate_size": 96,
            "num_key_value_heads": made.HEADS,
            "kv_lora_rank": 24,
            "q_lora_rank": 40,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 12,
            "first_k_dense_replace": made.LAYERS,
        },
    ),
}
FAMILIES = ("llama", "qwen3", "gpt2", "gemma2", "multihead", "mapped", *OWN)


def model_of(family):
    """Return a model whose gains of norms are none of them 1."""
    if family in OWN:
        import transformers

        name, more = OWN[family]
        torch.manual_seed(3)
        config = getattr(transformers, f"{name}Config")(**SIZES, **more)
        model = getattr(transformers, f"{name}ForCausalLM")(config).train()
    else:
        model = made.model_of(family, "eager" if family == "gemma2" else "sdpa")
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for item in model.parameters():
            if item.dim() == 1:
                item.add_(0.3 * torch.randn(item.shape, generator=draw))
    return model


def matrices(family, model):
    """Return of each layer W of queries and of keys, float64[heads, d_head, d], and the same without gains."""
    layers = {
        "gpt2": lambda: model.transformer.h,
        "bloom": lambda: model.transformer.h,
        "falcon": lambda: model.transformer.h,
        "falcon_one_key": lambda: model.transformer.h,
        "multihead": lambda: model.encoder.layers,
        "mapped": lambda: model.blocks,
        "gpt_neox": lambda: model.gpt_neox.layers,
    }.get(family, lambda: model.model.layers)()
    return [_matrices(family, layer) for layer in layers]


def _matrices(family, layer):
    heads, width = made.HEADS, made.WIDTH
    if family == "multihead":
        query, key, _ = wide(layer.self_attn.in_proj_weight).reshape(3, heads, -1, width)
        gain = wide(layer.norm1.weight)
    elif family == "mapped":
        query, key, _ = wide(layer.attention.qkv.weight).reshape(3, heads, -1, width)
        gain = wide(layer.first_norm.weight)
    elif family == "gpt2":
        query, key, _ = wide(layer.attn.c_attn.weight).T.reshape(3, heads, -1, width)
        gain = wide(layer.ln_1.weight)
    elif family in {"gpt_neox", "bloom"}:
        own = layer.attention if family == "gpt_neox" else layer.self_attention
        fused = wide(own.query_key_value.weight).reshape(heads, 3, -1, width)
        query, key, gain = fused[:, 0], fused[:, 1], wide(layer.input_layernorm.weight)
    elif family == "falcon":  # two groups: two queries, a key, a value each
        fused = wide(layer.self_attention.query_key_value.weight).reshape(2, 4, -1, width)
        query = np.stack([fused[0, 0], fused[0, 1], fused[1, 0], fused[1, 1]])
        key, gain = fused[:, 2], wide(layer.ln_attn.weight)
    elif family == "falcon_one_key":
        fused = wide(layer.self_attention.query_key_value.weight).reshape(heads + 2, -1, width)
        query, key, gain = fused[:heads], fused[heads : heads + 1], wide(layer.input_layernorm.weight)
    elif family == "phi3":
        fused = wide(layer.self_attn.qkv_proj.weight).reshape(heads + 4, -1, width)
        query, key, gain = fused[:heads], fused[heads : heads + 2], wide(layer.input_layernorm.weight)
    elif family == "deepseek_v3":
        return _latent(layer.self_attn, wide(layer.input_layernorm.weight))
    else:
        own, gain = layer.self_attn, wide(layer.input_layernorm.weight) + (family == "gemma2")
        query = wide(own.q_proj.weight).reshape(heads, -1, width)
        key = wide(own.k_proj.weight).reshape(-1, *query.shape[1:])
        if family == "qwen3":
            rows = [wide(norm.weight)[:, None] for norm in (own.q_norm, own.k_norm)]
            return rows[0] * query * gain, rows[1] * key * gain, query, key
    return query * gain, key * gain, query, key


def _latent(own, gain):
    query = wide(own.q_b_proj.weight).reshape(made.HEADS, 24, -1)[:, :16]
    key = wide(own.kv_b_proj.weight).reshape(made.HEADS, 28, -1)[:, :16]
    down_query = wide(own.q_a_proj.weight) * gain
    down_key = wide(own.kv_a_proj_with_mqa.weight)[:24] * gain
    whole = query @ np.diag(wide(own.q_a_layernorm.weight)) @ down_query
    return whole, key @ np.diag(wide(own.kv_a_layernorm.weight)) @ down_key, query, key


def wide(tensor):
    return tensor.detach().double().numpy().copy()


def spectra(before, now):
    """Return what a layer's columns hold, by metric, head and statistic."""
    query, key, raw_query, raw_key = before
    moved = now[0] - query, now[1] - key
    found = {}
    for name, one, other in (("query", raw_query, now[2]), ("key", raw_key, now[3])):
        values = np.linalg.svd((other - one).reshape(-1, one.shape[-1]), compute_uv=False)
        found["delta_w_entropy", -1, name] = effective(values)
        found["delta_w_entropy", -1, f"{name}_power"] = (values**2).sum()
        found["delta_w_entropy", -1, f"{name}_stable_rank"] = (values**2).sum() / values[0] ** 2
    group = len(query) // len(key)
    for head in range(len(query)):
        own = head // group
        first = moved[0][head].T @ key[own] + query[head].T @ moved[1][own]
        second = moved[0][head].T @ moved[1][own]
        for order, matrix in (("first", first), ("second", second)):
            values = np.linalg.svd(matrix, compute_uv=False)
            found[f"qk_{order}_order_entropy", head, "exp"] = effective(values)
    return found


def effective(values):
    shares = values**2 / (values**2).sum()
    shares = shares[shares > 0]
    return np.exp(-(shares * np.log(shares)).sum())


class Masters(torch.optim.Optimizer):
    """Plain gradient descent on float32 masters of bfloat16 weights, kept where FusedAdam keeps them."""

    def __init__(self, parameters, lr, kind):
        super().__init__(parameters, {"lr": lr})
        self.master_weights, self._kind, self.masters = True, kind, []

    @torch.no_grad()
    def step(self, closure=None):
        [group] = self.param_groups
        if not self.masters:
            self.masters = [item.detach().float() for item in group["params"]]
        if self._kind == "param_groups_master":
            self.param_groups_master = [{"params": self.masters}]
        for item, master in zip(group["params"], self.masters, strict=True):
            if self._kind != "param_groups_master":
                self.state[item][self._kind] = master
            if item.grad is not None:
                master.sub_(group["lr"] * item.grad.float())
                item.copy_(master)


class Wrapper:
    """Moves float32 masters by an optimizer of torch that it holds, as mixed precision of large frameworks does."""

    def __init__(self, parameters, lr, kind):
        own = [*parameters]
        flat = torch.cat([item.detach().float().flatten() for item in own])
        parts = zip(flat.split([item.numel() for item in own]), own, strict=True)
        self.masters, self.float16_groups = [part.view_as(item) for part, item in parts], [own]
        if kind == "main_param":
            for item, master in zip(own, self.masters, strict=True):
                item.main_param = master
        elif kind != "param_groups":
            setattr(self, kind, [flat] if kind.endswith("flat") else [self.masters])
        self.optimizer = torch.optim.SGD([flat] if kind.endswith("flat") else self.masters, lr=lr)

    @torch.no_grad()
    def step(self):
        [own], inner = self.float16_groups, self.optimizer.param_groups[0]["params"]
        grads = [torch.zeros_like(item) if item.grad is None else item.grad for item in own]
        if len(inner) == 1:
            grads = [torch.cat([item.flatten() for item in grads])]
        for master, grad in zip(inner, grads, strict=True):
            master.grad = grad.float()
        self.optimizer.step()
        for item, master in zip(own, self.masters, strict=True):
            item.copy_(master)

    def zero_grad(self):
        for item in self.float16_groups[0]:
            item.grad = None


KINDS = {
    **dict.fromkeys(("master_param", "master_params", "param_groups_master"), Masters),
    **dict.fromkeys(("fp32_from_float16_groups", "fp32_groups_flat", "param_groups", "main_param"), Wrapper),
}
"""By the name under which masters are kept: what keeps them."""
