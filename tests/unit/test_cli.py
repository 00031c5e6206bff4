"""The command line: options, help, exit codes, and a newcomer's first hour with a real build."""

import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner

from dataaudit import api, cli
from dataaudit.base.errors import (
    BuildInterrupted,
    ClusterError,
    ConfigError,
    DataAuditError,
    ExitCode,
    ManifestMismatch,
    StoreError,
)

ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(sys.executable).with_name("dataaudit"))
PAGE = ROOT / "docs/reference/cli.md"
COMPLETION = {
    "bash 4.4 or newer": ('eval "$(_DATAAUDIT_COMPLETE=bash_source dataaudit)"', "~/.bashrc"),
    "zsh": ('eval "$(_DATAAUDIT_COMPLETE=zsh_source dataaudit)"', "~/.zshrc"),
    "fish": ("_DATAAUDIT_COMPLETE=fish_source dataaudit | source", "~/.config/fish/completions/dataaudit.fish"),
}
TEXT = "canary-4f1c the quick brown fox jumps over the lazy dog"
HEAVY = ("dask", "distributed", "pyarrow", "numpy", "pydantic", "rich", "tokenizers", "torch", "gigatoken")
SCANS = ("dask", "distributed", "numba", "torch", "jinja2", "bokeh")
DEMO = str(ROOT / "manifests/demo")
POLICY = str(ROOT / "pipelines/release-gate.yaml")


def commands():
    """Return every command by name; those of a group stand for it."""
    found = {}
    for name, command in cli.main.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {one}": inner[one] for one in inner} or {name: command}
    return found


def groups():
    """Return every group of commands by name."""
    return {name: command for name, command in cli.main.commands.items() if isinstance(command, click.Group)}


def codes_of(command):
    """Return the exit codes that the help of a command lists, in their order."""
    _, _, listed = command.epilog.partition("Exit codes:\n")
    return [int(code) for code in re.findall(r"^  +(\d+)  \S", listed, re.MULTILINE)]


def run(*arguments, **more):
    """Run the command line in a process of its own."""
    command = [PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **more)


def invoke(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def page():
    """Return what docs/reference/cli.md has to hold: every command's help."""
    parts = [
        "# Command line",
        "",
        "What each command prints with `--help`. This page is written by `python tests/unit/test_cli.py`.",
        "",
        "## Completion in a shell",
        "",
        "Press Tab to complete commands, options, files and names of policies. One line switches it on:",
        "",
        *(f"- {shell}: `{line}` in `{file}`" for shell, (line, file) in COMPLETION.items()),
        "",
    ]
    for name, command in {"": cli.main, **groups(), **commands()}.items():
        title = f"dataaudit {name}".rstrip()
        context = click.Context(command, info_name=title, terminal_width=100)
        context.help_option_names = ["-h", "--help"]
        parts += [f"## {title}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A small corpus with a duplicate and a file that is no Parquet, and a small tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("corpus")
    (folder / "train").mkdir()
    rows = [{"text": f"{TEXT} {number % 40}", "source": "web"} for number in range(50)]
    for name, chosen in (("train/a.jsonl", rows), ("train/b:1.jsonl", rows[:5]), ("val.jsonl", rows[45:])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in chosen))
    (folder / "train/c.parquet").write_bytes(b"PAR1 but not really")
    words = ["[UNK]", *["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog"]]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tiny.json"))
    return folder


@pytest.fixture(scope="module")
def built(corpus):
    """The first build of that corpus: its process and its manifest."""
    target = corpus / "out/m"
    return build(corpus, target), target


def build(corpus, target, *how):
    """Build that corpus in a process of its own."""
    given = ("train", "val.jsonl", "--manifest", target, "--tokenizer", "tiny.json", "--workers", 0)
    return run("build", *given, *how, cwd=corpus)


def test_every_command_has_help_and_an_example():
    """Each says what it does, what each option means, and shows a call."""
    for name, command in commands().items():
        shown = invoke(*name.split(), "--help")
        assert shown.exit_code == 0
        assert shown.output == invoke(*name.split(), "-h").output
        assert "Examples:" in shown.output
        assert f"  dataaudit {name}" in shown.output
        assert command.help
        assert command.short_help
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help, (name, parameter.name)


def test_every_command_prints_json_when_asked():
    """One object, for programs."""
    without = [name for name, command in commands().items() if not any("--json" in one.opts for one in command.params)]
    assert without == []


@pytest.mark.judges
def test_what_is_written_is_printed_as_one_json_object(tmp_path, monkeypatch, keys):
    """File, size, digest and manifest of what `export`, `sign` and `policy draft` write; else the text itself."""
    shutil.copytree(DEMO, tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    key = keys / "key.pem"
    calls = {
        "export croissant": ({"files", "sets_of_files", "record_sets"}, DAMAGED["export croissant"][1:]),
        "export openlineage": ({"run", "rules"}, ["--out", "events"]),
        "export verdict": (
            {"dataset", "policy", "result", "signature"},
            ["--out", "verdict", "--policy", "strict", "--sign", "--key", key],
        ),
        "export card": (set(), ["--out", "README.md"]),
        "export card --update": ({"changed"}, ["README.md"]),
        "policy draft": ({"rules"}, ["--out", "policy.yaml"]),
        "sign": ({"dataset", "signature"}, ["--key", key]),
    }
    for name, (own, more) in calls.items():
        done = invoke(*name.partition(" --")[0].split(), "m", *(["--update"] if "--" in name else []), *more, "--json")
        assert (done.exit_code, done.stderr) == (0, ""), name
        said = json.loads(done.stdout)
        data = Path(said["file"]).read_bytes()
        assert (said["bytes"], said["sha256"]) == (len(data), hashlib.sha256(data).hexdigest()), name
        assert said["manifest"] == json.loads((tmp_path / "m/manifest.json").read_text())["id"]
        assert set(said) == {"file", "bytes", "sha256", "manifest"} | own, name
    for name in ("export card", "policy draft"):
        plain, said = (invoke(*name.split(), "m", *more) for more in ([], ["--json"]))
        assert json.loads(said.stdout)["text"] == plain.stdout
        assert "file" not in json.loads(said.stdout)


def test_every_help_lists_the_exit_codes_that_the_command_can_return():
    """Everything can be wrong use, fail by the system and be interrupted; a group lists what its commands do."""
    for name, command in commands().items():
        codes = codes_of(command)
        assert codes == sorted({0, 2, 3, 130, *codes}), name
        assert set(codes) <= {*map(int, ExitCode)}, name
    for name, group in groups().items():
        own = {code for inner, command in commands().items() if inner.split()[0] == name for code in codes_of(command)}
        assert codes_of(group) == sorted(own), name
    assert codes_of(cli.main) == [0, 1, 2, 3, 4, 130]


DAMAGED = {
    "sign": ["m", "--key", "key.pem"],
    "show": ["m"],
    "inspect": ["m", "0"],
    "verify": ["m"],
    "gate": ["m", "--policy", "release-gate"],
    "policy draft": ["m"],
    "quarantine add": ["list.jsonl", "0", "--manifest", "m", "--reason", "x", "--who", "tester"],
    "quarantine apply": ["empty.jsonl", "--manifest", "m", "--out", "applied"],
    "report": ["m", "--out", "r.html"],
    "export lsh": ["m", "--out", "x"],
    "export croissant": [
        "m", "--out", "x", "--license", "MIT", "--url", "https://a.example", "--creator", "A", "--description", "B",
        "--date-published", "2026-11-22",
    ],
    "export openlineage": ["m", "--out", "x"],
    "export verdict": ["m", "--out", "x", "--policy", "release-gate"],
    "export card": ["m"],
    "tokenize": ["m", "--out", "t", "--format", "flat"],
    "map": ["data.jsonl", "--manifest", "m", "--dtype", "uint16"],
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_changed_table_is_exit_code_1_where_the_help_says_so(name, tmp_path, monkeypatch, keys):
    """Every command that reads a manifest refuses one whose tables were written again."""
    import pyarrow.parquet as pq

    shutil.copytree(DEMO, tmp_path / "m")
    for path in (tmp_path / "m").glob("*.parquet"):
        pq.write_table(pq.read_table(path).replace_schema_metadata({"edited": "yes"}), path)
    (tmp_path / "data.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    (tmp_path / "empty.jsonl").touch()
    shutil.copy(keys / "key.pem", tmp_path)
    monkeypatch.chdir(tmp_path)
    done = invoke(*name.split(), *DAMAGED[name])
    assert done.exit_code == 1, done.output
    assert 1 in codes_of(commands()[name])


def test_the_commands_that_never_return_1_read_no_manifest():
    """The test above is of all others, but for those that read a run log beside it, and those whose 1 is another."""
    listed = {name for name, command in commands().items() if 1 in codes_of(command)}
    others = {"attribute", "build", "checkpoints", "diff", "reconstruct", "quarantine propose", "triage-log", "watch"}
    others |= {"canary run", "canary show", "lab check", "lab compare", "lab run", "history", "probe", "triage"}
    assert listed - set(DAMAGED) == others


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ga"], ["gate"]),
        (["quarantine", "ac"], ["accept"]),
        (["gate", "--qua"], ["--quarantine", "--quarantine-list"]),
        (["gate", "m", "--policy", "rel"], ["release-gate"]),
    ],
)
def test_bash_completes_commands_options_and_policies(words, found):
    """By the line that the page says."""
    line, _ = COMPLETION["bash 4.4 or newer"]
    shell = f"""
    {line}
    COMP_WORDS=(dataaudit {" ".join(words)}); COMP_CWORD={len(words)}
    _dataaudit_completion dataaudit
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, check=False, env=os.environ | {"PATH": path}
    )
    assert (done.stdout.split(), done.stderr) == (found, "")


def test_the_page_of_the_command_line_is_in_step():
    """`python tests/unit/test_cli.py` writes docs/reference/cli.md anew."""
    assert PAGE.read_text() == page()


def loaded(arguments, modules):
    """Return which of some modules a call of the command line has loaded."""
    program = (
        f"import sys\nsys.argv = ['dataaudit', *{arguments!r}]\nfrom dataaudit.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(*sorted(name for name in {modules!r} if name in sys.modules), 'LOADED')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    *names, end = done.stdout.splitlines()[-1].split()
    assert end == "LOADED"
    return names


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["build", "--help"], ["shwo"]])
def test_help_and_mistakes_import_nothing_heavy(arguments):
    """What needs no data starts at once: none of the big libraries is loaded."""
    assert loaded(arguments, HEAVY) == []


@pytest.mark.judges
@pytest.mark.parametrize("arguments", [["gate", DEMO, "--policy", POLICY], ["diff", DEMO, DEMO], ["show", DEMO]])
def test_what_reads_manifests_imports_nothing_that_scans_them(arguments):
    """A gate runs where no corpus is, in a moment."""
    assert loaded(arguments, SCANS) == []


def test_the_version_is_the_packages():
    """`--version` is one line."""
    from dataaudit import __version__

    assert invoke("--version").output == f"dataaudit, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["shwo"], "Did you mean 'show'"),
        (["show", "--metrc", "x", "."], "Did you mean '--metric'"),
        (["show"], "Missing argument 'DIR'"),
        (["build", "x"], "Missing option '--manifest'"),
        (["show", "/nowhere"], "no manifest at /nowhere"),
        (["schema", "tabels"], "did you mean `tables`"),
        (["build", "x", "--manifest", "m", "--workers", "-1"], "-1 is not in the range x>=0"),
        (["build", "x", "--manifest", "m", "--workers", "1", "--scheduler", "tcp://h:1"], "exclude each other"),
        (["verify", "/nowhere", "--root", "/"], "without --data"),
        (
            ["gate", "/nowhere", "--policy", "relase-gate"],
            "(did you mean `release-gate`?)\n  Name a file, or a policy that",
        ),
        (["gate", "/nowhere", "--policy", "nothing.yaml"], "comes with the package: canary, release-gate, strict."),
        (["policy", "relase-gate"], "(did you mean `release-gate`?): `dataaudit gate DIR --policy NAME` judges"),
        (["policy", "strict"], "With the package come canary, release-gate, strict."),
        (["policy", "drft"], "Did you mean 'draft'"),
        (["show", "/nowhere/\x1b[31m\u202e"], "/nowhere/\\x1b[31m\\u202e"),
    ],
)
def test_wrong_use_is_exit_code_2_with_a_way_out(arguments, says):
    """The message goes to stderr, names what was meant, and holds nothing that steers a terminal."""
    shown = invoke(*arguments)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert says in shown.stderr
    assert shown.stderr.startswith("dataaudit: ")
    assert not set(shown.stderr) & {"\x1b", "\u202e"}


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ConfigError("wrong", "Do this."), 2, "dataaudit: wrong\n  Do this.\n"),
        (ManifestMismatch("differs"), 1, "dataaudit: differs\n"),
        (ClusterError("lost"), 3, "dataaudit: lost\n"),
        (BuildInterrupted("stopped"), 130, "dataaudit: stopped\n"),
        (DataAuditError("any"), 2, "dataaudit: any\n"),
        (KeyboardInterrupt(), 130, "dataaudit: interrupted\n"),
        (OSError(28, "No space left on device", "/disk/x"), 3, "No space left on device: /disk/x"),
        (OSError(24, "Too many open files", "/disk/x"), 3, "Too many open files: /disk/x\n  This process may not"),
        (OSError(27, "File too large", b"/disk/x"), 3, "File too large: /disk/x\n  This process may not write larger"),
        (MemoryError("text of a document"), 3, "dataaudit: out of memory\n  Raise `ulimit -v`"),
        (ValueError(TEXT), 3, "internal error, a fault of this program: ValueError at "),
    ],
)
def test_every_error_has_its_exit_code_and_no_traceback(monkeypatch, error, code, says):
    """A crash is never taken for an exceeded budget, and its message (it may hold text) is not shown."""
    from dataaudit.present.report import show

    def failing(*_, **__):
        raise error

    monkeypatch.setattr(show, "show_manifest", failing)
    shown = invoke("show", ".", "--json")
    assert (shown.exit_code, shown.stdout) == (code, "")
    assert says in shown.stderr
    assert "Traceback" not in shown.stderr
    assert "canary" not in shown.stderr


def test_a_current_folder_that_was_deleted_is_said_with_its_path(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    gone.rmdir()
    result = invoke("build", tmp_path, "--manifest", tmp_path / "manifest", "--workers", 0)
    assert result.exit_code == 3
    assert f"the current folder was deleted: {gone}\n  Change to one that exists." in result.stderr


def test_a_fault_shows_its_traceback_when_asked(monkeypatch):
    """DATAAUDIT_DEBUG is for those who look for the fault."""
    from dataaudit.present.report import show

    def failing(*_, **__):
        raise ValueError("why")

    monkeypatch.setattr(show, "show_manifest", failing)
    monkeypatch.setenv("DATAAUDIT_DEBUG", "1")
    assert isinstance(invoke("show", ".").exception, ValueError)


@pytest.mark.judges
def test_the_first_build_says_what_it_found_and_what_to_do(built):
    """Totals, duplicates, the lost shard with its reason, the exit code and the next commands; never a text."""
    done, target = built
    assert done.returncode == 3, done.stderr
    for expected in (
        json.loads((target / "manifest.json").read_text())["id"],
        "60",
        "not_parquet",
        "Exit code 3: could not evaluate",
        "tiny.json",
    ):
        assert expected in done.stdout, expected
    assert re.search(rf"dataaudit inspect ({re.escape(str(target))}|DIR) 2\b", done.stdout)
    assert "no readable Parquet footer" in invoke("show", target, "--section", "coverage").stdout
    assert "canary" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "inferred" in done.stderr


@pytest.mark.judges
def test_a_second_build_gives_the_same_facts_as_json(built, corpus):
    """Stdout is one JSON object and nothing else, the id is the same, nothing is scanned again."""
    _, target = built
    before = json.loads((target / "manifest.json").read_text())["id"]
    done = build(corpus, target, "--json", "--quiet")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["exit_code"], facts["id"]) == (3, 3, before)
    assert facts["parts_scanned"] == 0
    assert facts["totals"]["documents"] == 60
    assert [one["uri"] for one in facts["unread"]] == ["train/c.parquet"]


@pytest.mark.judges
def test_a_real_manifest_meets_its_published_schema(built):
    """What a build publishes is valid by the schema in the repository."""
    schema = json.loads((ROOT / "manifests/schema/manifest-v2.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads((built[1] / "manifest.json").read_text()))


@pytest.mark.judges
def test_every_reading_command_works_on_a_real_manifest(built):
    """Text and JSON, for shards, rows, metrics and the check of the data; none shows a text of the corpus."""
    target = built[1]
    calls = [
        ["show", target],
        ["show", target, "--all"],
        ["show", target, "--metric", "exact_dup_rate"],
        ["inspect", target, "0"],
        ["inspect", target, "train/b:1.jsonl"],
        ["inspect", target, "0:41"],
        ["verify", target, "--data", "--quiet"],
    ]
    for call in calls:
        text, value = invoke(*call), invoke(*call, "--json")
        assert (text.exit_code, value.exit_code) == (0, 0), text.output
        json.loads(value.stdout)
        assert "canary" not in text.output + value.output
    assert "the first in the manifest's order is 0:1" in invoke("inspect", target, "0:41").stdout


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A pair of keys, made as the pages say."""
    folder = tmp_path_factory.mktemp("keys")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / "key.pem"], check=True)
    subprocess.run(["openssl", "pkey", "-in", folder / "key.pem", "-pubout", "-out", folder / "key.pub"], check=True)
    return folder


def build_signed(corpus, target, *how):
    """Build in this process, where no unreadable file is read; the state is that of `built`."""
    given = ["build", corpus / "val.jsonl", "--manifest", target, "--tokenizer", corpus / "tiny.json", "--workers", 0]
    return invoke(*given, "--quiet", *how)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (["--sign", "--key", "absent.pem"], "the key absent.pem cannot be read"),
        (["--sign"], "--sign needs either --key FILE or --identity"),
        (["--key", "absent.pem"], "Add --sign"),
        (["--sign", "--key", PAGE], "damaged key, or another kind of file"),
    ],
)
def test_a_key_that_cannot_sign_is_known_before_the_build(corpus, tmp_path, how, says):
    """Not after hours of it."""
    done = build_signed(corpus, tmp_path / "m", *how)
    assert done.exit_code == 2
    assert says in done.output
    assert not (tmp_path / "m").exists()


def test_an_identity_that_nobody_can_prove_is_known_before_the_build(corpus, tmp_path, monkeypatch):
    """It is a CI job's, or a person's at a terminal."""
    from sigstore import oidc

    monkeypatch.setattr(oidc, "detect_credential", lambda: None)
    done = build_signed(corpus, tmp_path / "m", "--sign", "--identity")
    assert done.exit_code == 2
    assert "nobody is here to log in" in done.output
    assert not (tmp_path / "m").exists()


def test_a_build_signs_what_it_published_and_the_next_takes_no_signature_along(corpus, tmp_path, keys):
    """A signature that fails leaves the manifest, and is a failure."""
    target = tmp_path / "m"
    asked = ["verify", target, "--require-signature", "--public-key", keys / "key.pub"]
    done = build_signed(corpus, target, "--sign", "--key", keys / "key.pem")
    assert done.exit_code == 0, done.output
    assert "signed by the key" in done.stderr
    assert invoke(*asked).exit_code == 0
    assert build_signed(corpus, target).exit_code == 0
    assert not (target / "attestation.json").exists()
    assert invoke(*asked).exit_code == 1


def test_a_failed_signature_leaves_the_manifest_and_is_a_failure(corpus, tmp_path, keys, monkeypatch):
    """The services of sigstore do not answer, say."""
    from dataaudit.manifest.signing import Seal

    def fail(*_):
        raise StoreError("sigstore cannot sign: no route")

    monkeypatch.setattr(Seal, "sign", fail)
    target = tmp_path / "m"
    done = build_signed(corpus, target, "--sign", "--key", keys / "key.pem", "--json")
    assert done.exit_code == 3
    assert "no route" in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 0
    assert invoke("verify", target).exit_code == 0
    assert not (target / "attestation.json").exists()


@pytest.mark.judges
def test_a_changed_shard_makes_verify_exit_1(built, corpus):
    """`verify --data` reads the files themselves."""
    shard = corpus / "val.jsonl"
    before = shard.read_bytes()
    shard.write_bytes(before.replace(b"fox", b"cat"))
    try:
        shown = invoke("verify", built[1], "--data", "--quiet")
    finally:
        shard.write_bytes(before)
    assert shown.exit_code == 1
    assert "shard_digest" in shown.stdout


@pytest.mark.judges
@pytest.mark.parametrize("call", [["show"], ["verify"], ["show", "--json"]])
def test_a_closed_pipe_is_quiet_and_keeps_the_exit_code(built, call):
    """`| head -1` leaves no message and no failure."""
    command = " ".join([PROGRAM, call[0], str(built[1]), *call[1:]])
    done = subprocess.run(
        ["bash", "-c", f"({command}; echo code $? >&2) | true"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "code 0\n"


@pytest.mark.judges
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_name_that_the_terminal_cannot_write_is_no_crash(built, tmp_path, encoding):
    """A terminal of another encoding gets the facts, with escapes where it needs them."""
    folder = tmp_path / "\u65e5\u672c"
    shutil.copytree(built[1], folder)
    done = run("show", folder, "--all", env=os.environ | {"PYTHONIOENCODING": encoding}, errors="replace")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Coverage" in done.stdout
    assert "\\u65e5\\u672c" in done.stdout or encoding == "ascii"


@pytest.mark.parametrize("given", [("--samples", 3), ("--samples-dir", "s")])
@pytest.mark.parametrize("command", [("build", "x", "--manifest", "m"), ("inspect", "m", "0")])
def test_the_options_of_samples_go_together(command, given, tmp_path, monkeypatch):
    """How many without where to, or where to without how many, is wrong use; nothing is written."""
    monkeypatch.chdir(tmp_path)
    result = invoke(*command, *given)
    assert result.exit_code == 2
    assert "--samples N and --samples-dir DIR go together" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["add", "lift", "accept", "apply"])
def test_options_that_a_command_passes_on_are_arguments_of_the_api(name):
    """A type checker does not see them: names and defaults are the method's, but for the file and how it is printed."""
    command, method = cli.main.commands["quarantine"].commands[name], getattr(api.QuarantineList, name)
    arguments = inspect.signature(method).parameters
    options = {option.name: option for option in command.params}
    assert options.keys() - {"file", "as_json", "everything"} == arguments.keys() - {"self"}
    filled = command.make_context(name, [], resilient_parsing=True).params
    for option in options.keys() & arguments.keys():
        default = arguments[option].default
        if default is not inspect.Parameter.empty and not options[option].multiple:
            assert (filled[option] or None) == (default or None)


if __name__ == "__main__":
    PAGE.write_text(page())
