"""A run of the laboratory: a small model that trains on real text with vitals beside it, and may be given a fault."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from dataaudit.lab.model import Model, Size
from dataaudit.lab.monitors import Series
from dataaudit.lab.text import VOCABULARY, Text
from dataaudit.vitals import Mapping, Vitals, VitalsConfig


class Run:
    """A run that another run can go on from, ``before`` being its series; ``sparse``: with experts.

    ``delta`` is the steps between the weights that update spectra compare.
    """

    def __init__(
        self, seed: int, text: Text, size: Size, *, sparse: bool, delta: int, before: Series | None = None
    ) -> None:
        self.seed, self.text, self.size, self.sparse, self.delta = seed, text, size, sparse, delta
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(seed)
        self.model = Model(size, sparse=sparse).to(self.device)
        routers = self.model.routers()
        known = {id(item) for item in routers}
        groups = [{"params": [item for item in self.model.parameters() if id(item) not in known]}]
        groups += [{"params": routers}] if routers else []
        self.optimizer = torch.optim.AdamW(groups, lr=size.rate, betas=(0.9, 0.95), fused=True)
        self.draw = np.random.default_rng(seed)
        self.rows, self.spoilt, self.balance = size.rows, 0.0, size.balance
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.series = Series(before)
        router = "mlp.router" if sparse else None
        mapping = Mapping(layers="blocks", attention="attention", heads=size.heads, mlp="mlp", router=router)
        config = VitalsConfig(
            preset="medium", adapt=False, escalate=0, sampled_rows=16, delta=delta, window=64, mapping=mapping
        )
        self.vitals = Vitals(self.model, self.optimizer, config, [self.series])

    def attention(self, fault: Any) -> None:
        """Give attention of every layer a fault; None takes it away."""
        for block in self.model.blocks:
            block.attention.fault = fault

    def scale_weights(self, factor: float) -> None:
        """Scale all matrices of the layers: a bad initialisation."""
        with torch.no_grad():
            for item in self.model.blocks.parameters():
                if item.dim() > 1:
                    item.mul_(factor)

    def withdraw(self) -> None:
        """Take a fault away; what it did to weights and to the optimizer's state stays."""
        self.attention(None)
        self.rows, self.spoilt, self.balance = self.size.rows, 0.0, self.size.balance
        for own in self.optimizer.param_groups:
            own["lr"] = self.size.rate

    def branch(self) -> Run:
        """Return a run that goes on from here by itself."""
        saved = self.vitals.state_dict()  # which also waits for numbers on their way
        made = Run(self.seed, self.text, self.size, sparse=self.sparse, delta=self.delta, before=self.series)
        made.model.load_state_dict(self.model.state_dict())
        made.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        made.vitals.load_state_dict(saved)
        made.draw = copy.deepcopy(self.draw)
        made.losses, made.norms = list(self.losses), list(self.norms)
        torch.manual_seed(self.seed)
        return made

    def step(self) -> None:
        """Train a step."""
        rows = self.text.rows(self.draw, self.size.rows, self.size.length + 1)[: self.rows]
        if self.spoilt:
            bad = self.draw.random(rows.shape) < self.spoilt
            rows = np.where(bad, self.draw.integers(0, VOCABULARY, rows.shape), rows)
        tokens = torch.from_numpy(rows).to(self.device)
        with self.vitals.step():
            logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            total = loss
            if self.sparse:
                total = loss + self.balance * sum(block.mlp.aux for block in self.model.blocks)
            total.backward()
            norm = nn.utils.get_total_norm([item.grad for item in self.model.parameters() if item.grad is not None])
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.losses.append(float(loss.detach()))
        self.norms.append(float(norm))
