"""The tutorial is true: its files are made, its commands run in order, and they print what stands below them.

``python tests/test_tutorial.py`` writes the output on the page anew. A comment before each block of commands says how
the last of them ends and which lines are shown: in ``<!-- run: exit=3 lines=1-5,/By_shard/3,-4- -->`` the first five,
three from the next that begins with "By shard", and the last four. With ``about`` the numbers of a block may differ:
another version of torch gives other ones.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/tutorial.md"
_FILE = r'^```(?:python|yaml) title="(?P<name>[\w.]+)"\n(?P<content>.*?)^```$'
_RUN = r"^<!-- run: exit=(?P<code>\d)(?P<about> about)?(?: lines=(?P<lines>\S+))? -->\n```console\n(?P<text>.*?)^```$"
_BLOCK = re.compile(f"{_FILE}|{_RUN}", re.MULTILINE | re.DOTALL)
_VARYING = (
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r"\b[0-9a-f]{12}\b", "ENTRY"),
    (r"\d{4}-\d\d-\d\d(T[\d:+]+)?", "DAY"),
    (r"dataaudit \d+\.\d+\.\d+", "dataaudit"),
    (r"step\d{8}", "STEP"),
    (r"(report|run).html: [\d.]+ kB", "report.html: SIZE"),
)
"""What another day, another version of a library or of this program may change."""


def followed(folder):
    """Return the page with the output of its commands, run in a folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = os.environ | {"PATH": path, "COLUMNS": "100", "GITHUB_ACTIONS": ""}

    def block(match):
        if match["name"]:
            (folder / match["name"]).write_text(match["content"])
            return match[0]
        commands = [line for line in match["text"].splitlines() if line.startswith("$ ")]
        script = "\n".join(line.removeprefix("$ ") for line in commands)
        done = subprocess.run(
            ["bash", "-ec", script], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == int(match["code"]), (script, done.stdout, done.stderr)
        shown = "\n".join([*commands, *_lines(done.stdout.rstrip("\n"), match["lines"])])
        head = match[0].partition("```console\n")[0]
        return f"{head}```console\n{shown}\n```"

    return _BLOCK.sub(block, PAGE.read_text("utf-8"))


def _lines(output, wanted):
    """Return the wanted lines of an output, and `...` where some are left out."""
    lines = output.splitlines()
    if wanted is None:
        return lines
    shown, at = [], 0
    for part in wanted.split(","):
        if part.startswith("/"):
            _, begin, number = part.split("/")
            start = next(place for place, line in enumerate(lines) if line.startswith(begin.replace("_", " ")))
            stop = start + int(number)
        else:
            first, _, last = part.removeprefix("-").partition("-")
            start, stop = (len(lines) - int(first), len(lines)) if part.startswith("-") else (int(first) - 1, int(last))
        if start > at:
            shown.append("...")
        shown += lines[max(start, at) : stop]
        at = stop
    return shown if at >= len(lines) else [*shown, "..."]


def _settled(text):
    """Return the page without what may vary; where numbers may differ, without them and the widths that they make."""
    text = _BLOCK.sub(lambda match: _about(match[0]) if match["about"] else match[0], text)
    for pattern, word in _VARYING:
        text = re.sub(pattern, word, text)
    return text


def _about(block):
    return re.sub(r"[ -]{2,}", "  ", re.sub(r"(?<![\w./-])[-+]?\d[\d.,]*", "N", block))


@pytest.mark.torch
@pytest.mark.timeout(1_200)
def test_the_commands_print_what_the_page_shows(tmp_path):
    assert _settled(followed(tmp_path)) == _settled(PAGE.read_text("utf-8"))
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_no_block_of_the_page_is_left_out():
    rest = _BLOCK.sub("", PAGE.read_text("utf-8"))
    (install,) = re.findall(r"^```\n(.*?)^```$", rest, re.MULTILINE | re.DOTALL)
    assert rest.count("```") == 2
    extras = re.fullmatch(r"pip install 'dataaudit\[([\w,]+)\]'\n", install)[1].split(",")
    assert set(extras) <= set(
        tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        PAGE.write_text(followed(Path(place)), encoding="utf-8")
