"""Checks of a manifest before it is trained on: a verdict, its signature and age, and the files that loaders open.

Files are compared with those that were audited by size, by a sample of hashes, or by all.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal, TypeVar

import pyarrow as pa

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, CorpusRefused, ExitCode
from dataaudit.base.yamlfile import nearest
from dataaudit.decide.gate import builtin_path
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import check_canary, check_proof, judge
from dataaudit.decide.gate.verdict import State, Verdict
from dataaudit.decide.quarantine.released import check_pinned, compared_lists
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.replace import ATTESTATION
from dataaudit.scan.corpus.storage.address import RemotePath, scheme_of
from dataaudit.scan.corpus.storage.files import file_of, open_binary, stat_file
from dataaudit.training.corpus import Passed

if TYPE_CHECKING:
    from dataaudit.manifest.trust import Summary

Require = Literal["signed", "passed", "verified"]
CHANGED = "Restore the folder or build again; `dataaudit verify` says more."
"""What to do about a manifest that is not as it was published."""
_AHEAD = dt.timedelta(minutes=5)
"""How far clocks may differ before a verdict is of the future."""
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What has to be known of a manifest."""

    require: Require
    policy: Policy | None
    policy_name: Path
    """Its file, for messages."""
    baseline: Manifest | None
    signature: Path | None
    public_key: Path | None
    identity: str | None
    issuer: str | None
    max_age: dt.timedelta | None
    listed: Path | None
    """The quarantine list, whose lines may not be lost."""


def check_demand(demand: Demand) -> None:
    """Refuse arguments that mean nothing, or too little, for what is required."""
    if demand.require != "signed" and demand.signature is not None:
        raise ConfigError(
            f"signature is of signed verdicts, but require={demand.require!r} asks for none", "Add require='signed'."
        )
    named = (demand.public_key, demand.identity, demand.issuer) != (None, None, None)
    halved = (demand.public_key is None) == (demand.identity is None) or (demand.identity is None) != (
        demand.issuer is None
    )
    if halved and (named or demand.require == "signed"):
        raise ConfigError(
            "a signature needs either public_key=FILE or identity=WHO with issuer=URL"
            if demand.require != "signed"
            else "require='signed' needs either public_key=FILE or identity=WHO with issuer=URL",
            "A signature says nothing without knowing whose it has to be.",
        )
    if demand.max_age is not None and not isinstance(demand.max_age, dt.timedelta):
        raise ConfigError(f"max_age: expected a timedelta, found {demand.max_age!r}", "datetime.timedelta(days=30)")
    if demand.require == "passed" and demand.policy is None:
        raise ConfigError("require='passed' needs a policy", "Name its file, or a ready one: policy='release-gate'.")
    if demand.require == "verified" and demand.policy is not None:
        raise ConfigError("policy is given, but require='verified' judges nothing", "Add require='passed'.")
    if demand.require != "passed" and demand.baseline is not None:
        raise ConfigError(f"baseline is given, but require={demand.require!r} judges nothing", "Add require='passed'.")


def passed_by(manifest: Manifest, demand: Demand) -> Passed | None:
    """Return who judged that the manifest passed; None when that is not required."""
    if demand.require == "verified":
        return None
    return _signed(manifest, demand) if demand.require == "signed" else _judged(manifest, demand)


def _judged(manifest: Manifest, demand: Demand) -> Passed:
    """Judge the manifest by a policy now."""
    assert demand.policy is not None
    lists = compared_lists(manifest, demand.policy, baseline=demand.baseline)
    verdict = judge(manifest, demand.policy, baseline=demand.baseline, lists=lists)
    if not verdict.passed:
        path = demand.policy_name
        name = path.stem if path == builtin_path(path.stem) else str(path)
        raise CorpusRefused(
            f"the manifest does not pass the policy {t.clean(verdict.policy)}: {_why(verdict)}",
            f"`dataaudit gate {t.clean(quote(str(manifest.folder)))} --policy {t.clean(quote(name))}` says which"
            " shards; mend them and build again, or waive a known case.",
        )
    return Passed(policy=verdict.policy, version=verdict.policy_version, digest=verdict.policy_digest, signer="", at="")


def _why(verdict: Verdict) -> str:
    """Return the rules that keep a verdict from passing, or what else does."""
    if verdict.exit_code == ExitCode.NOTHING_EVALUATED:
        return "nothing was evaluated"
    reasons = []
    for state, word in ((State.FAILED, "failed"), (State.NOT_EVALUATED, "not evaluated")):
        if names := [t.clean(result.rule.name) for result in verdict.rules if state in result.open_states]:
            reasons.append(f"{word}: {t.some_of(names, _NAMED)}")
    return "; ".join(reasons) or "a waiver has expired"


def attested_by(manifest: Manifest, demand: Demand) -> Manifest:
    """Return a manifest that is known to be signed itself; its baseline has to be, too."""
    try:
        from dataaudit.manifest.trust import Signer, attested
    except ModuleNotFoundError as error:
        raise _no_cryptography(error) from None
    signer = Signer(public_key=demand.public_key, identity=demand.identity, issuer=demand.issuer)
    if demand.baseline is not None:
        attested(demand.baseline, signer)
    return attested(manifest, signer)


def _no_cryptography(error: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"to check a signature the module {error.name} is needed", "pip install cryptography")


def _signed(manifest: Manifest, demand: Demand) -> Passed:
    try:
        from dataaudit.manifest.trust import Trust, TrustedPolicy, check_trust
    except ModuleNotFoundError as error:
        raise _no_cryptography(error) from None
    kind = "sigstore" if demand.public_key is None else "dsse"
    folder = Path(os.path.abspath(manifest.folder))
    beside = folder.with_name(f"{folder.name}.verdict.{kind}.json")
    signature = demand.signature or beside
    if demand.signature is None and not beside.exists():
        if demand.policy is not None and (folder / ATTESTATION).exists():
            return _judged(attested_by(manifest, demand), demand)
        raise CorpusRefused(
            f"no signed verdict at {beside}",
            "`dataaudit export verdict DIR --policy FILE --out FILE --sign --key KEY` writes one; signature= names it."
            " Of a manifest that `dataaudit sign` signed, policy= has it judged now.",
        )
    expected = None if demand.policy is None else TrustedPolicy(path=demand.policy_name, digest=demand.policy.digest)
    trust = Trust(
        signature=signature,
        public_key=demand.public_key,
        identity=demand.identity,
        issuer=demand.issuer,
        policy=expected,
    )
    verdict, problems = check_trust(manifest, trust)
    summary = verdict.summary
    if problems or summary is None:
        raise CorpusRefused(
            f"the signed verdict does not count: {t.clean(problems[0].text)}",
            "Train on what was signed, or have this manifest judged and signed: `dataaudit explain verdicts`.",
        )
    if demand.listed is not None:
        check_pinned(demand.listed, None, summary)
    if demand.policy is not None:
        _check_today(manifest, demand, summary)
    policy = summary.facts.get("policy")
    own = policy if isinstance(policy, dict) else {}
    return Passed(
        policy=str(own.get("name") or summary.policy),
        version=str(own.get("version") or ""),
        digest=f"sha256:{summary.policy_digest}" if summary.policy_digest else "",
        signer=verdict.signer,
        at=summary.time,
    )


def _check_today(manifest: Manifest, demand: Demand, summary: Summary) -> None:
    """Check what a policy requires beside its rules: the signed verdict has it as it was when it was written."""
    policy = demand.policy
    assert policy is not None
    if policy.require_signature:
        attested_by(manifest, demand)
    lists = compared_lists(manifest, policy)
    if (path := policy.path_of("quarantine_list")) is not None:
        check_pinned(path, manifest, summary)
    if (path := policy.path_of("token_proof")) is not None:
        check_proof(path, manifest, lists, policy.token_proof_refuses)
    check_canary(policy, manifest)


def check_age(manifest: Manifest, passed: Passed | None, max_age: dt.timedelta | None) -> None:
    """Refuse a verdict, or a build, that is older than ``max_age``; nothing is refused where that is None."""
    if max_age is None:
        return
    signed = passed is not None and bool(passed.signer)
    what = "the signed verdict is" if signed else "the build ended"
    recorded = passed.at if passed is not None and signed else manifest.run.finished
    try:
        time = dt.datetime.fromisoformat(recorded)
    except ValueError:
        raise CorpusRefused(
            f"max_age is given, but when {what} cannot be read: {t.clean(recorded, 100) or 'no time'}", CHANGED
        ) from None
    age = dt.datetime.now(dt.UTC) - (time if time.tzinfo else time.replace(tzinfo=dt.UTC))
    of = f"{what} {'of ' if signed else ''}{time.isoformat()}"
    if age < -_AHEAD:
        raise CorpusRefused(f"{of}, which is later than this machine's clock", "Set the clock, or sign again.")
    if age > max_age:
        again = "Judge and sign it again." if signed else "Build it again."
        raise CorpusRefused(f"{of}, longer ago than max_age ({max_age})", f"{again} Or allow more: max_age=.")


Check = Literal["size", "sample", "all"]
CHECKS: tuple[Check, ...] = ("size", "sample", "all")
SAMPLE_FILES = 64
SAMPLE_BYTES = 10**9
STREAMED = "datasets"
"""Format of shards that are rows of a streamed dataset, and no files."""
_NAME = 200
_THREADS = 16
_AT_ONCE = 64
_BLOCK_BYTES = 1 << 20
_T = TypeVar("_T")
_R = TypeVar("_R")
Root = str | os.PathLike[str]
Roots = Root | Mapping[str, Root] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A kept shard's file."""

    path: str
    split: str
    uri: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """``split/uri``, for messages."""
        return _name(self.split, self.uri)


def locate(manifest: Manifest, shards: pa.Table, left_out: Sequence[str], root: Roots) -> list[str]:
    """Return where each shard's file lies now; empty for those that are left out or streamed."""
    splits, uris, formats = (shards[name].to_pylist() for name in ("split", "uri", "format"))
    needed = [not why and kind != STREAMED for why, kind in zip(left_out, formats, strict=True)]
    wanted = {split for split, need in zip(splits, needed, strict=True) if need}
    roots = {split: _root(manifest, split, root) for split in sorted(wanted)}
    if isinstance(root, Mapping):
        known = [split.name for split in manifest.core.splits]
        for split in root:
            if split not in known:
                raise ConfigError(f"root: no split `{split}`{nearest(split, known)}", "Name splits of the manifest.")
    paths = []
    for split, uri, need in zip(splits, uris, needed, strict=True):
        path = file_of(roots[split], uri) if need else ""
        if path is None:
            raise CorpusRefused(
                f"{_name(split, uri)}: the URI leads out of its root", "No build writes such a manifest: build again."
            )
        try:
            path.encode()
        except UnicodeEncodeError:
            raise CorpusRefused(
                f"{_name(split, uri)}: the file's name is not UTF-8, which training does not read",
                "Rename the file and build again, or leave the shard out: `dataaudit quarantine add`.",
            ) from None
        paths.append(path)
    return paths


def _root(manifest: Manifest, split: str, given: Roots) -> str:
    chosen = given.get(split) if isinstance(given, Mapping) else given
    root = manifest.run.roots.get(split, "") if chosen is None else os.fspath(chosen)
    shown = t.clean(root, _NAME)
    if not root:
        raise CorpusRefused(
            f"the manifest does not say where the shards of split {split} lie",
            "Name the folder that holds them: root=.",
        )
    if scheme_of(root):
        return root
    if not os.path.isdir(root):
        raise CorpusRefused(
            f"expected the shards of split {split} below {shown}, but there is no such folder",
            "Name the folder that holds them now: root=FOLDER, or root={split: FOLDER}.",
        )
    return os.path.abspath(root)


def check_files(manifest: Manifest, shards: pa.Table, paths: Sequence[str], check: Check) -> list[str]:
    """Compare the files of shards that are read with the manifest."""
    rows = shards.select(["split", "uri", "size", "sha256"]).to_pylist()
    files = {ordinal: _File(path=path, **rows[ordinal]) for ordinal, path in enumerate(paths) if path}
    _refuse(_wrong(_size_problem, files), files)
    chosen = {} if check == "size" else files if check == "all" else _sample(manifest, files)
    unique = sorted({file.path for file in chosen.values()})
    digests = dict(zip(unique, _threaded(sha256_of, unique, at_once=1), strict=True))
    _refuse(_wrong(lambda file: digest_problem(digests[file.path], file.sha256), chosen), files)
    return _notes(check, files, chosen)


def _notes(check: Check, files: Mapping[int, _File], chosen: Mapping[int, _File]) -> list[str]:
    number = t.plural(len(files), "file")
    size = t.size(sum(file.size for file in chosen.values()))
    if check == "size":
        return [f"{number}: of the size that the manifest says; no byte was read"]
    if check == "all":
        return [f"{number}, {size}: every byte hashed, as the manifest says"]
    names = ", ".join(file.name for file in chosen.values())
    return [f"{number}: of the size that the manifest says; {len(chosen)}, {size}, hashed: {names or 'none'}"]


def _sample(manifest: Manifest, files: Mapping[int, _File]) -> dict[int, _File]:
    """Return files in the order of a hash, as long as they fit, by ordinal."""
    order = sorted(files, key=lambda ordinal: hashlib.sha256(f"{manifest.id}:{ordinal}".encode()).digest())
    chosen: list[int] = []
    left = SAMPLE_BYTES
    for ordinal in order:
        if len(chosen) < SAMPLE_FILES and files[ordinal].size <= left:
            chosen.append(ordinal)
            left -= files[ordinal].size
    return {ordinal: files[ordinal] for ordinal in sorted(chosen)}


def _wrong(problem_of: Callable[[_File], str], files: Mapping[int, _File]) -> list[str]:
    """Return ``name (what is wrong)`` of each file with something wrong."""
    problems = _threaded(problem_of, list(files.values()), at_once=_AT_ONCE)
    return [f"{file.name} ({problem})" for file, problem in zip(files.values(), problems, strict=True) if problem]


def _size_problem(file: _File) -> str:
    """Return what is wrong with a file that is not read; empty for nothing."""
    try:
        if isinstance(file.path, RemotePath):
            size = stat_file(file.path).size
        else:
            status = os.stat(file.path)
            if not stat.S_ISREG(status.st_mode):
                return "no file"
            if not os.access(file.path, os.R_OK):
                return "it may not be read"
            size = status.st_size
    except OSError as error:
        return _reason(error)
    return "" if size == file.size else f"{size:,} bytes, audited were {file.size:,}"


def sha256_of(path: str) -> str | OSError:
    """Return the digest of a file, hex, or why it cannot be read."""
    try:
        state = hashlib.sha256()
        with open_binary(path) as file:
            while block := file.read(_BLOCK_BYTES):
                state.update(block)
        return state.hexdigest()
    except OSError as error:
        return error


def digest_problem(digest: str | OSError, audited: str) -> str:
    """Return how a file differs from the audited file; nothing where it does not."""
    if isinstance(digest, OSError):
        return _reason(digest)
    return "" if digest == audited else "other bytes of the same size"


def _threaded(function: Callable[[_T], _R], items: Sequence[_T], *, at_once: int) -> list[_R]:
    """Return the results of a function, in the items' order; a thread takes so many items at once."""
    parts = [items[start : start + at_once] for start in range(0, len(items), at_once)]
    with ThreadPoolExecutor(_THREADS) as pool:
        return [result for results in pool.map(lambda part: list(map(function, part)), parts) for result in results]


def _refuse(wrong: Sequence[str], files: Mapping[int, _File]) -> None:
    if not wrong:
        return
    are = "is not the one that was audited" if len(wrong) == 1 else "are not those that were audited"
    raise CorpusRefused(
        f"{len(wrong):,} of {t.plural(len(files), 'file')} {are}: {t.some_of(wrong, _NAMED)}",
        "Restore them, name the folder that holds them now (root=), or leave shards out: `dataaudit quarantine add`.",
    )


def _reason(error: OSError) -> str:
    return "absent" if isinstance(error, FileNotFoundError) else str(error.strerror or error)[:_NAME]


def _name(split: str, uri: str) -> str:
    return t.clean(f"{split}/{uri}", _NAME)
