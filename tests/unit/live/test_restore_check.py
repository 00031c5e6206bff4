"""A restore in a process of its own: what has the same bits passes, and what differs is named."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="its states are torch's")
import restored_loop as loop  # noqa: E402 - after the skip

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.live import Checkpoints, Probe, load_state, save_state  # noqa: E402
from dataaudit.live.named_functions import find, named  # noqa: E402
from dataaudit.live.restore_check import RestoreCheck, not_finite, restore  # noqa: E402
from dataaudit.live.state_digests import STATE_FILE, digests, leaves, random_state, set_random_state  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402

pytestmark = pytest.mark.torch
HERE = Path(__file__).parent
TESTS = HERE.parents[1]


@pytest.fixture(autouse=True)
def _generators():
    """Put the generators and the number of threads back, which restores change."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint that passed its test in another process, with its numbers; a second with a byte of RNG altered."""
    folder, sink = tmp_path_factory.mktemp("run") / "c", MemorySink()
    own = loop.parts()
    loop.train(own, 5)
    checkpoints = Checkpoints(folder, restore_test=loop.build, probe=Probe(loop.batch()), sinks=[sink])
    checkpoints.save(5, lambda path: save_state(path, own), state=own)
    assert checkpoints.wait()
    loop.train(own, 1)

    def spoiled(path):
        save_state(path, own)
        state = torch.load(path / STATE_FILE, weights_only=True)
        state["rng"]["torch"][96] ^= 1  # torch keeps 32 bits in 64, so not every byte counts
        torch.save(state, path / STATE_FILE)

    checkpoints.save(6, spoiled, state=own)
    assert checkpoints.wait()
    return checkpoints, sink, own


def test_a_test_of_ranks_that_the_checkpoint_lacks_restores_nothing_and_fails(saved):
    checkpoints, *_ = saved
    found = restore({"build": named(loop.build), "folder": str(checkpoints.list()[0].folder), "ranks": [7]})
    assert not found["ok"]
    assert found["why"] == "nothing was restored: the checkpoint has rank 0, and `test_ranks` names 7"


def test_a_restore_with_the_same_bits_passes(saved):
    """Parameters, buffers, optimizer, scheduler, scaler, generators, and the probe's loss."""
    checkpoints, sink, _ = saved
    good = checkpoints.last_good
    assert good.step == 5
    assert good.test["what"] == "restored"
    assert good.test["compared"] > 40
    assert good.test["not_compared"] == []
    assert good.test["probe"]["bits"]
    assert good.test["probe"]["batch"] == loop.batch().id
    assert [value for _, metric, *_, value in sink.values if metric == "checkpoint_ok"] == [1.0, 0.0]


def test_a_byte_of_a_generator_that_differs_is_named(saved):
    """The files are whole, so digests alone would not see it; the good one stays apart from the latest."""
    checkpoints, sink, _ = saved
    assert checkpoints.latest.step == 6
    assert checkpoints.latest.test["why"].startswith("rng.torch differs (uint8[")
    assert sink.events[-1][2]["why"] == checkpoints.latest.test["why"]
    seen = []
    assert checkpoints.restore(seen.append).step == 5
    assert seen == [checkpoints.list()[0].path]


@pytest.fixture
def request_(tmp_path):
    """A checkpoint and the request for its restore, which this process does itself: a process a case takes seconds."""
    own = loop.parts()
    loop.train(own, 4)
    checkpoints = Checkpoints(tmp_path / "c", restore_test=loop.build, probe=(probe := Probe(loop.batch())))
    checkpoints._testing.put = lambda _: None
    checkpoint = checkpoints.save(4, lambda path: save_state(path, own), state=own)
    request = {"build": "restored_loop:build", "folder": str(checkpoint.folder), "ranks": [0]}
    return request | {"probe": probe.request(tmp_path)}


def weight(state):
    state["model"]["0.weight"][3, 4] = torch.nextafter(state["model"]["0.weight"][3, 4], torch.tensor(9.0))


def moment(state):
    state["optimizer"]["state"][0]["exp_avg_sq"][0, 0] = -0.0


def epoch(state):
    state["scheduler"]["last_epoch"] += 1


def scale(state):
    state["scaler"]["scale"] *= 2


def python(state):
    version, internal, rest = state["rng"]["python"]
    state["rng"]["python"] = (version, (internal[0] ^ 1, *internal[1:]), rest)


def numpy(state):
    state["rng"]["numpy"][1][7] ^= 1


def mean(state):
    state["model"]["3.running_mean"][0] += 1e-3


@pytest.mark.parametrize(
    ("spoil", "leaf"),
    [
        (weight, "model.0.weight"),
        (mean, "model.3.running_mean"),
        (moment, "optimizer.state.0.exp_avg_sq"),
        (epoch, "scheduler.last_epoch"),
        (scale, "scaler.scale"),
        (python, "rng.python"),
        (numpy, "rng.numpy"),
    ],
)
def test_each_kind_of_state_is_compared_to_the_bit(request_, spoil, leaf):
    """One number of it is changed in the file."""
    assert restore(request_)["why"] == ""
    path = Path(request_["folder"]) / "data" / STATE_FILE
    state = torch.load(path, weights_only=True)
    spoil(state)
    torch.save(state, path)
    outcome = restore(request_)
    assert not outcome["ok"]
    assert outcome["why"].startswith(f"{leaf} differs")
    if leaf == "model.3.running_mean":
        assert "fixed_probe_loss is" in outcome["why"]


def test_parts_that_are_not_restored_or_not_saved_are_named(request_, monkeypatch):
    """And so is a function that returns no parts."""
    whole = loop.build

    def fewer(path):
        own = whole(path)
        del own["scaler"]
        return own | {"ema": torch.nn.Linear(1, 1, bias=False)}

    monkeypatch.setattr(loop, "build", fewer)
    why = restore(request_)["why"]
    assert "scaler.scale was not restored" in why
    assert "ema.weight was not saved" in why
    monkeypatch.setattr(loop, "build", lambda path: None)
    assert restore(request_)["why"] == "restored_loop:build returned NoneType, expected parts by name"


def test_a_probe_of_other_tokens_is_no_comparison(request_, tmp_path):
    """It is named, whatever its loss."""
    from dataaudit.live import ProbeBatch

    other = Probe(ProbeBatch(torch.ones(5, loop.CONTEXT, dtype=torch.int64)))
    outcome = restore(request_ | {"probe": other.request(tmp_path)})
    assert outcome["why"].startswith("the probe batch is sha256:")


def test_what_cannot_be_hashed_is_not_called_restored(tmp_path):
    """A state whose digest fails, and leaves of unknown types."""

    class Broken:
        def state_dict(self):
            raise ZeroDivisionError

    checkpoints = Checkpoints(tmp_path, restore_test=loop.build)
    checkpoints._testing.put = lambda _: None
    own = loop.parts()
    for step, parts in ((1, {"model": Broken()}), (2, own | {"model": {"a": object()}})):
        checkpoints.save(step, lambda path: save_state(path, own), state=parts)
    made = [{"build": "restored_loop:build", "folder": str(each.folder), "ranks": [0]} for each in checkpoints.list()]
    assert restore(made[0])["why"].startswith("what was in memory was not hashed (ZeroDivisionError at")
    made = digests({"a": object(), "b": torch.ones(2).to_sparse(), "c": 1.0, "d": True, "e": 1})
    assert [bool(leaf[0]["sha256"]) for leaf in made.values()] == [False, False, True, True, True]
    assert len({leaf[0]["sha256"] for leaf in made.values()}) == 4


@pytest.mark.parametrize(
    ("build", "seconds", "why"),
    [
        (loop.build_failing, 120, "restored_loop:build_failing failed: RuntimeError at restored_loop.py:"),
        (loop.build_dying, 120, "the restoring process gave no answer (exit code -6): "),
        (loop.build_sleeping, 8, "the restoring process gave no answer (8 s are over): "),
        ("no_such_module:build", 120, "no_such_module:build failed: ModuleNotFoundError"),
    ],
)
def test_a_restore_that_fails_says_how(tmp_path, build, seconds, why):
    """An error, a death, a hang and a wrong name cost the test, and nothing else."""
    (tmp_path / "c/step-00000001/ranks").mkdir(parents=True)
    (tmp_path / "c/step-00000001/ranks/00000.json").write_text('{"leaves": {}}')
    outcome = RestoreCheck(build, seconds).run(tmp_path / "c/step-00000001")
    assert not outcome["ok"]
    assert outcome["why"].startswith(why)
    if build is loop.build_failing:
        assert outcome["why"].endswith("size mismatch for 0.weight")


def test_functions_have_names_that_another_process_imports(tmp_path):
    """Of a module, of a script; else it is an error at once."""
    assert named(loop.build) == "restored_loop:build"
    assert find("restored_loop:build") is loop.build
    (tmp_path / "train.py").write_text("def build(path):\n    return {}\n")
    assert find(f"{tmp_path}/train.py:build")(tmp_path) == {}
    for wrong in (lambda path: {}, "train.build", ":build"):
        with pytest.raises(ConfigError, match=r"module:function|imported by another"):
            named(wrong)
    with pytest.raises(ConfigError, match="has no function nothing"):
        find("restored_loop:nothing")


def test_a_wrong_set_of_parts_is_an_error(tmp_path):
    own = loop.parts()
    save_state(tmp_path, own)
    with pytest.raises(ConfigError, match="expected the parts model, it has model, optimizer, scaler, scheduler"):
        load_state(tmp_path, {"model": own["model"]})


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_no_part_takes_the_name_of_the_random_states(tmp_path):
    """They would be lost, and the file could not be loaded."""
    with pytest.raises(ConfigError, match="`rng` is the name of the random states"):
        save_state(tmp_path, {"rng": loop.parts()["model"]})
    assert not list(tmp_path.iterdir())


def test_a_run_goes_on_with_fewer_gpus_than_it_was_saved_with(monkeypatch):
    """Each GPU that is there gets its generator's state; the others' are not set."""
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", taken.extend)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", list)
    set_random_state({**random_state(), "cuda": ["a", "b", "c", "d"]})
    assert taken == ["a", "b"]


def test_wrapped_models_have_the_names_of_what_they_wrap():
    """A compiled model is saved, and its source is restored."""
    model = torch.nn.Linear(2, 2)
    assert set(leaves({"model": torch.compile(model)}, rng=False)) == {"model.weight", "model.bias"}


def test_safetensors_and_torch_together_restore(tmp_path):
    """Whatever the user's function writes."""
    from safetensors.torch import save_model

    own = loop.parts()
    loop.train(own, 3)

    def write(path):
        save_model(own["model"], path / "model.safetensors")
        save_state(path, {name: own[name] for name in ("optimizer", "scheduler", "scaler")})

    checkpoints = Checkpoints(tmp_path, restore_test=loop.build_safetensors)
    checkpoints._testing.put = lambda _: None
    made = checkpoints.save(3, write, state=own)
    request = {"build": "restored_loop:build_safetensors", "folder": str(made.folder), "ranks": [0]}
    assert restore(request)["ok"]
    path = made.path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert restore(request)["why"].startswith("model.")


SHARDED = """
import sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
import restored_loop as loop
from dataaudit.live import Checkpoints
folder, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}.store", rank=rank, world_size=2)
own = loop.parts()
fully_shard(own["model"], mesh=dist.init_device_mesh("cpu", (2,)))
own["optimizer"] = torch.optim.AdamW(own["model"].parameters(), 1e-2)
loss = own["model"](torch.randint(0, 64, (8, 16))).square().mean()
loss.backward()
own["optimizer"].step()
checkpoints = Checkpoints(folder, restore_test="restored_loop:build_dcp", rank=rank, ranks=2, launch="a")
checkpoints._testing.put = lambda _: None
model, optimizer = get_state_dict(own["model"], own["optimizer"])
state = {"model": model, "optimizer": optimizer}
checkpoints.save(1, lambda path: dcp.save(state, checkpoint_id=path), state=state)
checkpoints.close()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_sharded_model_of_two_ranks_is_restored_whole_and_compared_part_by_part(tmp_path):
    """Each rank's digests are those of its own parts; a process of its own loads whole tensors."""
    folder = tmp_path / "c"
    paths = f"{HERE}:{TESTS}:{TESTS.parent}"
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", SHARDED, str(folder), str(rank)], env=environment) for rank in range(2)
    ]
    assert [rank.wait(240) for rank in ranks] == [0, 0]
    (made,) = Checkpoints(folder, rank=0, ranks=1).list()
    assert made.ranks == 2
    assert not list(made.damage())
    request = {"build": "restored_loop:build_dcp", "folder": str(made.folder), "ranks": [0]}
    outcome = restore(request)
    assert [own for own in outcome["why"].split("; ") if not own.startswith("rank 0: rng.")] == []
    assert outcome["compared"] > 40
    assert outcome["not_compared"] == ["what ranks 1 do not share, such as their random states"]
    part = made.folder / "ranks/00001.json"
    text = part.read_text()
    begin = text.index('"sha256":"', text.index('"offset":[32')) + 10
    part.write_text(text[:begin] + ("0" if text[begin] != "0" else "1") + text[begin + 1 :])
    assert "rank 1: " in restore(request)["why"]


KILLED = """
import sys
from pathlib import Path
import restored_loop as loop
from dataaudit.live import Checkpoints
checkpoints = Checkpoints(sys.argv[1], restore_test=loop.build_sleeping)
checkpoints.save(1, lambda path: (path / "a").write_bytes(b"a"), state={"model": {"a": 1}})
checkpoints.wait()
"""


@pytest.mark.children
def test_the_restoring_process_ends_with_the_run(tmp_path):
    """A killed run leaves no process behind that holds memory; the checkpoint is there, and not good."""
    folder = tmp_path / "run/c"
    paths = f"{HERE}:{TESTS}:{TESTS.parent}"
    run = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], env={**os.environ, "PYTHONPATH": paths})
    note = tmp_path / "run/restoring"
    ends = time.monotonic() + 120
    while not (note.exists() and note.read_text()) and time.monotonic() < ends:
        time.sleep(0.05)
    restoring = Path(f"/proc/{note.read_text()}")
    assert restoring.exists()
    run.send_signal(signal.SIGKILL)
    run.wait()
    while restoring.exists() and "zombie" not in (restoring / "status").read_text() and time.monotonic() < ends:
        time.sleep(0.05)
    assert not restoring.exists() or "zombie" in (restoring / "status").read_text()
    assert Checkpoints(folder).last_good is None
    assert Checkpoints(folder).latest.step == 1


def test_a_run_that_saves_has_the_bits_of_the_run_that_does_not(tmp_path):
    """With digests of memory and the probe at each save."""
    made = []
    for saves in (True, False):
        np.random.seed(0)  # noqa: NPY002 - the loop's own
        own = loop.parts()
        checkpoints = Checkpoints(tmp_path, restore_test=loop.build, probe=Probe(loop.batch()), reproducibility={})
        checkpoints._testing.put = lambda _: None

        def after(step, own=own, checkpoints=checkpoints, saves=saves):
            if saves:
                checkpoints.save(step, lambda path: save_state(path, own), state=own)

        made.append((loop.train(own, 4, after), digests(leaves(own))))
    assert made[0] == made[1]
    assert len(checkpoints.list()) == 4


def test_a_resumed_run_is_the_run_that_was_not_interrupted(tmp_path):
    """Losses to the bit, by the helper for a plain state."""
    own = loop.parts()
    np.random.seed(0)  # noqa: NPY002 - the loop's own
    loop.train(own, 3)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, lambda path: save_state(path, own))
    checkpoints.close()
    through = loop.train(own, 4)
    other = loop.parts()
    assert checkpoints.restore(lambda path: load_state(path, other)).step == 3
    assert loop.train(other, 4) == through


def test_what_restores_and_is_not_finite_is_named():
    """NaN anywhere, infinity in parameters; a mask may be infinite."""
    model = torch.nn.Linear(2, 2)
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    parts = {"model": model, "optimizer": optimizer}
    assert not_finite(parts) == []
    with torch.no_grad():
        model.weight[0, 0] = torch.inf
        optimizer.state[model.bias]["exp_avg"][1] = torch.nan
    lines = not_finite(parts)
    assert len(lines) == 2
    assert "model.weight is not finite (1 of 4 numbers)" in lines
    assert any(line.startswith("optimizer.") and "(1 of 2 numbers)" in line for line in lines)
