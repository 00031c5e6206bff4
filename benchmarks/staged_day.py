"""A day of faults on a small run: what is alerted, when, how gravely, and what its healthy counterpart raises.

    OMP_NUM_THREADS=1 python benchmarks/staged_day.py OUT [--seed 7] [--healthy 10000] [--faults nan kill ...]

A GPT of half a million parameters learns Python's own library in a process of its own; `dataaudit watch` follows its
log. Faults come at steps that the seed draws. The run is killed, resumed, runs out of memory and is resumed again.
In a second run of two processes a rank hangs. `--healthy N` trains N steps without a fault; `--healthy 0`: none.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from common import head, row
from torch.nn import functional

from dataaudit.live import Checkpoints, Heartbeat, Heartbeats, load_state, save_state
from dataaudit.runlog.reader import load_run
from dataaudit.training import (
    Documents,
    PackedDocuments,
    TrainingMonitor,
    WatchedRun,
    byte_encoder,
    open_manifest,
    watch_run,
)
from dataaudit.vitals import Mapping, VitalsConfig

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "pipelines"))
demo_train: Any = importlib.import_module("demo_train")  # the demo's model and corpus

CONTEXT, ROWS, EPOCHS = 64, 8, 40
SILENT_SECONDS = 20
"""Of a blackout here; the shipped rule waits for 600."""
SAVED = 200
"""Steps between checkpoints."""
EARLIER = 250
"""Steps that a log may lack of a process that was killed."""
RESUMED = 300
"""Steps between the resume and the end."""


class Fault(NamedTuple):
    """A fault, and what should be said of it."""

    first: tuple[int, int]
    """Steps that its first is drawn from."""
    steps: int
    """How long it lasts."""
    group: str
    """Of the incident; empty: none should come."""
    severity: int
    within: int
    """Steps from the first until it must be alerted."""


FAULTS = {
    "slow loader, dead webhook": Fault((700, 850), 110, "throughput", 2, 110),
    "NaN": Fault((1_000, 1_100), 1, "numerics", 0, 1),
    "overflow storm": Fault((1_250, 1_350), 140, "overflow", 0, 140),
    "disk full": Fault((1_600, 1_700), 600, "monitoring", 2, 1_000),
    "logit runaway": Fault((2_400, 2_500), 60, "attention", 1, 60),
    "clock jump": Fault((2_600, 2_700), 100, "", 3, 0),
    "cut checkpoint": Fault((2_750, 2_790), 1, "checkpoints", 0, 700),
    "mixture drift": Fault((3_050, 3_150), 250, "data", 2, 400),
    "kill": Fault((3_550, 3_600), 1, "monitoring", 0, 0),
    "out of memory": Fault((3_750, 3_800), 1, "run_failed", 0, 1),
}


def moments(seed: int, names: list[str]) -> dict[str, int]:
    """Return the first step of each fault, drawn by a seed."""
    draw = np.random.default_rng(seed)
    drawn = {name: int(draw.integers(*fault.first)) for name, fault in FAULTS.items()}
    return {name: step for name, step in drawn.items() if name in names}


class Loop:
    """A run and its faults."""

    def __init__(self, out: Path, run: Path, last: int, faults: dict[str, int]) -> None:
        torch.manual_seed(0)
        self.run, self.last, self.faults = run, last, faults
        self.checkpoints = out / f"{run.name}.checkpoints"
        self.corpus = open_manifest(out / "manifest", require="verified")
        documents = Documents(self.corpus, "train", byte_encoder(end=0))
        self.rows = PackedDocuments(documents, CONTEXT, epochs=EPOCHS)
        self.model, self.optimizer, self.scaler = parts_of().values()
        self.kept: Any = None
        self.real_time = time.time

    def during(self, name: str, step: int) -> bool:
        """Return whether a fault is there."""
        first = self.faults.get(name)
        return first is not None and first <= step < first + FAULTS[name].steps

    def ends(self, name: str, step: int) -> bool:
        """Return whether a step is the last of a fault."""
        return self.during(name, step) and not self.during(name, step + 1)

    def batches(self, first: int) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the batches of steps; of a drifting mixture, rows of one source alone."""
        for step in range(first, self.last + 1):
            own = range((step - 1) * ROWS, step * ROWS)
            if self.during("mixture drift", step):
                start = step * ROWS
                own = [at for at in range(start, start + 40 * ROWS) if self.source_of(at) == 0][:ROWS]
            if self.during("slow loader, dead webhook", step):
                time.sleep(0.03)
            yield torch.utils.data.default_collate([self.rows[at] for at in own])

    def source_of(self, index: int) -> int:
        """Return the source of a row's first document."""
        document = self.rows.order[np.searchsorted(self.rows.ends, index * CONTEXT, side="right")]
        shard = np.searchsorted(self.rows.documents.starts, document, side="right") - 1
        return 0 if "/docs/" in self.corpus.table["uri"][int(shard)].as_py() else 1

    def rate(self, step: int) -> float:
        """Return the learning rate: a warm-up, then a cosine to a tenth."""
        return 1e-3 * min(1.0, step / 200) * (0.55 + 0.45 * float(np.cos(np.pi * min(1.0, step / self.last))))

    def before(self, step: int) -> None:
        """Do to the model and the process what a fault does before a step."""
        attention = self.model.blocks[1].attention
        if step in (self.faults.get("NaN"), self.faults.get("logit runaway")):
            self.kept = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        if self.during("NaN", step):
            with torch.no_grad():
                self.model.blocks[1].mlp[0].weight[0, 0] = float("nan")
        if self.during("logit runaway", step):
            with torch.no_grad():
                attention.qkv.weight[: 2 * demo_train.WIDTH].mul_(1.1)
        if step == self.faults.get("clock jump"):
            time.time = lambda: self.real_time() + 3_600.0
        if not self.during("clock jump", step):
            time.time = self.real_time
        if step == self.faults.get("disk full"):
            fill(self.run)
        if self.ends("disk full", step - 1):
            (self.run / "filler").unlink()
        if self.during("out of memory", step):
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            torch.ones(1 << 33)

    def after(self, step: int) -> None:
        """Go back to what was kept, as somebody would; end by a kill."""
        for name in ("NaN", "logit runaway"):
            if self.ends(name, step):
                self.model.load_state_dict(self.kept[0])
                self.optimizer.load_state_dict(self.kept[1])
        if self.during("kill", step):
            os.kill(os.getpid(), signal.SIGKILL)

    def train(self, alerts_file: Path) -> None:
        """Train from the last good checkpoint to the last step."""
        own = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        saved: dict[str, Any] = {}

        def read(path: Path) -> None:
            load_state(path, own)
            saved.update(torch.load(path / "run.pt"))

        with Checkpoints(self.checkpoints, restore_test=f"{__file__}:restored") as checkpoints:
            good = checkpoints.restore(read)
            parts = Mapping(layers="blocks", attention="attention", heads=demo_train.HEADS, mlp="mlp")
            with watch_run(
                self.model,
                self.optimizer,
                self.corpus,
                "medium",
                folder=self.run,
                rules=alerts_file,
                vitals=VitalsConfig(preset="medium", mapping=parts),
                state=saved or None,
                checkpoints=checkpoints,
                planned_tokens=self.last * ROWS * CONTEXT,
                scaler=self.scaler,
            ) as run:
                for batch in run.loader(self.batches(good.step + 1 if good else 1)):
                    step = run.monitor.steps + 1
                    self.before(step)
                    with run.step():
                        self.update(step, batch, run)
                    self.after(step)
                    if step % SAVED == 0:
                        write = partial(keep, own, run.state_dict())
                        made = checkpoints.save(step, write, state=own)
                        if made and 0 <= step - self.faults.get("cut checkpoint", step + 1) < SAVED:
                            os.truncate(made.path / "run.pt", 1_000)
                            os.truncate(made.path / "state.pt", 100_000)

    def update(self, step: int, batch: dict[str, torch.Tensor], run: WatchedRun) -> None:
        """Make a step."""
        logits = self.model(batch["input_ids"])
        losses = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
        run.batch(batch["tags"], losses=losses.view(ROWS, CONTEXT), labels=batch["labels"])
        loss = losses.mean()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        if self.during("overflow storm", step):
            self.model.head.weight.grad.fill_(float("inf"))
        self.scaler.unscale_(self.optimizer)
        run.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        run.log(loss)


def keep(parts: dict[str, Any], state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint: the parts of the loop, and what watches it."""
    save_state(path, parts)
    torch.save(state, path / "run.pt")


def parts_of() -> dict[str, Any]:
    """Return new parts of the loop."""
    model = demo_train.Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, backoff_factor=0.95)
    return {"model": model, "optimizer": optimizer, "scaler": scaler}


def restored(path: Path) -> dict[str, Any]:
    """Return the parts as a checkpoint has them; a process of its own calls it."""
    own = parts_of()
    load_state(path, own)
    return own


def fill(folder: Path) -> None:
    """Fill the file system of a folder."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def hang(run: Path, out: Path, step: int) -> None:
    """Be one of two ranks that meet in every step; the second does not come any more after a step."""
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo")
    corpus = open_manifest(out / "manifest", require="verified")
    rows = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), CONTEXT)
    with Heartbeat(run / "beats", rank, 1.0, ranks=2) as beat, TrainingMonitor(run, corpus) as monitor:
        for number in range(1, 10_000):
            batch = torch.utils.data.default_collate([rows[2 * number + rank]])
            monitor.batch(batch["tags"])
            if (rank, number) == (1, step):
                time.sleep(10_000)
            torch.distributed.all_reduce(torch.ones(1))
            monitor.step(torch.tensor(3.0))
            beat.step(number)
            time.sleep(0.02)


def prepare(out: Path) -> None:
    """Write the corpus and its manifest."""
    demo_train.BAD = ("", -1)
    demo_train.write_corpus(out)
    text = (ROOT / "pipelines/demo-train.yaml").read_text().replace("../demo-train/", "")
    (out / "day.yaml").write_text(text)
    call = [sys.executable, "-m", "dataaudit", "build", "day.yaml", "--manifest", "manifest"]
    done = subprocess.run([*call, "--workers", "0", "--quiet"], cwd=out, stdout=subprocess.DEVNULL, check=False)
    if not (out / "manifest").exists():
        raise SystemExit(f"the manifest was not built, exit code {done.returncode}")


def rules_file(out: Path, url: str) -> Path:
    """Write the shipped rules with a webhook and a shorter blackout; return the file."""
    rules = yaml.safe_load((ROOT / "dataaudit/live/alerts.yaml").read_text())
    if url:
        rules["deliver"] = [{"name": "hook", "to": "webhook", "url": url}]
    for rule in rules["rules"]:
        if rule["name"] == "monitoring_blackout":
            rule["absent"] = {"seconds": SILENT_SECONDS}
    path = out / "alerts.yaml"
    path.write_text(yaml.safe_dump(rules))
    return path


def process(out: Path, run: Path, last: int, faults: dict[str, int], log: Path) -> int:
    """Train in a process of its own; return its exit code."""
    call = [sys.executable, __file__, str(out), "--work", str(run), "--last", str(last), "--at", json.dumps(faults)]
    with log.open("ab") as file:
        return subprocess.run(call, stdout=file, stderr=file, check=False).returncode


@contextlib.contextmanager
def watching(run: Path, rules: Path, log: Path, shown: Path) -> Iterator[None]:
    """Watch a run log from another process."""
    call = [sys.executable, "-m", "dataaudit", "watch", str(run), "--alert", str(rules), "--log", str(log)]
    with shown.open("ab") as file:
        waits = ["bash", "-c", 'until [ -e "$0/run.json" ]; do sleep 0.2; done; exec "$@"', str(run)]
        watch = subprocess.Popen([*waits, *call, "--interval", "2"], stdout=file, stderr=file)
        try:
            yield
        finally:
            watch.terminate()
            watch.wait(60)


def hung(out: Path, seed: int) -> None:
    """Run two ranks, of which the second hangs, and print what was said and after how long."""
    run, step = out / "hung", int(np.random.default_rng(seed).integers(100, 150))
    shutil.rmtree(run, ignore_errors=True)
    rules, began = rules_file(out, ""), time.monotonic()
    call = [sys.executable, __file__, str(out), "--work", str(run), "--hang", str(step)]
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29_000 + os.getpid() % 1_000), "WORLD_SIZE": "2"}
    with (out / "hung.log").open("wb") as log, watching(run, rules, out / "hung.log", out / "hung.watch.txt"):
        ranks = [
            subprocess.Popen(call, env={**os.environ, **own, "RANK": str(rank)}, stdout=log, stderr=log)
            for rank in range(2)
        ]
        while not incidents(run) and time.monotonic() - began < 300:
            time.sleep(0.5)
        for rank in ranks:
            rank.kill()
    print(f"\nhung rank: the second of two, after step {step}")
    for each in incidents(run):
        print(f"  {in_words(each)}; ranks {each['ranks']}")
    print("  " + Heartbeats(run / "beats").read().text().replace("\n", "\n  "))


def incidents(run: Path) -> list[dict[str, Any]]:
    """Return the incidents of a run log, by their first steps."""
    found = [json.loads(path.read_text()) for path in (run / "alerts").glob("*/incident.json")]
    return sorted(found, key=lambda each: each["first_step"])


class Webhook:
    """A server that takes messages; nothing answers before :meth:`start`."""

    def __init__(self) -> None:
        messages: list[tuple[float, dict[str, Any]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append((time.time(), json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.messages = messages
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.server_bind()  # connections are refused until it listens
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def start(self) -> None:
        """Answer."""
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


def staged(out: Path, names: list[str], seed: int) -> None:
    """Run the day, and print what was said of each fault."""
    run, log, shown = out / "disk/day", out / "day.log", out / "watch.txt"
    for path in (log, shown):
        path.unlink(missing_ok=True)
    hook, faults = Webhook(), moments(seed, names)
    rules = rules_file(out, hook.url)

    def come_back() -> None:
        while not list((run / "alerts").glob("*throughput*")):
            time.sleep(0.5)
        time.sleep(5)
        hook.start()

    threading.Thread(target=come_back, daemon=True).start()
    last = max(faults.values()) + RESUMED
    with watching(run, rules, log, shown):
        for _ in range(3):
            code = process(out, run, last, faults, log)
            print(f"the process ended with exit code {code}", flush=True)
            if code == 0:
                break
            ended = "kill" if code == -signal.SIGKILL else "out of memory"
            faults = {name: at for name, at in faults.items() if at > faults.get(ended, 0)}
            time.sleep(SILENT_SECONDS + 15)  # nobody notices at once
    table(run, moments(seed, names), hook)


def took(run: Path, own: dict[str, Any]) -> str:
    """Return seconds from the step that an incident was opened by to its evidence; empty where that step is lost."""
    steps = load_run(run).table("steps").to_pylist()
    times = [each["time"] for each in steps if each["step"] == own["alerts"][0]["step"]]
    opened = (run / "alerts" / own["id"] / "runbook.md").stat().st_mtime
    since = [opened - time for time in times if time <= opened]
    return f"{min(since):.1f}" if since else ""


def in_words(own: dict[str, Any]) -> str:
    """Return a line of an incident."""
    return f"{own['id']} severity {own['severity']}: {own['rules'][0]['name']}, {own['alerts'][0].get('seen')}"


def table(run: Path, faults: dict[str, int], hook: Webhook) -> None:
    """Print a row a fault, and what came beside."""
    left = {each["id"]: each for each in incidents(run)}
    head("fault", "step", "incident", "severity", "steps after", "seconds", "files", "messages")
    for name, at in faults.items():
        fault = FAULTS[name]
        of = [
            own
            for own in left.values()
            if own["group"] == fault.group and at - EARLIER <= own["first_step"] <= at + fault.within + 1
        ]
        if not fault.group:
            row(name, at, "none expected", "", "", "", "", "")
        elif not of:
            row(name, at, "**none**", "", "", "", "", "")
        for own in of:
            left.pop(own["id"])
            sent = [moment for moment, body in hook.messages if body["incident"] == own["id"]]
            files = len(list((run / "alerts" / own["id"]).iterdir()))
            right = "" if own["severity"] == fault.severity else f", not {fault.severity}"
            row(
                name,
                at,
                own["id"],
                f"{own['severity']}{right}",
                own["first_step"] - at,
                took(run, own),
                files,
                len(sent),
            )
    print()
    for own in left.values():
        print(
            f"beside: {own['id']} severity {own['severity']}: {own['rules'][0]['name']}, {own['alerts'][0].get('seen')}"
        )


def healthy(out: Path, steps: int, hook: Webhook) -> None:
    """Train without a fault, and print what was alerted."""
    run = out / "healthy"
    for folder in (run, out / "healthy.checkpoints"):
        shutil.rmtree(folder, ignore_errors=True)
    rules = rules_file(out, hook.url)
    with watching(run, rules, out / "healthy.log", out / "healthy.watch.txt"):
        code = process(out, run, steps, {}, out / "healthy.log")
    found = incidents(run)
    print(f"healthy: {steps} steps, exit code {code}, {len(found)} incidents")
    for own in found:
        print(f"  {in_words(own)}")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--healthy", type=int, default=10_000)
    parser.add_argument("--faults", nargs="*", default=[*FAULTS])
    for name, kind in (("--work", Path), ("--last", int), ("--at", json.loads), ("--hang", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    out = given.out.resolve()
    torch.set_num_threads(1)
    if given.work:
        if given.hang:
            hang(given.work, out, given.hang)
        Loop(out, given.work, given.last, given.at).train(out / "alerts.yaml")
        return
    if not (out / "manifest").exists():
        prepare(out)
    if given.faults:
        for name in ("disk", "kept", "day.checkpoints"):
            shutil.rmtree(out / name, ignore_errors=True)
        (out / "disk").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", out / "disk"], check=True)
        try:
            staged(out, given.faults, given.seed)
        finally:
            shutil.copytree(out / "disk", out / "kept", dirs_exist_ok=True)
            subprocess.run(["umount", out / "disk"], check=False)
        hung(out, given.seed)
    if given.healthy:
        hook = Webhook()
        hook.start()
        healthy(out, given.healthy, hook)


if __name__ == "__main__":
    main()
