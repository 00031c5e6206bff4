"""The file: the same bytes for the same manifest, nothing that runs but what is hashed, nothing that breaks out."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile_manifest import make_hostile

from dataaudit import cli
from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.render.html import embedded_json, render
from dataaudit.decide.gate.document import gate_json
from dataaudit.decide.gate.run import judge, policy_of
from dataaudit.manifest.load import load_manifest
from dataaudit.present.report.page import Given, page_of, write_report

pytestmark = pytest.mark.usefixtures("odd_numbers")
ROOT = Path(__file__).parents[5]
DEMO = ROOT / "manifests/demo"
CSS = ROOT / "dataaudit/base/render/assets/page.css"


@pytest.fixture(scope="module")
def html():
    """The report of the demo."""
    manifest = load_manifest(DEMO)
    return render(page_of(manifest))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The report of the demo with hostile names."""
    manifest = load_manifest(make_hostile(tmp_path_factory.mktemp("hostile") / "m"))
    return render(page_of(manifest))


def scripts(text):
    """Return (attributes, text) of every script element."""
    return re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)


def invoke(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


@pytest.mark.judges
def test_the_same_manifest_gives_the_same_bytes(html, tmp_path):
    """Wherever the manifest lies and whatever was drawn before in this process."""
    copy = shutil.copytree(DEMO, tmp_path / "elsewhere")
    manifest = load_manifest(copy)
    assert render(page_of(manifest)) == html


def test_the_policy_names_every_script_and_lets_in_nothing_else(html):
    """Each script that can run is hashed; there is no wildcard, no `unsafe-` anything."""
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "*" not in policy
    assert policy.endswith("img-src data:; base-uri 'none'; form-action 'none'")
    hashes = re.findall(r"'sha256-([^']+)'", policy)
    run = [text for attributes, text in scripts(html) if "type=" not in attributes]
    assert [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run] == hashes[: len(run)]
    assert len(hashes) == len(run) + 1
    (nonce,) = re.findall(r"style-src 'nonce-([^']+)'", policy)
    assert f'<style nonce="{nonce}">' in html
    assert not re.search(r"<[^>]+ (style|on\w+)=", html.split("<body>")[1].split('<script type="application/json"')[0])


@pytest.mark.judges
def test_no_name_breaks_out_of_its_place(hostile):
    """There are exactly the scripts of the page, and the data parse."""
    found = scripts(hostile)
    assert len(found) == 6
    charts = next(text for attributes, text in found if 'id="charts"' in attributes)
    assert len(json.loads(charts)) >= 8
    body = hostile.split("<main")[1].split("</main>")[0]
    assert "<script" not in body
    assert "<img" not in body
    assert "&lt;script&gt;" in body


def test_embedded_json_ends_no_element_and_no_line():
    """What HTML or JavaScript would take for an end is an escape, and reads back."""
    text = "</script><!--&\u2028\u2029"
    shown = embedded_json([text])
    assert not set(shown) & set("<>&\u2028\u2029")
    assert json.loads(shown) == [text]


def test_nothing_of_the_machine_is_in_the_file(html):
    """No path, no host, no time of now."""
    manifest = load_manifest(DEMO)
    for word in (str(DEMO), *manifest.run.hosts, *manifest.run.roots.values()):
        assert word not in html


def test_colours_can_be_read_in_both_themes():
    """Contrast of 4.5 and more for every colour of text on every ground it stands on (WCAG AA)."""
    colours = {
        name: (light, dark)
        for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS.read_text())
    }
    grounds = {"ink": ("ground", "panel"), "muted": ("ground", "panel"), "accent": ("ground", "panel")}
    grounds |= {name: ("panel", "ground", f"{name}-ground") for name in ("bad", "warn", "good")}
    for name, others in grounds.items():
        for other in others:
            for theme in (0, 1):
                assert contrast(colours[name][theme], colours[other][theme]) >= 4.5, (name, other, theme)


def contrast(one, other):
    """Return the contrast ratio of two colours."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.tables
def test_the_command_writes_one_file_and_one_line(tmp_path):
    """What was written and how large it is; nothing else is left in the folder."""
    out = tmp_path / "report.html"
    shown = invoke("report", DEMO, "--out", out)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert re.fullmatch(rf"{re.escape(str(out))}: [\d.]+ kB, 12 things to look at\n", shown.stdout)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    assert out.stat().st_size < 1_000_000
    value = json.loads(invoke("report", DEMO, "--out", out, "--json").stdout)
    assert value["bytes"] == out.stat().st_size
    assert value["id"] == load_manifest(DEMO).id


@pytest.mark.judges
def test_a_verdict_beside_the_manifest_is_shown_and_one_of_another_is_refused(tmp_path):
    """A `gate.json` in the folder stands first, and is not taken for the verdict on another manifest."""
    folder = shutil.copytree(DEMO, tmp_path / "m")
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "policy: p\nrules:\n  - {name: none, metric: secret_hit_rate, stat: validated_hits, unit: hits, budget: 0}\n"
    )
    assert invoke("gate", folder, "--policy", policy, "--out", tmp_path / "gate.json").exit_code in {1, 3}
    shutil.copy(tmp_path / "gate.json", folder)
    out = tmp_path / "report.html"
    shown = invoke("report", folder, "--out", out)
    assert shown.exit_code == 0
    assert "Stopped" in shown.stdout
    judged = json.loads((folder / "gate.json").read_text())
    judged["verdict"]["subject"]["id"] = "sha256:" + "0" * 64
    (folder / "gate.json").write_text(json.dumps(judged))
    assert "judges the manifest" in invoke("report", folder, "--out", out).stderr


@pytest.mark.parametrize("out", [".", "absent/report.html"])
def test_a_place_that_cannot_be_written_is_said(tmp_path, monkeypatch, out):
    """No traceback, no file."""
    monkeypatch.chdir(tmp_path)
    shown = invoke("report", DEMO, "--out", out)
    assert shown.exit_code != 0
    assert "dataaudit: " in shown.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tables
def test_a_verdict_of_the_gate_is_shown_as_it_was_given(tmp_path):
    """Beside a policy, or of another manifest, it is refused."""
    other = make_hostile(tmp_path / "other", payloads=False)
    policy = ROOT / "pipelines/release-gate.yaml"
    (tmp_path / "gate.json").write_bytes(gate_json(judge(load_manifest(DEMO), policy_of(policy))))
    line = write_report(DEMO, tmp_path / "r.html", Given(verdict=tmp_path / "gate.json"), as_json=False)
    assert "Stopped" in line
    with pytest.raises(ConfigError, match="--policy judges anew"):
        write_report(DEMO, tmp_path / "r.html", Given(policy=policy, verdict=tmp_path / "gate.json"), as_json=False)
    with pytest.raises(ManifestMismatch, match="judges the manifest sha256:"):
        write_report(other, tmp_path / "r.html", Given(verdict=tmp_path / "gate.json"), as_json=False)
