"""Small models of every family, and a little training of them, with and without being looked at."""

import contextlib
import os
import socket
import sys

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.sinks import MemorySink
from dataaudit.vitals.structure import Mapping
from dataaudit.vitals.vitals import Vitals

WIDTH, LENGTH, VOCAB, LAYERS, HEADS = 64, 24, 128, 2, 4
FAMILIES = ("llama", "gpt2", "qwen3", "mixtral", "gpt_oss", "gemma2", "multihead", "mapped")
MAPPING = Mapping(layers="blocks", attention="attention", heads=HEADS, mlp="mlp")


class Attention(nn.Module):
    """Attention that a mapping has to name."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer with dropout, so that random numbers are drawn."""

    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 96), nn.SiLU(), nn.Linear(96, WIDTH))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.first_norm(x)))
        return x + self.dropout(self.mlp(self.second_norm(x)))


class Mapped(nn.Module):
    """A model of nobody's library."""

    def __init__(self, again=False):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.again = again

    def forward(self, tokens, **_):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(self.norm(x))


class Multihead(nn.Module):
    """Layers of torch itself."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 96, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens, attention_mask=None):
        padding = None if attention_mask is None else attention_mask == 0
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1]).isinf()
        return self.head(self.encoder(self.embedding(tokens), causal, padding, is_causal=True))


class NoWaiting(TorchDispatchMode):
    """Rejects what would wait for a device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert "_local_scalar_dense" not in str(function), function
        return function(*args, **(kwargs or {}))


def model_of(family, function="sdpa", again=False):
    """Return a model of a family, with fixed weights."""
    torch.manual_seed(3)
    if family == "mapped":
        return Mapped(again)
    if family == "multihead":
        return Multihead()
    import transformers

    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": LAYERS}
    sizes |= {"num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64}
    sizes |= {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    special = {
        "llama": ("Llama", {}),
        "qwen3": ("Qwen3", {}),
        "mixtral": ("Mixtral", {"num_local_experts": 4}),
        "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
        "gemma2": ("Gemma2", {"sliding_window": 8, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 1}),
    }
    if family == "gpt2":
        sizes = {"vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64}
        special["gpt2"] = ("GPT2", {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False})
    name, more = special[family]
    config = getattr(transformers, f"{name}Config")(**sizes, **more, attn_implementation=function)
    head = "LMHeadModel" if family == "gpt2" else "ForCausalLM"
    model = getattr(transformers, name + head)(config)
    if again:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model.train()


def batch_of(step, micro=0):
    """Return tokens [2, LENGTH] and what is padding: one row begins with five of it."""
    draw = torch.Generator().manual_seed(1_000 * step + micro)
    tokens = torch.randint(1, VOCAB, (2, LENGTH), generator=draw)
    mask = torch.ones_like(tokens)
    mask[0, :5] = 0
    return tokens, mask


def loss_of(run, step, micro=0):
    """Return the loss of a batch."""
    tokens, mask = batch_of(step, micro)
    found = run(tokens, attention_mask=mask)
    logits = found if isinstance(found, torch.Tensor) else found.logits
    return nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())


def train(model, *, backend=None, watched=True, steps=3, micro_batches=2, config=None, autocast=False, optimizer=None):
    """Train a little; return everything whose bits must not change, and what was seen."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    sink, vitals = MemorySink(), None
    if watched:
        mapping = MAPPING if isinstance(model, Mapped) else None
        config = config or VitalsConfig(interval=2, micro_batches=2, mapping=mapping, adapt=False, delta=1)
        vitals = Vitals(model, optimizer, config, [sink])
    run = model if backend is None else torch.compile(model, backend=backend)
    kept = []
    for step in range(1, steps + 1):
        with vitals.step() if vitals else contextlib.nullcontext():
            for micro in range(micro_batches):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = loss_of(run, step, micro)
                loss.backward()
                kept.append(loss.detach())
            kept += [one.grad.clone() for one in model.parameters() if one.grad is not None]
            optimizer.step()
            optimizer.zero_grad()
    if vitals:
        vitals.close()
    return [*kept, *(one.detach() for one in model.parameters()), torch.get_rng_state()], sink


def go(vitals, model, steps, *optimizers):
    """Take steps within vitals: forward passes, and training where there is an optimizer."""
    for step in steps:
        with vitals.step():
            loss = loss_of(model, step)
            for own in optimizers:
                loss.backward()
                own.step()
                own.zero_grad()


def same(one, two):
    """Tell whether everything has the same bits."""
    return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def free_port():
    """Return a port of this machine that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _join(rank, ranks, port, waits, worker, *args):
    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks, timeout=waits)
    torch.manual_seed(0)
    worker(rank, *args)
    leave()


def started(worker, *args, ranks=2, waits=None):
    """Start a worker as a process of each rank of a group, given its rank and arguments."""
    given = (ranks, free_port(), waits, worker, *args)
    context = torch.multiprocessing.get_context("spawn")
    workers = [context.Process(target=_join, args=(rank, *given)) for rank in range(ranks)]
    for own in workers:
        own.start()
    return workers


def joined(workers):
    """Wait for the processes of a group; each did its work."""
    for own in workers:
        own.join(240)
    assert [own.exitcode for own in workers] == [0] * len(workers)


def spawned(worker):
    """Run a worker as two processes of a group, given rank and a queue; return the queue."""
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    joined(started(worker, queue))
    return queue


def leave():
    """End a process of a group that has done its work: threads of gloo can abort one that goes on to tidy itself up."""
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)
