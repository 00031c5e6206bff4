"""Models that the checks train, and the loop that trains them, with vitals and without."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig

from .checks import Machine, NotEvaluated

SIZES = {  # width, layers, heads, vocabulary, rows, length
    "dry": (64, 2, 4, 256, 2, 24),
    "small": (128, 3, 4, 512, 4, 192),
    "10m": (320, 6, 5, 8192, 8, 512),
    "124m": (768, 12, 12, 50304, 8, 1024),
    "1b": (2048, 18, 16, 50304, 8, 1024),
}
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attend to what came before, by the function that vitals watch."""
    return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self, width: int, heads: int, attend: Attend = causal) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, L, width]."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 8 * width // 3 // 16 * 16
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, L, width]."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A layer."""

    def __init__(self, width: int, heads: int, dropout: float, attend: Attend) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.mlp = Attention(width, heads, attend), Mlp(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, L, width]."""
        x = x + self.dropout(self.attention(self.first_norm(x)))
        return x + self.dropout(self.mlp(self.second_norm(x)))


class Model(nn.Module):
    """A Llama-like model without rotations, whose parts a mapping names."""

    def __init__(self, size: str, *, dropout: float = 0.0, attend: Attend = causal) -> None:
        super().__init__()
        width, layers, heads, vocabulary, _, _ = SIZES[size]
        self.mapping = Mapping(layers="blocks", attention="attention", heads=heads, mlp="mlp")
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, attend) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what goes into the head, [B, L, width]."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, L, vocabulary]."""
        return self.head(self.hidden(tokens))


def llama(size: str) -> nn.Module:
    """Return a Llama of transformers with two queries a key, whose attention is ``sdpa``.

    Raises:
        NotEvaluated: transformers cannot be imported.
    """
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise NotEvaluated(f"transformers cannot be imported ({error})") from None
    width, layers, heads, vocabulary, _, length = SIZES[size]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=2 * length,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).train()


def padded(rows: int, length: int) -> torch.Tensor:
    """Return bool[rows, 1, length, length], True where a key is seen; a fifth of the first row is padding.

    What is padding sees itself, so that no row sees nothing.

    With four dimensions transformers takes it as it is: what it makes of two waits for the device.
    """
    seen = torch.ones(length, length, dtype=torch.bool).tril()[None, None].repeat(rows, 1, 1, 1)
    seen[0, :, :, : length // 5] = False
    return seen | torch.eye(length, dtype=torch.bool)


class Loop:
    """A model in training.

    Args:
        machine: Where.
        model: Which; it is moved to the device.
        optimizer: Gets the parameters.
        vitals: Settings of vitals; None: without.
        compiler: Of ``torch.compile``; None: eager.
        autocast: The dtype that it runs in; None: float32.
        mask: Handed on to the model as ``attention_mask``.
        scaled: Whether a ``GradScaler`` scales the loss.
        sinks: Of vitals, beside the memory.
    """

    def __init__(
        self,
        machine: Machine,
        model: nn.Module,
        *,
        optimizer: Callable[..., torch.optim.Optimizer] | None = None,
        vitals: dict[str, Any] | None = None,
        compiler: str | None = None,
        autocast: torch.dtype | None = None,
        mask: torch.Tensor | None = None,
        scaled: bool = False,
        sinks: tuple[Any, ...] = (),
    ) -> None:
        self.device, self.autocast = machine.device, autocast
        self.model = model.to(self.device)
        own = [one for one in model.parameters() if one.requires_grad]
        make = optimizer or (lambda all_of_it: torch.optim.AdamW(all_of_it, lr=1e-3, fused=True))
        self.optimizer = make(own)
        self.sink = MemorySink()
        self.vitals: Vitals | None = None
        if vitals is not None:
            settings = {"adapt": False, "interval": 4, "window": 4, "mapping": getattr(model, "mapping", None)} | vitals
            self.vitals = Vitals(model, self.optimizer, VitalsConfig(**settings), [self.sink, *sinks])
        self.run = model if compiler is None else torch.compile(model, backend=own_compiler(compiler))
        self.named = {} if mask is None else {"attention_mask": mask.to(self.device)}
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of tokens, [B, L, vocabulary]."""
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            found = self.run(tokens, **self.named)
        return found if isinstance(found, torch.Tensor) else found.logits

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the loss of the next tokens."""
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            logits = self.logits(tokens[:, :-1])
            return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def step(self, *batches: torch.Tensor) -> torch.Tensor:
        """Update the weights by the gradients of some batches; return the last loss."""
        with self.vitals.step() if self.vitals else contextlib.nullcontext():
            for tokens in batches:
                loss = self.loss(tokens)
                self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            if self.vitals:
                self.vitals.log(loss=loss.detach())
        return loss.detach()

    def close(self) -> None:
        """End vitals.

        Raises:
            AssertionError: They did not see something, or refused a source.
        """
        if self.vitals:
            self.vitals.close()
            unseen = [(kind, detail) for _, kind, detail in self.sink.events if kind in {"not_seen", "refused"}]
            assert not unseen, f"vitals: {unseen[0][0]}: {unseen[0][1]}"


def own_compiler(name: str) -> Callable[..., Any]:
    """Return a compiler that shares no code with another call's.

    Guards do not look at hooks: a model with some would be given what was compiled for another one of its class.
    """

    def run(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        return torch._dynamo.lookup_backend(name)(graph, inputs)

    return run


def tokens_of(machine: Machine, size: str, number: int) -> list[torch.Tensor]:
    """Return batches of tokens on the device, int64[rows, length + 1], the same at every call."""
    _, _, _, vocabulary, rows, length = SIZES[size]
    draw = torch.Generator().manual_seed(7)
    return [torch.randint(1, vocabulary, (rows, length + 1), generator=draw).to(machine.device) for _ in range(number)]
