"""One call that sets all up: the loop of its page, bits of losses, what it says is not fed, a resume, bad arguments."""

import json
import logging
import re
from pathlib import Path

import pytest
from reading import tiny_gpt2

from dataaudit.base.errors import ConfigError
from dataaudit.live import Actions, Checkpoints, SkipBatches, save_state
from dataaudit.live.checklist import check_log
from dataaudit.runlog.reader import load_run
from dataaudit.training import PackedDocuments, watch_run, watching

torch = pytest.importorskip("torch", reason="a real run is torch's")
pytest.importorskip("transformers", reason="its model")
vitals = pytest.importorskip("dataaudit.vitals")

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]
PAGE = (Path(__file__).parents[3] / "docs/live/checklists.md").read_text("utf-8")
STEPS = 90


class Model(torch.nn.Module):
    """A small GPT-2 of bytes that returns logits."""

    def __init__(self):
        super().__init__()
        none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        self.inner = tiny_gpt2(64, n_embd=24, n_layer=2, **none)

    def forward(self, ids):
        return self.inner(ids).logits


@pytest.fixture(scope="module")
def rows(documents):
    """Rows of a corpus that was opened, packed; and the corpus."""
    return PackedDocuments(documents, 64, epochs=3), documents.corpus


def parts(rows, steps=STEPS, first=0):
    """Return what the page asks its reader for."""
    torch.manual_seed(0)
    model = Model()
    chosen = torch.utils.data.Subset(rows[0], range(4 * first, 4 * steps))
    loader = torch.utils.data.DataLoader(chosen, 4)
    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), 1e-3),
        "loader": loader,
        "corpus": rows[1],
    }


def bits(folder):
    """Return the losses of a log, bit by bit."""
    return [float(own).hex() for own in load_run(Path(folder)).table("steps")["user_loss"].to_pylist()]


def test_the_loop_of_the_page_runs_and_is_fed(rows, tmp_path, monkeypatch, caplog):
    """All musts of a nano run that begins; nothing is printed; a later phase misses what the loop has not."""
    monkeypatch.chdir(tmp_path)
    given = parts(rows)
    assert [name for name in given if f"`{name}`" not in re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)] == []
    (loop,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with caplog.at_level(logging.WARNING):
        exec(compile(loop, "page", "exec"), given)  # noqa: S102  (our own page, docs/live/checklists.md)
    run = given["run"]
    assert not run.alerts.failures
    assert not run.vitals.failures
    assert "is not fed" not in caplog.text
    early, late = (check_log(Path("runs/7"), phase=phase) for phase in ("early", "late"))
    assert (early.steps, early.scale, early.unfed) == (STEPS, "nano", [])
    unfed = {row.metric for row in late.unfed}
    assert {"rtp_toxicity_prob", "memorization_rate"} <= unfed
    assert not unfed & {"val_loss", "slice_val_loss", "train_loss_ema", "update_to_weight"}
    states = {own.rule: own.state for own in run.alerts.states()}
    assert states["loss_not_finite"] == "ok"
    assert list(Path("runs/7/beats").glob("*.beat"))
    detail = json.loads(load_run(Path("runs/7")).table("events").to_pylist()[0]["detail"])
    assert detail["told"]["scaler"] is False


def train(rows, folder=None, preset="nano", clip=True, state=None, steps=STEPS, first=0, **more):
    """Train, watched or not; return the bits of all losses, and what a checkpoint keeps."""
    given = parts(rows, steps, first)
    model, optimizer = given["model"], given["optimizer"]
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    run = None
    if folder is not None:
        saved = None if state is None else state["run"]
        run = watch_run(model, optimizer, given["corpus"], preset, folder=folder, state=saved, **more)
    losses = []
    for batch in given["loader"]:

        def update(batch=batch):
            logits = model(batch["input_ids"])
            each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
            if run is not None:
                run.batch(batch["tags"], losses=each.view_as(batch["labels"]), labels=batch["labels"])
            each.mean().backward()
            if clip:
                (torch.nn.utils if run is None else run).clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            return each.mean()

        if run is None:
            loss = update()
        else:
            with run.step():
                loss = update()
                run.log(loss)
        losses.append(float(loss.detach()).hex())
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if run is not None:
        kept["run"] = run.state_dict()
        with run:
            pass
    return losses, kept


def test_what_is_not_fed_is_printed_once_with_the_line(rows, tmp_path, caplog, monkeypatch):
    """And no bit of the run is another."""
    monkeypatch.setattr(watching, "CHECKED_AFTER", 64)
    with caplog.at_level(logging.WARNING, "dataaudit"):
        losses, _ = train(rows, tmp_path / "run", clip=False)
    assert losses == train(rows, clip=False)[0] == bits(tmp_path / "run")
    (message,) = [own.getMessage() for own in caplog.records if "is not fed" in own.getMessage()]
    assert message.startswith("step 65: a nano run in its early phase is not fed:\n")
    for name, line in (
        ("grad_global_norm", "norm = monitor.clip_grad_norm_(model.parameters(), 1.0)"),
        ("dataloader_stall_frac", "for batch in monitor.loader(loader):"),
    ):
        assert f"  {name}: not fed\n      {line}" in message
    assert "update_to_weight" not in message
    assert "loss_scale" not in message


def test_a_short_run_prints_it_at_its_end(rows, tmp_path, caplog):
    """Before its steps are over."""
    with caplog.at_level(logging.WARNING, "dataaudit"):
        train(rows, tmp_path / "run", "medium", steps=20, planned_tokens=20 * 4 * 64 * 2)
    (message,) = [own.getMessage() for own in caplog.records if "is not fed" in own.getMessage()]
    assert message.startswith("step 20: a medium run in its steady phase")
    assert "near_dup_rate" in message
    assert not re.search("val_loss|token_kl_drift|source_mix_share", message)  # they need not be there yet


def test_a_run_goes_on_from_its_state(rows, tmp_path):
    """Its log has each step once, with the losses of a run that never stopped."""
    config = vitals.VitalsConfig(adapt=False)
    _, state = train(rows, tmp_path / "run", steps=40, vitals=config)
    train(rows, tmp_path / "run", state=state, steps=60, first=40, vitals=config)
    assert bits(tmp_path / "run") == train(rows, steps=60)[0]
    steps = load_run(tmp_path / "run").table("values").to_pylist()
    assert max(own["step"] for own in steps if own["metric"] == "max_attn_logit") > 50


def test_a_model_that_vitals_do_not_know_is_watched_without_them(rows, tmp_path, caplog):
    """The reason is logged, and its musts are not fed."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with (
        caplog.at_level(logging.WARNING, "dataaudit"),
        watch_run(model, optimizer, rows[1], folder=tmp_path / "run") as run,
    ):
        batch = rows[0][0]
        for _ in range(3):
            with run.step():
                run.batch(batch["tags"][None])
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
                run.log(1.0, my_number=3.0)
    assert run.vitals is None
    assert "the run goes on without vitals" in caplog.text
    assert {"max_attn_logit", "update_to_weight"} <= {row.metric for row in check_log(tmp_path / "run").unfed}
    assert "my_number" in load_run(tmp_path / "run").table("values")["metric"].to_pylist()


def test_checkpoints_and_actions_are_of_the_same_run(rows, tmp_path):
    """Numbers of checkpoints are in the log, the loader leaves out batches, and a state keeps what actions did."""
    folder = tmp_path / "run"
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    actions = Actions(folder, SkipBatches(1))
    with (
        Checkpoints(tmp_path / "checkpoints") as checkpoints,
        watch_run(model, optimizer, rows[1], folder=folder, checkpoints=checkpoints, actions=actions) as run,
    ):
        seen = 0
        for row in run.loader([rows[0][at] for at in range(4)]):
            with run.step():
                run.batch(row["tags"][None])
                run.log(1.0)
            if not seen:
                actions.do("skip_batches", "a test")
            seen += 1
        checkpoints.save(run.monitor.steps, lambda path: save_state(path, {"model": model}), state={"model": model})
        state = run.state_dict()
    values = load_run(folder).table("values")
    assert {"checkpoint_ok", "checkpoint_size", "checkpoint_time"} <= set(values["metric"].to_pylist())
    assert seen == 3
    assert "action" in load_run(folder).table("events")["kind"].to_pylist()
    again = Actions(folder, SkipBatches(1))
    with watch_run(model, optimizer, rows[1], folder=folder, state=state, actions=again):
        assert again.state_dict() == state["actions"]


def test_an_error_of_the_loop_passes_and_is_in_the_log(rows, tmp_path):
    """All is closed, and the alert is there."""
    given = parts(rows)
    with (
        pytest.raises(ZeroDivisionError),
        watch_run(given["model"], given["optimizer"], rows[1], folder=tmp_path / "run") as run,
        run.step(),
    ):
        raise ZeroDivisionError
    assert [own["kind"] for own in load_run(tmp_path / "run").table("events").to_pylist()][-2:] == ["failed", "closed"]
    assert not [thread for thread in (run.alerts._thread, run._thread) if thread.is_alive()]


def test_bad_arguments_are_errors_and_leave_nothing_running(rows, tmp_path):
    """The model can be watched afterwards."""
    given = parts(rows)
    model, optimizer = given["model"], given["optimizer"]
    with pytest.raises(ConfigError, match="preset: expected nano, medium, large, found 'tiny'"):
        watch_run(model, optimizer, rows[1], "tiny", folder=tmp_path / "a")
    with pytest.raises(ConfigError, match="block_rows"):
        watch_run(model, optimizer, rows[1], folder=tmp_path / "b", block_rows=3)
    with pytest.raises(ConfigError, match="does not fit"):
        watch_run(model, optimizer, rows[1], folder=tmp_path / "c", state={"monitor": None, "vitals": {"step": 1}})
    with pytest.raises(TypeError, match=r"^watch_run: no argument `mapping`: it is of `vitals=VitalsConfig\(mapping="):
        watch_run(model, optimizer, rows[1], folder=tmp_path / "e", mapping=None)
    with pytest.raises(TypeError, match=r"^watch_run: no argument `schedular` \(did you mean `scheduler`\?\)"):
        watch_run(model, optimizer, rows[1], folder=tmp_path / "e", schedular=None)
    config = vitals.VitalsConfig(measure=("attention",))
    with watch_run(model, optimizer, rows[1], folder=tmp_path / "d", vitals=config) as run:
        assert run.vitals.config.measure == ("attention",)
    with pytest.raises(ConfigError, match="holds"):
        watch_run(model, optimizer, rows[1], folder=tmp_path / "d")
