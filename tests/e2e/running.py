"""Running the command line as a user does, and reading what it published."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from dataaudit.cli import main
from dataaudit.manifest.load import load_manifest

DATAAUDIT = Path(sys.executable).with_name("dataaudit")


def start(*args, cwd=None, **kwargs):
    """Start dataaudit in a process group of its own."""
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    return subprocess.Popen(
        [DATAAUDIT, *map(str, args)],
        cwd=cwd,
        env=environment,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kwargs,
    )


def run(*args, cwd=None, expect=0, timeout=240):
    """Run dataaudit to its end; return (stdout, stderr).

    It runs in this process, and so does the work of a build, unless the arguments ask for workers, or the environment
    names a hub, which a library reads when it is imported.
    """
    given = [*map(str, args)]
    if given[0] == "build" and "--workers" not in given and "--scheduler" not in given:
        given += ["--workers", "0"]
    in_process = "--scheduler" not in given and ("--workers" not in given or given[given.index("--workers") + 1] == "0")
    if not in_process or "HF_ENDPOINT" in os.environ:
        process = start(*given, cwd=cwd)
        out, err = process.communicate(timeout=timeout)
        code = process.returncode
    else:
        with contextlib.chdir(cwd or os.curdir):
            result = CliRunner().invoke(main, given)
        out, err, code = result.stdout, result.stderr, result.exit_code
    assert code == expect, f"exit {code}, expected {expect}\n{out}\n{err}"
    assert "Traceback" not in err, err
    return out, err


EACH = """
import json, sys
from click.testing import CliRunner
from dataaudit.cli import main
done = [CliRunner().invoke(main, call) for call in json.load(sys.stdin)]
print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in done]))
"""
"""Runs calls in one process, which reads the environment when it starts."""


def run_each(*calls, timeout=240):
    """Run dataaudit some times in one process of its own; return (exit code, stdout, stderr) of each call."""
    given = json.dumps([[*map(str, call)] for call in calls])
    command = [sys.executable, "-W", "default", "-c", EACH]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    found = [tuple(one) for one in json.loads(done.stdout)]
    assert all("Traceback" not in err for _, _, err in found), found
    return found


def build(*args, manifest, cwd=None, expect=0, timeout=240):
    """Build a manifest; return its JSON summary and the loaded manifest."""
    out, _ = run("build", *args, "--manifest", manifest, "--json", cwd=cwd, expect=expect, timeout=timeout)
    return json.loads(out), load_manifest(Path(manifest))


def metric(manifest, name, stat, **scope):
    """Return the value of one metric record."""
    wanted = {key: value for key, value in scope.items() if value is not None}
    found = [record for record in manifest.metrics(name, stat) if record.scope.as_dict() == wanted]
    assert len(found) == 1, f"{name}.{stat} {wanted}: {len(found)} records"
    return found[0].value
