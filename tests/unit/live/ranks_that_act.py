"""Four processes train together by gloo, and act together; a rank may hang.

    python ranks_that_act.py FOLDER CASE...

Torch is imported once, and the ranks of each case are forks. FOLDER/CASE/result-RANK.json is what a rank did.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # an optimizer's first step would import it in each rank
import torch.distributed as dist

from dataaudit.live import Actions, Agreement, Alerts, LowerRate, Pause, SaveCheckpoint, SkipBatches, Stop
from dataaudit.live.rules import AlertsFile
from dataaudit.vitals.sinks import RunLogSink

RANKS, HUNG, STEPS, ASKED = 4, 3, 12, 4


class Chosen(dist.PrefixStore):
    """A store by another name: what is handed over is any store of torch."""


def main(folder: Path, rank: int, case: str) -> None:
    """Train a weight, whose gradient is the mean of all ranks'."""
    dist.init_process_group("gloo", f"file://{folder / 'meet'}", rank=rank, world_size=RANKS)
    keys = dist.FileStore(str(folder / "keys"), RANKS) if case == "file" else _server(folder, rank)
    sink = RunLogSink(folder / "run", rank=rank, ranks=RANKS)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], 1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    saved: list[int] = []
    agreement = Agreement(Chosen("actions", keys), rank, RANKS, timeout=2.0 if case.startswith("hung") else 30.0)
    actions = Actions(
        folder / "run",
        LowerRate(optimizer, 0.5),
        SkipBatches(2),
        SaveCheckpoint(saved.append),
        Stop(),
        Pause(at_most=0.5, afterwards="go on", if_missing="go on" if case == "hung-go-on" else "stop"),
        agreement=agreement,
        sink=sink,
    )
    actions.joins(rank, RANKS, sink)
    rule = {"name": "high", "about": "x", "severity": 1, "metric": "loss", "threshold": {"above": 5}}
    rule |= {"actions": ["lower_rate", "skip_batches", "save_checkpoint", "stop"]}
    alerts = Alerts(folder / "run", AlertsFile.model_validate({"version": 1, "rules": [rule]}), actions=actions)
    alerts.joins(rank, 0)
    rates, batches, step = [], [], 0
    feed = actions.loader(range(1000))
    optimizer.register_step_pre_hook(lambda own, *_: rates.append(own.param_groups[0]["lr"]))
    until = time.monotonic() + 60
    hangs = {"hung-unseen": ASKED, "hung-go-on": ASKED + 2, "hung-stop": ASKED + 2}
    while step < STEPS or (case == "rule" and not actions.should_stop and time.monotonic() < until):
        step += 1
        batches.append(next(feed))
        weight.grad = torch.ones(1)
        if case != "hung-unseen" or step <= ASKED:
            dist.all_reduce(weight.grad)
            weight.grad /= RANKS
        optimizer.step()
        schedule.step()
        if case == "rule":
            loss = 9.0 if rank == 2 and step == ASKED else 3.0
            row = {name: [0] for name in ("micro_batches", "targets", "scored", "merged")}
            alerts.take("steps", {**row, "step": [step], "time": [0.0], "loss_sum": [0.0], "user_loss": [loss]})
            time.sleep(0.01)
        if case in {"loop", "file"} and step == ASKED and rank in {0, 2}:
            for name in ("lower_rate", "save_checkpoint", "skip_batches"):
                actions.do(name)
        if case.startswith("hung") and step == ASKED and rank == 0:
            actions.do("lower_rate")
            actions.do("pause", "look at it")
        if rank == HUNG and step == hangs.get(case):
            time.sleep(3600)  # where no collective is under way
        actions.between_steps(step)
        if case == "hung-unseen" and step == ASKED:  # no collective keeps the others from running ahead of the request
            keys.set("asked", "") if rank == 0 else keys.wait(["asked"])
        if actions.should_stop or (case == "hung-go-on" and step == ASKED + 2):
            break
    facts = {
        "rates": rates,
        "batches": batches,
        "saved": saved,
        "step": step,
        "stop": actions.stop_reason,
        "records": [(own["action"], own["result"], own["step"], own["words"]) for own in actions.records],
    }
    alerts.close()
    sink.close()
    (folder / f"result-{rank}.json").write_text(json.dumps(facts))
    ends = range(RANKS - case.startswith("hung"))
    while not all((folder / f"result-{other}.json").exists() for other in ends) and time.monotonic() < until:
        time.sleep(0.01)  # rank 0 serves the store, and connections to the others are in use
    os._exit(0)  # a group with a rank that hangs cannot be left well


def _server(folder: Path, rank: int) -> dist.Store:
    """Return a store that rank 0 serves."""
    port = folder / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=dt.timedelta(seconds=60))
        (folder / "port.tmp").write_text(str(store.port))
        (folder / "port.tmp").rename(port)
        return store
    while not port.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(port.read_text()), timeout=dt.timedelta(seconds=60))


def together(folder: Path, case: str) -> None:
    """Run the ranks of a case, until all that do not hang have ended."""
    folder.mkdir()
    ranks = []
    for rank in range(RANKS):
        if not (process := os.fork()):
            try:
                main(folder, rank, case)
            finally:
                os._exit(1)
        ranks.append(process)
    for rank, process in enumerate(ranks):
        if rank == HUNG and case.startswith("hung"):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        together(Path(sys.argv[1]) / name, name)
