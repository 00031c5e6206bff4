"""A training loop of a few steps on gloo that fails on purpose: `torchrun failing.py CASE`; record.py runs it."""

import ctypes
import datetime as dt
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, Dataset

CASE = sys.argv[1]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LAST = RANKS - 1
STEPS, FAILING_STEP = 6, 4
LOG = logging.getLogger("train")


class Rows(Dataset):
    """Random rows; some cases break one."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if RANK == 0 and index == 13:
            if CASE == "worker-killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if CASE == "bad-row":
                raise ValueError(f"row {index}: expected 32 tokens, found 7")
            if CASE == "lost-shard":
                Path("shard-00013.bin").read_bytes()
        return torch.ones(8)


def loss_of(model, batch, step):
    """The forward pass."""
    if step == FAILING_STEP and RANK == LAST:
        if CASE in {"assertion", "tee", "restart", "record", "per-rank"}:
            assert batch.shape[1] == 9, f"expected 9 columns, found {batch.shape[1]}"
        if CASE == "memory":
            held = []
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
            while True:
                held.append(np.zeros(1 << 20))
        if CASE == "allocator":
            torch.empty(1 << 50, dtype=torch.uint8)
        if CASE == "shapes":
            return model(batch[:, :5]).sum()
    return model(batch).sum()


def save(model):
    """The checkpoint."""
    target = "/dev/full" if CASE == "disk-full" and RANK == 0 else f"checkpoint-{RANK}.pt"
    LOG.info("saving checkpoint to checkpoint-%d.pt", RANK)
    with open(target, "wb") as file:
        file.write(bytes(1 << 20))
        torch.save(model.state_dict(), file)
    LOG.info("saved checkpoint")


def evaluate(model):
    """The evaluation."""
    if CASE == "evaluation" and RANK == 1:
        raise KeyError("validation/loss")
    return float(model(torch.ones(4, 8)).mean())


@record
def main():  # noqa: PLR0912  (cases)
    """Train."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if CASE == "late" and RANK == LAST:
        time.sleep(20)
    more = {}
    if CASE == "restart":  # what gloo left in the store at the first attempt harms the second
        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), RANKS, is_master=False)
        prefix = os.environ["TORCHELASTIC_RESTART_COUNT"]
        more = {"store": dist.PrefixStore(prefix, store), "rank": RANK, "world_size": RANKS}
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=8 if CASE in {"hang", "late"} else 60), **more)
    model = torch.nn.Linear(8, 1)
    workers = 1 if CASE in {"worker-killed", "bad-row"} else 0
    LOG.info("rank %d of %d, error feedback off, max_error=0, on_error=raise", RANK, RANKS)
    for step, batch in enumerate(DataLoader(Rows(), batch_size=8, num_workers=workers), 1):
        if CASE == "terminated" and step == FAILING_STEP:
            Path(f"ready-{RANK}").touch()
            time.sleep(60)
        if step == FAILING_STEP and RANK == LAST:
            if CASE == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if CASE == "segfault":
                ctypes.string_at(0)
            if CASE == "hang":
                time.sleep(25)
        if CASE == "restart" and int(os.environ["TORCHELASTIC_RESTART_COUNT"]):
            loss = model(batch).sum()
        else:
            loss = loss_of(model, batch, step)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if RANK == 0:
            print(f"iteration {step}/ {STEPS} | lm loss: {loss.item():.4f} | error rate: 0.0 | nan: 0", flush=True)
        if step == STEPS:
            break
    save(model)
    LOG.info("evaluation: %.3f", evaluate(model))
    dist.barrier()
    dist.destroy_process_group()
    LOG.info("training done, 0 errors")


main()
