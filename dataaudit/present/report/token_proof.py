"""What people read of a proof that token files hold what was audited."""

from __future__ import annotations

from pathlib import Path

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Facts
from dataaudit.base.render.terminal import render
from dataaudit.manifest.token_proof import Case, ProvenFile, TokenProof

_FAULTS = {
    "held_out": "held out",
    "missing": "missing",
    "extra": "not audited",
    "other_split": "of another split",
    "duplicated": "too often",
    "held_back": "held back",
    "truncated": "truncated",
    "retokenized": "in other tokens",
    "reordered": "in other order",
}
_SHOWN = 5


def proof_json(proof: TokenProof) -> str:
    """Return the record as JSON."""
    return proof.model_dump_json(by_alias=True, indent=2) + "\n"


def proof_text(proof: TokenProof, record: Path) -> str:
    """Return the record for a terminal."""
    names = t.some_of([t.clean(file.name, 200) for file in proof.files], _SHOWN)
    holds = "what was audited, and nothing else" if proof.result == "proven" else "not what was audited"
    if held_out := proof.faults.held_out.documents:
        holds = f"{t.plural(held_out, 'held-out document')} in it"
    pairs = [
        ("manifest", proof.manifest),
        ("audited", f"{t.plural(proof.expected, 'document')} that nothing holds back"),
        ("in the files", t.plural(proof.found, "document")),
        ("the same", f"{t.plural(proof.matched, 'document')}, {t.plural(proof.matched_tokens, 'token')}"),
    ]
    if not proof.matched:
        pairs.append(("", "none is the same: the files are of another corpus, tokenizer, type or end token"))
    pairs += [("end token", ends) for file in proof.files if (ends := _ends(file, proof.end_token))][:_SHOWN]
    if proof.unread_splits and proof.faults.extra.documents:
        absent = ", ".join(t.clean(split, 100) for split in proof.unread_splits)
        pairs.append(("not looked for", f"documents of {absent}: the shards cannot be read here; say --root"))
    differs = []
    for name, words in _FAULTS.items():
        fault = getattr(proof.faults, name)
        if fault.documents:
            shown = "; ".join(_case(item) for item in fault.named[:_SHOWN])
            more = f"; and {fault.documents - _SHOWN:,} more" if fault.documents > _SHOWN else ""
            differs.append((words, f"{t.plural(fault.documents, 'document')}: {shown}{more}"))
    pairs.append(("record", t.clean(str(record))))
    return render(f"{names}: {holds}", [Facts(pairs=tuple(pairs)), Facts(title="What differs", pairs=tuple(differs))])


def _ends(file: ProvenFile, token: int | None) -> str:
    """Return which documents of a file no end token ends; nothing if each has one."""
    if file.ended is None or file.ended == file.documents:
        return ""
    name = t.clean(file.name, 100)
    if file.ended:
        return f"{t.plural(file.documents - file.ended, 'document')} of {name} end without token {token}"
    return f"no document of {name} ends with token {token}: in training nothing tells one from the next"


def _case(case: Case) -> str:
    position = "" if case.file is None else f"{t.clean(case.file, 100)} document {case.at:,}"
    return " is ".join(part for part in (position, t.clean(case.document or "", 200)) if part)
