"""The commands of docs/howto/exports.md: each block is run, in the page's order, with the files that the page shows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard

from dataaudit.present.export.croissant_files import MOST_FILES, About, Rai

pytestmark = pytest.mark.judges

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/howto/exports.md").read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the whole page was run: its output, and the files that are left."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("manifests", "pipelines"):
        (folder / name).symlink_to(ROOT / name)
    for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
    commands = "".join(re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-eu", "-c", commands],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"PATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def test_every_command_of_the_page_works(place):
    assert place[1].stdout.endswith("README.md: nothing has changed\n")
    assert "warning" not in place[1].stderr.lower()


def test_the_signed_verdict_of_the_page_is_passed(place):
    assert re.search(r"verdict +PASSED", place[1].stdout)


def test_the_event_of_the_page_holds_the_rules_of_the_gate(place):
    event = json.loads((place[0] / "openlineage.ndjson").read_text())
    assert len(event["run"]["facets"]["test"]["tests"]) > 10


def test_the_card_of_the_page_is_read_by_the_hub(place):
    assert DatasetCard.load(place[0] / "README.md").data.pretty_name == "dataaudit-demo"


def test_the_croissant_file_of_the_page_says_what_about_yaml_says(place):
    document = json.loads((place[0] / "croissant.json").read_text())
    assert document["rai:dataUseCases"] == ["Pre-training of language models."]
    assert document["distribution"][0]["contentUrl"] == "https://example.org/corpus/manifest/manifest.json"


def test_the_page_names_every_key_of_the_metadata():
    rest = set(About.model_fields) - {name for name in About.model_fields if f"{name}:" in PAGE or f"`{name}`" in PAGE}
    assert rest == set()
    assert "data_collection" in Rai.model_fields


def test_the_page_names_the_number_of_shards_that_are_listed():
    assert f"up to {MOST_FILES:,} shards one by one" in PAGE
