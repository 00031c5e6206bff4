"""The page of checkpoints: its Python runs, and its output has the form that the command prints."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="its loop is torch's")
import restored_loop as loop  # noqa: E402 - after the skip

from dataaudit.cli import main  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402

pytestmark = pytest.mark.torch
PAGE = (Path(__file__).parents[3] / "docs/live/checkpoints.md").read_text("utf-8")


def test_the_python_of_the_page_runs(tmp_path, monkeypatch):
    """The loop saves and is tested, the probe measures, the manifest knows all, and the trainer gets its callback."""
    monkeypatch.chdir(tmp_path)
    train = SimpleNamespace(build=loop.build, make_parts=loop.parts, train_a_step=lambda parts: loop.train(parts, 1))
    monkeypatch.setitem(sys.modules, "train", train)
    for name in ("tokenizer.json", "requirements.lock", "eval/prompts.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    sink, callbacks = MemorySink(), []
    names = {"held_out_ids": loop.batch().input_ids, "sink": sink, "corpus": "sha256:0"}
    names["trainer"] = SimpleNamespace(add_callback=callbacks.append)
    names["make_parts"] = loop.parts
    from dataaudit.live import load_state

    names["load_state"] = load_state
    with torch.random.fork_rng():
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "page", "exec"), names)  # noqa: S102  (our own page, docs/live/checkpoints.md)
    assert [own.test["what"] for own in names["checkpoints"].list()] == ["restored", "restored"]
    assert {step for step, *_ in sink.values} == {100, 200}
    assert set(names["about"]["unknown"]) <= {"code", "quarantine"}
    assert len(callbacks) == 1

    state = tmp_path / "runs/7b/checkpoints/step-00000020/data/state.pt"
    data = bytearray(state.read_bytes())
    data[5_000] ^= 1
    state.write_bytes(data)
    shown = re.search(r"\$ dataaudit checkpoints (\S+)\n(.*?)```", PAGE, re.DOTALL)
    done = CliRunner().invoke(main, ["checkpoints", shown[1]])
    assert done.exit_code == 1
    plain = [re.sub(r"[0-9a-f]{12}|\d[\d.:TZ-]+|\s+", "_", text) for text in (done.output, shown[2])]
    assert plain[0] == plain[1]
