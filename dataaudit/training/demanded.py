"""What has to be known of a manifest before it is trained on: a verdict, whose signature, from when."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dataaudit import text as t
from dataaudit.errors import ConfigError, CorpusRefused, ExitCode
from dataaudit.gate.policy import Policy
from dataaudit.gate.proven import check_proof
from dataaudit.gate.run import judge
from dataaudit.gate.verdict import State, Verdict
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.replace import ATTESTATION
from dataaudit.quarantine.released import check_pinned, held_against
from dataaudit.training.shardtable import Passed

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
    """Refuse arguments that say nothing, or not enough, about what is required.

    Raises:
        ConfigError: There are such.
    """
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
    """Return who says that the manifest passed; None when that was not asked."""
    if demand.require == "verified":
        return None
    return _signed(manifest, demand) if demand.require == "signed" else _judged(manifest, demand)


def _judged(manifest: Manifest, demand: Demand) -> Passed:
    """Return what a policy says now."""
    assert demand.policy is not None
    lists = held_against(manifest, demand.policy, baseline=demand.baseline)
    verdict = judge(manifest, demand.policy, baseline=demand.baseline, lists=lists)
    if not verdict.passed:
        raise CorpusRefused(
            f"the manifest does not pass the policy {t.clean(verdict.policy)}: {_why(verdict)}",
            f"`dataaudit gate {t.clean(str(manifest.folder))} --policy {t.clean(str(demand.policy_name))}` says which"
            " shards; mend them and build again, or waive a known case.",
        )
    return Passed(policy=verdict.policy, version=verdict.policy_version, digest=verdict.policy_digest, signer="", at="")


def _why(verdict: Verdict) -> str:
    """Return the rules that keep a verdict from passing, or what else does."""
    if verdict.exit_code == ExitCode.NOTHING_EVALUATED:
        return "nothing was evaluated"
    told = []
    for state, word in ((State.FAILED, "failed"), (State.NOT_EVALUATED, "not evaluated")):
        names = [t.clean(one.rule.name) for one in verdict.rules if state in one.open_states]
        if names:
            more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            told.append(f"{word}: {', '.join(names[:_NAMED])}{more}")
    return "; ".join(told) or "a waiver has expired"


def attested_by(manifest: Manifest, demand: Demand) -> Manifest:
    """Return a manifest that is known to be signed itself; its baseline has to be, too."""
    try:
        from dataaudit.manifest.attestation import attested
        from dataaudit.manifest.trust import Signer
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
    said = verdict.summary
    if problems or said is None:
        raise CorpusRefused(
            f"the signed verdict does not count: {t.clean(problems[0].text)}",
            "Train on what was signed, or have this manifest judged and signed: `dataaudit explain verdicts`.",
        )
    if demand.listed is not None:
        check_pinned(demand.listed, None, said)
    if demand.policy is not None:
        _ask_today(manifest, demand, said)
    policy = said.facts.get("policy")
    own = policy if isinstance(policy, dict) else {}
    return Passed(
        policy=str(own.get("name") or said.policy),
        version=str(own.get("version") or ""),
        digest=f"sha256:{said.policy_digest}" if said.policy_digest else "",
        signer=verdict.signer,
        at=said.time,
    )


def _ask_today(manifest: Manifest, demand: Demand, said: Summary) -> None:
    """Ask what a policy asks beside its rules: the signed verdict says how that was when it was written.

    Raises:
        ReleasedHeldBack: The policy's list holds back today what the manifest has in its numbers.
        QuarantineDamaged: Lines of that list are lost.
        ManifestMismatch: The record of token files does not prove it any more.
        SignatureRefused: The policy asks for a signed manifest, and this one is not, or by somebody else.
    """
    policy = demand.policy
    assert policy is not None
    if policy.require_signature:
        attested_by(manifest, demand)
    lists = held_against(manifest, policy)
    if policy.list_path is not None:
        check_pinned(policy.list_path, manifest, said)
    if policy.proof_path is not None:
        check_proof(policy.proof_path, manifest, lists, policy.token_proof_refuses)


def check_age(manifest: Manifest, passed: Passed | None, max_age: dt.timedelta | None) -> None:
    """Refuse a verdict, or a build, that is older than ``max_age``; nothing is refused where that is None."""
    if max_age is None:
        return
    signed = passed is not None and bool(passed.signer)
    what = "the signed verdict is" if signed else "the build ended"
    said = passed.at if passed is not None and signed else manifest.run.finished
    try:
        time = dt.datetime.fromisoformat(said)
    except ValueError:
        raise CorpusRefused(
            f"max_age is given, but when {what} cannot be read: {t.clean(said, 100) or 'no time'}", CHANGED
        ) from None
    age = dt.datetime.now(dt.UTC) - (time if time.tzinfo else time.replace(tzinfo=dt.UTC))
    of = f"{what} {'of ' if signed else ''}{time.isoformat()}"
    if age < -_AHEAD:
        raise CorpusRefused(f"{of}, which is later than this machine's clock", "Set the clock, or sign again.")
    if age > max_age:
        again = "Judge and sign it again." if signed else "Build it again."
        raise CorpusRefused(f"{of}, longer ago than max_age ({max_age})", f"{again} Or allow more: max_age=.")
