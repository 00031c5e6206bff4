"""A small loop whose checkpoints are restored in a process of its own."""

import json
import os
import time

import numpy as np
import torch

from dataaudit.live import ProbeBatch, load_state

VOCABULARY, CONTEXT, ROWS = 64, 16, 8
TRAINER_FILES = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


def parts():
    """Return model, optimizer, scheduler and scaler of a loop; dropout and batch norm have states of their own."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(VOCABULARY, 32),
        torch.nn.Dropout(0.2),
        torch.nn.Flatten(0, 1),
        torch.nn.BatchNorm1d(32),
        torch.nn.Linear(32, VOCABULARY),
        torch.nn.Unflatten(0, (-1, CONTEXT)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100),
        "scaler": torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=3),
    }


def train(own, steps, after=lambda step: None):
    """Train some steps on random tokens, and return the bytes of all losses."""
    model, optimizer, scheduler, scaler = own.values()
    losses = []
    for step in range(1, steps + 1):
        ids = torch.randint(0, VOCABULARY, (ROWS, CONTEXT))
        noise = torch.tensor(np.random.standard_normal(1), dtype=torch.float32)  # noqa: NPY002 - the loop's own
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()) + 0 * noise.sum()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        losses.append(loss.detach().numpy().tobytes())
        after(step)
    return losses


def batch():
    """Return a frozen batch."""
    return ProbeBatch(torch.randint(0, VOCABULARY, (5, CONTEXT), generator=torch.Generator().manual_seed(1)))


def build(path):
    """Restore all of it."""
    own = parts()
    load_state(path, own)
    return own


def build_sleeping(path):
    """Note the process, and never return."""
    (path.parents[2] / "restoring").write_text(str(os.getpid()))
    time.sleep(600)


def build_failing(path):
    """Print, and fail as code does."""
    print("loading", path)
    raise RuntimeError("size mismatch for 0.weight")


def build_dying(path):
    """End as the memory killer would end it."""
    print("a shard of 9 GB")
    os.abort()


def build_safetensors(path):
    """Restore weights by safetensors, the rest by torch."""
    from safetensors.torch import load_model

    own = parts()
    load_state(path, {name: own[name] for name in ("optimizer", "scheduler", "scaler")})
    load_model(own["model"], path / "model.safetensors")
    return own


def build_dcp(path):
    """Restore by torch's distributed checkpoints, in one process."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    module = parts()["model"]
    adam = torch.optim.AdamW(module.parameters(), 1e-2)
    model, optimizer = get_state_dict(module, adam)
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=path)
    set_state_dict(module, adam, model_state_dict=model, optim_state_dict=optimizer)
    model, optimizer = get_state_dict(module, adam)
    return {"model": model, "optimizer": optimizer}


def build_trainer(path):
    """Restore a checkpoint of transformers' trainer, as `resume_from_checkpoint` does."""
    import random

    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(path)
    names = ("bias", "LayerNorm.weight", "ln_")
    decayed = [own for name, own in model.named_parameters() if not any(part in name for part in names)]
    others = [own for name, own in model.named_parameters() if any(part in name for part in names)]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others}])
    states = [torch.load(path / name, weights_only=False) for name in TRAINER_FILES]
    optimizer.load_state_dict(states[0])
    random.setstate(states[2]["python"])
    np.random.set_state(states[2]["numpy"])  # noqa: NPY002 - the loop's own
    torch.set_rng_state(states[2]["cpu"])
    assert json.loads((path / "trainer_state.json").read_text())["global_step"]
    return {"model": model, "optimizer": optimizer, "scheduler": states[1]}
