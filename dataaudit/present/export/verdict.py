"""``dataaudit export verdict``: what a policy says of a manifest, as a statement for others, signed or not.

The statement is that of :mod:`dataaudit.manifest.trust`, which reads it. What its predicate has no field for stands
under one field whose name is a URI, as SLSA asks for.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dataaudit import __version__
from dataaudit.base import text as t
from dataaudit.base.extras import require
from dataaudit.base.render.result import Written
from dataaudit.decide.gate.verdict import State, Subject, Verdict, WaiverState
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.core import PROGRAM, VERDICT_LISTS, dataset_uri, digest_of, manifest_uri
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.signing import Signing, load_seal
from dataaudit.manifest.trust import (
    EXTENSION,
    FAILED,
    LEVEL,
    PASSED,
    PREDICATE,
    SLSA_VERSION,
    VERIFIER,
    Signer,
    load_attested,
)
from dataaudit.present.export.output import export_time, write_file


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What of a statement the caller may set."""

    time: str | None = None
    """When it was verified; see :func:`dataaudit.present.export.output.export_time`."""
    policy_uri: str | None = None
    resource_uri: str | None = None
    verifier: str | None = None


def judge_and_export(
    folder: Path,
    policy: Path,
    baseline: Path | None,
    out: Path,
    fail_on: str,
    about: About,
    signing: Signing | None,
    signer: Signer | None = None,
    quarantine: Path | None = None,
) -> Written:
    """Judge a manifest and write the verdict; waivers are judged by the day of the statement."""
    from dataaudit.decide.gate.run import judge, policy_of
    from dataaudit.decide.quarantine.released import compared_lists

    time = export_time(about.time)
    rules = policy_of(policy)
    manifest = load_attested(folder, signer)
    older = None if baseline is None else load_attested(baseline, signer)
    day = dt.datetime.fromisoformat(time).date()
    lists = compared_lists(manifest, rules, quarantine, older)
    verdict = judge(manifest, rules, baseline=older, fail_on=fail_on, on=day, lists=lists)
    return export_verdict(verdict, manifest, older, out, replace(about, time=time), signing)


def export_verdict(
    verdict: Verdict, manifest: Manifest, baseline: Manifest | None, out: Path, about: About, signing: Signing | None
) -> Written:
    """Write the statement of a verdict, or an envelope or bundle with it; return what was written."""
    require("export verdict", "export", *(("sign",) if signing is not None and signing.key is None else ()))
    # Before anything is done: a wrong key is known at once.
    seal = None if signing is None else load_seal(signing, manifest.folder)
    payload = statement(verdict, manifest, baseline, replace(about, time=export_time(about.time)))
    data, how = (payload + b"\n", "not signed") if seal is None else seal.sign(payload)
    write_file(out, data, manifest.folder)
    result = PASSED if verdict.passed else FAILED
    dataset, policy = t.clean(manifest.core.dataset.label), t.clean(verdict.policy)
    facts = {"manifest": manifest.id, "dataset": dataset, "policy": policy, "result": result, "signature": how}
    return Written(file=out, data=data, words=f"{result}, {dataset} by {policy}; {how}", facts=facts)


def statement(verdict: Verdict, manifest: Manifest, baseline: Manifest | None, about: About) -> bytes:
    """Return the statement of a verdict as canonical JSON."""
    from google.protobuf.json_format import MessageToDict
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement

    if verdict.subject.id != manifest.id:
        raise ValueError(f"the verdict is of {verdict.subject.id}, the manifest is {manifest.id}")
    if baseline is not None and (verdict.baseline is None or verdict.baseline.id != baseline.id):
        raise ValueError(f"the verdict does not compare with {baseline.id}")
    subject = verdict.subject
    predicate = {
        "verifier": {"id": about.verifier or VERIFIER, "version": {"dataaudit": __version__}},
        "timeVerified": about.time,
        "resourceUri": about.resource_uri or dataset_uri(subject.name, subject.version),
        "policy": {
            "uri": about.policy_uri
            or f"{PROGRAM}:policy:{quote(verdict.policy, safe='')}:{quote(verdict.policy_version, safe='')}",
            "digest": {"sha256": digest_of(verdict.policy_digest)},
        },
        "inputAttestations": [
            {"uri": manifest_uri(item.id), "digest": {"sha256": item.pointer_sha256}}
            for item in (manifest, baseline)
            if item is not None
        ],
        "verificationResult": PASSED if verdict.passed else FAILED,
        "verifiedLevels": [LEVEL if verdict.passed else FAILED],
        "slsaVersion": SLSA_VERSION,
        EXTENSION: _facts(verdict),
    }
    descriptor = ResourceDescriptor(
        name=f"{subject.name}@{subject.version}",
        uri=manifest_uri(subject.id),
        digest={"sha256": digest_of(subject.id)},
    )
    made = Statement([descriptor.pb], PREDICATE, predicate)
    made.validate()
    return canonical_json(MessageToDict(made.pb))


def _facts(verdict: Verdict) -> dict[str, Any]:
    """Return what the predicate has no field for."""
    return {
        "exitCode": int(verdict.exit_code),
        "policy": {"name": verdict.policy, "version": verdict.policy_version},
        "failOn": verdict.fail_on,
        "waiversHeldAgainst": verdict.on,
        VERDICT_LISTS: [
            {"digest": list_seen.digest, "lines": list(list_seen.lines)} for list_seen in verdict.quarantine_lists
        ],
        "canary": None if verdict.canary is None else asdict(verdict.canary),
        "dataset": _dataset(verdict.subject),
        "baseline": None if verdict.baseline is None else _dataset(verdict.baseline),
        "rules": {state.value: verdict.count(state) for state in State},
        "failed": [result.rule.name for result in verdict.rules if result.state == State.FAILED],
        "notEvaluated": [result.rule.name for result in verdict.rules if result.state == State.NOT_EVALUATED],
        "waiting": list(verdict.waiting),
        "waivers": [
            {
                "fingerprint": waiver_result.waiver.fingerprint,
                "rule": waiver_result.waiver.rule,
                "owner": waiver_result.waiver.owner,
                "expires": waiver_result.waiver.expires.isoformat(),
                "state": waiver_result.state.value,
            }
            for waiver_result in verdict.waivers
            if waiver_result.state != WaiverState.UNUSED
        ],
    }


def _dataset(subject: Subject) -> dict[str, Any]:
    return {"manifest" if name == "id" else name: value for name, value in asdict(subject).items()}
