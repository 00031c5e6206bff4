"""Each page on a framework, from its page alone: its first block runs with the real library, and watch shows the run.

`make test-ci PART=frameworks` installs the libraries, and counts a test that is skipped as failed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from reconstructed import Tokenized, call
from test_examples import Bytes, own_tokenizer

from dataaudit.runlog.reader import load_run

torch = pytest.importorskip("torch", reason="its tensors are torch's")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore"),  # those of other people's libraries
]
ROOT = Path(__file__).parents[3]
PAGES = sorted(path.stem for path in ROOT.glob("docs/frameworks/*.md") if path.stem != "index")
MOST_OURS = 10


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus that release-gate lets pass."""
    return Tokenized(tmp_path_factory.mktemp("corpus"), 60, stages={})


@pytest.fixture
def place(corpus, tmp_path, monkeypatch):
    """A folder with the manifest that the pages name; its documents are encoded anew."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/2026-11").symlink_to(corpus.manifest)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def block(page):
    """Return the first Python of a page."""
    text = (ROOT / f"docs/frameworks/{page}.md").read_text("utf-8")
    return re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)


def ours(code):
    """Return the lines that name something of ours: what is imported from us, and what it returns."""
    names = {"tags"}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dataaudit"):
            names |= {own.name for own in node.names}
    for _ in range(2):  # what is made of what is made of ours
        for name, made in re.findall(r"^(\w+) = (\w+)\(", code, re.MULTILINE):
            names |= {name} if made in names else set()
        names |= set(re.findall(r"\bas (\w+):$", code, re.MULTILINE))
    return [line for line in code.splitlines() if "dataaudit" in line or names & set(re.findall(r"\w+", line))]


def run(page, given, folder, **other):
    """Run a page with what it asks its reader for; return the steps of its log, which watch shows."""
    text, code = (ROOT / f"docs/frameworks/{page}.md").read_text("utf-8"), block(page)
    assert [name for name in given if f"`{name}`" not in text] == [], "the page does not say that its reader brings it"
    for written, short in other.items():
        assert written in code
        code = code.replace(written, short)
    exec(compile(code, page, "exec"), {"__name__": "__main__", **given})  # noqa: S102
    log = load_run(Path(folder))
    steps = log.table("steps").to_pylist()
    assert steps
    assert None not in [row["user_loss"] for row in steps]
    shown = call("watch", folder, "--once")
    assert f"step {len(steps)}, 1 rank" in shown.output
    return log, steps


@pytest.mark.parametrize("page", PAGES)
def test_ten_lines_or_fewer_are_ours(page):
    assert 3 <= len(ours(block(page))) <= MOST_OURS


def test_a_loop_of_your_own(place):
    model = Bytes()
    given = {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}
    log, steps = run("plain-loop", given, "runs/7")
    assert [row["scored"] for row in steps] == [row["targets"] for row in steps]
    assert {"grad_global_norm", "step_time"} <= set(log.table("values")["metric"].to_pylist())
    text, seen = (ROOT / "docs/frameworks/plain-loop.md").read_text("utf-8"), []
    _, held_out = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    given |= {"loss_of": lambda _, loader: next(iter(loader)), "run": SimpleNamespace(validation=seen.append)}
    imports = block("plain-loop").partition("corpus =")[0]
    exec(imports + held_out.replace("2048", "64"), given)  # noqa: S102 - our own page
    assert seen[0]["input_ids"].shape == (8, 64)


def test_the_trainer(corpus, place):
    pytest.importorskip("accelerate", reason="the Trainer needs it")
    log, _ = run("trainer", own_tokenizer(corpus.folder / "tiny.json"), "runs/7")
    assert {"learning_rate", "grad_global_norm"} <= set(log.table("values")["metric"].to_pylist())


def test_trl(corpus, place):
    pytest.importorskip("trl", reason="its trainer is what is tested")
    cpu = '"checkpoints", use_cpu=True, bf16=False, report_to=[],'
    run("trl", own_tokenizer(corpus.folder / "tiny.json"), "runs/7", **{'"checkpoints",': cpu, "2048": "256"})


def test_accelerate(corpus, place):
    pytest.importorskip("accelerate", reason="its loop is what is tested")
    given = own_tokenizer(corpus.folder / "tiny.json")
    _, steps = run("accelerate", given | {"optimizer": torch.optim.AdamW(given["model"].parameters())}, "runs/8")
    assert [row["scored"] for row in steps] == [row["targets"] for row in steps]


def test_lightning(corpus, place):
    lightning = pytest.importorskip("lightning", reason="its trainer is what is tested")
    given = own_tokenizer(corpus.folder / "tiny.json")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = given["model"]

        def training_step(self, batch, _):
            output = self.model(**batch)
            return {"loss": output.loss, "logits": output.logits.detach()}

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    own = {"tokenizer": given["tokenizer"], "module": Module()}
    _, steps = run("lightning", own, "runs/9", **{"max_steps=1000": "max_steps=3"})
    assert [row["scored"] for row in steps] == [row["targets"] for row in steps]


def test_torchtitan(place, monkeypatch):
    titan = pytest.importorskip("titan_on_cpu", reason="its trainer is what is tested")
    config = titan.config_of(place / "out", "audited", steps=3)
    with titan.one_rank(monkeypatch):
        _, steps = run("torchtitan", {"config": config}, "runs/10")
    assert [row["targets"] for row in steps] == [2 * 2 * 48] * 3


def test_olmo_core(place):
    pytest.importorskip("olmo_core.train", reason="its trainer is what is tested")
    pytest.importorskip("tensorboard", reason="the page names its sink")
    from test_olmo_core import trainer_of

    log, _ = run("olmo-core", {"trainer": trainer_of(place / "own")}, "runs/11")
    assert {"grad_norm", "max_attn_logit"} <= set(log.table("values")["metric"].to_pylist())
    (events,) = (place / "tb/11").iterdir()
    assert events.stat().st_size > 1_000
