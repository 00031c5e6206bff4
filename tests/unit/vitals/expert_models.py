"""Small mixtures of experts of every family, and a slow reference in float64 and plain Python of what they choose."""

import copy
import math

import torch
import vitals_models as made
from torch import nn

from dataaudit.vitals.structure import Mapping

FAMILIES = ("mixtral", "qwen3_moe", "deepseek_v3", "olmoe", "gpt_oss", "mapped")
MAPPING = Mapping(layers="blocks", attention="attention", heads=made.HEADS, mlp="moe", router="moe.scores", top_k=2)
_MORE = {
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 8, "num_experts_per_tok": 3}),
    "deepseek_v3": (
        "DeepseekV3",
        {"n_routed_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2}
        | {"first_k_dense_replace": 1, "kv_lora_rank": 8, "q_lora_rank": 16, "qk_nope_head_dim": 8, "head_dim": 4}
        | {"qk_rope_head_dim": 4, "v_head_dim": 8, "num_key_value_heads": 4},
    ),
    "olmoe": ("Olmoe", {"num_experts": 8, "num_experts_per_tok": 2}),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
}


class MoE(nn.Module):
    """A top-k mixture that nobody has seen; every expert sees every token, so that a compiler needs no break."""

    def __init__(self, experts):
        super().__init__()
        self.scores = nn.Linear(made.WIDTH, experts)
        self.experts = nn.ModuleList(nn.Linear(made.WIDTH, made.WIDTH) for _ in range(experts))

    def forward(self, x):
        best = self.scores(x).topk(2, -1)
        weights = torch.zeros(*x.shape[:-1], len(self.experts)).scatter(-1, best.indices, best.values.softmax(-1))
        return sum(weights[..., at : at + 1] * expert(x).tanh() for at, expert in enumerate(self.experts))


class Block(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.first_norm, self.second_norm = nn.RMSNorm(made.WIDTH), nn.RMSNorm(made.WIDTH)
        self.attention, self.moe = made.Attention(), MoE(experts)

    def forward(self, x):
        x = x + self.attention(self.first_norm(x))
        return x + self.moe(self.second_norm(x))


class Own(made.Mapped):
    """A model whose router a mapping has to name."""

    def __init__(self, experts=5, again=False):
        super().__init__(again)
        self.blocks = nn.ModuleList(Block(experts) for _ in range(made.LAYERS))


def model_of(family, again=False):
    torch.manual_seed(3)
    if family == "mapped":
        return Own(again=again)
    import transformers

    name, more = _MORE[family]
    sizes = {"vocab_size": made.VOCAB, "hidden_size": made.WIDTH, "intermediate_size": 96, "moe_intermediate_size": 32}
    sizes |= {"num_hidden_layers": made.LAYERS, "num_attention_heads": made.HEADS, "num_key_value_heads": 2}
    sizes |= {"head_dim": 16, "max_position_embeddings": 64, "use_cache": False, "router_jitter_noise": 0.0}
    sizes |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**{**sizes, **more}))
    for name, parameter in model.named_parameters():
        if "gate.weight" in name or "router.weight" in name:
            parameter.data.normal_(0, 0.1)
    for name, buffer in model.named_buffers():
        if "e_score_correction_bias" in name:
            buffer.normal_(0, 0.05)
    if again:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model.train()


def routers_of(model):
    """Return by layer its router, by the names that each family gives it."""
    ends = ("mlp.gate", "mlp.router", "moe.scores")
    named = {name: module for name, module in model.named_modules() if name.endswith(ends)}
    return {int(next(part for part in name.split(".") if part.isdigit())): module for name, module in named.items()}


def chosen_by(router, family, logits):
    """Return the experts of a token, of a list of its logits in float64."""
    k = getattr(router, "top_k", 2)
    scores = dict(enumerate(logits))
    if family == "deepseek_v3":
        bias = router.e_score_correction_bias.tolist()
        scores = {at: 1 / (1 + math.exp(-value)) + bias[at] for at, value in scores.items()}
        size = len(logits) // router.num_group
        groups = [range(at * size, (at + 1) * size) for at in range(router.num_group)]
        groups.sort(key=lambda own: -sum(sorted(scores[at] for at in own)[-2:]))
        scores = {at: scores[at] for own in groups[: router.topk_group] for at in own}
    return sorted(scores, key=lambda at: -scores[at])[:k]


def reference(model, family, batches):
    """Return by layer what a step of some batches is, in float64 and plain Python."""
    model = copy.deepcopy(model)
    given = {layer: [] for layer in routers_of(model)}
    for layer, module in routers_of(model).items():
        module.register_forward_pre_hook(lambda _, args, own=given[layer]: own.append(args[0].detach()))
    with torch.no_grad():
        for tokens, mask in batches:
            model(tokens, attention_mask=mask)
    found = {}
    for layer, router in routers_of(model).items():
        weight = router.weight.detach().double()
        inputs = torch.cat([item.double().reshape(-1, weight.shape[1]) for item in given[layer]])
        logits = inputs @ weight.T
        if getattr(router, "bias", None) is not None:
            logits = logits + router.bias.detach().double()
        experts = len(weight)
        counts, sums, entropy, picks = [0] * experts, [0.0] * experts, 0.0, []
        for row in logits.tolist():
            raw = [1 / (1 + math.exp(-v)) if family == "deepseek_v3" else math.exp(v - max(row)) for v in row]
            shares = [value / sum(raw) for value in raw]
            entropy -= sum(value * math.log(value) for value in shares if value)
            sums = [a + b for a, b in zip(sums, shares, strict=True)]
            picks.append(chosen_by(router, family, row))
            for at in picks[-1]:
                counts[at] += 1
        found[layer] = numbers_of(counts, sums, entropy, len(picks)) | {"counts": counts, "picks": picks}
    return found


def numbers_of(counts, sums, entropy, tokens):
    total, experts = sum(counts), len(counts)
    shares = [count / total for count in counts]
    even = total / experts
    return {
        ("router_token_entropy", "mean"): entropy / tokens,
        ("router_token_entropy", "normalised"): entropy / tokens / math.log(experts),
        ("moe_util_entropy", "normalised"): -sum(s * math.log(s) for s in shares if s) / math.log(experts),
        ("moe_util_entropy", "cv"): math.sqrt(sum((count - even) ** 2 for count in counts) / experts) / even,
        ("moe_load_balance_loss", "switch"): experts
        * sum(share * own / tokens for share, own in zip(shares, sums, strict=True)),
    }


def of_rows(weight):
    """Return the mean cosine of all pairs of rows, and how far the farthest lies from their mean, over its length."""
    rows = weight.detach().double().tolist()
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    pairs = [(a, b) for at, a in enumerate(rows) for b in rows[:at]]
    cosines = [sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b) for a, b in pairs]
    far = max(math.dist(row, mean) for row in rows)
    return {
        ("router_weight_similarity", "mean_cosine"): sum(cosines) / len(cosines),
        ("router_centered_conditioning", "ratio"): far / math.hypot(*mean),
    }
