"""``open_manifest``: the only way from a manifest to a training run, and what it refuses.

What is refused is a :class:`dataaudit.base.errors.CorpusRefused` with the reason and the way out; the cases stand in
``dataaudit explain training-open``. A wrong call is a :class:`dataaudit.base.errors.ConfigError`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, CorpusRefused, ManifestError, QuarantineDamaged, ReleasedHeldBack
from dataaudit.base.yamlfile import nearest
from dataaudit.decide.gate import policy_path
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import policy_of
from dataaudit.decide.quarantine.applied import AppliedFolder, read_applied
from dataaudit.decide.quarantine.list import Quarantine, in_force, load_quarantine, short_id, today
from dataaudit.decide.quarantine.released import check_pinned
from dataaudit.decide.quarantine.selection import UNREAD, Choice, Selection, drop_list, select
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import ROW_BITS
from dataaudit.manifest.replace import POINTER
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.manifest.verify import verify
from dataaudit.training.checks import (
    CHANGED,
    CHECKS,
    STREAMED,
    Check,
    Demand,
    Require,
    Roots,
    attested_by,
    check_age,
    check_demand,
    check_files,
    locate,
    passed_by,
)
from dataaudit.training.corpus import (
    COPIED,
    COUNTS,
    METRICS,
    About,
    Corpus,
    cache_folder,
    listed_places,
    make_table,
    share,
    sources_of,
)

PathLike = str | os.PathLike[str]
REQUIRE: tuple[Require, ...] = get_args(Require)
NOT_CHOSEN = "not chosen"
_NAMED = 5


def open_manifest(
    folder: PathLike,
    *,
    require: Require = "signed",
    policy: PathLike | Mapping[str, Any] | Policy | None = None,
    baseline: PathLike | None = None,
    public_key: PathLike | None = None,
    identity: str | None = None,
    issuer: str | None = None,
    signature: PathLike | None = None,
    max_age: dt.timedelta | None = None,
    quarantine: PathLike | None = None,
    ignore_bad_lines: bool = False,
    applied: PathLike | None = None,
    root: Roots = None,
    check: Check = "size",
    splits: Iterable[str] | None = None,
    cache: PathLike | None = None,
) -> Corpus:
    """Open a corpus for training, or refuse it.

    Args:
        folder: Of the manifest.
        require: ``verified``: the manifest's id is its core's digest, and every table has the digest that the core
            names. ``passed``: it also passes ``policy``, judged now; a ``gate.json`` is not believed. ``signed``: it is
            verified, and somebody who is trusted has signed that exactly this ``manifest.json`` passed (needs
            cryptography, or sigstore); where there is no signed verdict, they have signed the manifest itself
            (``attestation.json``) and ``policy`` is judged now.
        policy: File of a policy, the name of a built-in policy, or the contents of a file. Of ``signed``: the policy
            that has to have been used, any when None; and what it asks beside its rules is asked today: a signed
            manifest, its quarantine list, its records of token files and of a canary.
        baseline: Of ``passed``: folder of an older manifest that rules of change compare with.
        public_key: Whose signature it has to be: of ``signed`` that of the verdict, of ``passed`` and ``verified`` that
            of the manifest itself, ``attestation.json``, and of the baseline's; or
        identity: who signs, as in sigstore's certificate, with
        issuer: who vouches for that identity.
        signature: The signed verdict; by default ``FOLDER.verdict.dsse.json`` beside the folder for a key, and
            ``FOLDER.verdict.sigstore.json`` for an identity.
        max_age: Longest time since the signed verdict, else since the end of the build.
        quarantine: A quarantine list; the shards and single documents that it names today are left out.
        ignore_bad_lines: Go on although lines of the list cannot be read.
        applied: A folder of ``quarantine apply --documents``: its documents are skipped, and so are the shards that it
            left out. It has to be of this manifest and, when ``quarantine`` is given, of this list.
        root: Folder or address that holds the shards now, of all splits or by split; as the manifest says when None.
        check: ``size``, ``sample`` (at most 64 files of together 1 GB are hashed) or ``all`` (every file is hashed).
            Rows of streamed datasets have no digests of files; ``Corpus.notes`` says so.
        splits: Splits to train on; those that are not held out when None (all, when all are held out).
        cache: Folder of the shared table; in the user's cache folder when None.

    Returns:
        The corpus. Shards that are left out keep their ordinals: quarantine never changes the order of the rest.

    Raises:
        CorpusRefused: It may not be trained on.
        ConfigError: The arguments do not go together, or a file that they name cannot be read.
        ManifestError: There is no manifest in the folder.
        QuarantineError: There is no such list or folder, or it is of another version.
        StoreError: The roots of trust of sigstore cannot be had.
    """
    rules, name = _policy(policy)
    demand = Demand(
        require=_one_of("require", require, REQUIRE),
        policy=rules,
        policy_name=name,
        baseline=None if baseline is None else load_manifest(Path(baseline)),
        signature=_path(signature),
        public_key=_path(public_key),
        identity=identity,
        issuer=issuer,
        max_age=max_age,
        listed=None if ignore_bad_lines else _path(quarantine),
    )
    check_demand(demand)
    _one_of("check", check, CHECKS)
    where = Path(folder)
    try:
        manifest = load_manifest(where)
        return _open(
            manifest,
            demand,
            listed=None if quarantine is None else load_quarantine(Path(quarantine), ignore_bad_lines=ignore_bad_lines),
            applied=None if applied is None else read_applied(Path(applied)),
            root=root,
            check=check,
            splits=splits,
            cache=_path(cache),
        )
    except (ManifestError, QuarantineDamaged, ReleasedHeldBack) as error:
        if isinstance(error, ManifestError) and not (where / POINTER).exists():
            raise
        raise CorpusRefused(error.message, error.hint) from None


def _open(
    manifest: Manifest,
    demand: Demand,
    *,
    listed: Quarantine | None,
    applied: AppliedFolder | None,
    root: Roots,
    check: Check,
    splits: Iterable[str] | None,
    cache: Path | None,
) -> Corpus:
    _check_tables(manifest)
    if demand.require != "signed" and (demand.public_key, demand.identity) != (None, None):
        manifest = attested_by(manifest, demand)
    passed = passed_by(manifest, demand)
    check_age(manifest, passed, demand.max_age)
    if demand.listed is not None:
        check_pinned(demand.listed, manifest, None)
    if applied is not None:
        _check_applied(manifest, listed, applied)
    shards = manifest.table("shards", [*COPIED, *COUNTS, *METRICS, "bad_records", "reason", "sources"])
    chosen = _splits(manifest, splits)
    quarantine = listed or in_force((), digest="", on=today())
    selection = select(manifest, quarantine)
    left_out = _left_out(selection, applied, chosen)
    if "" not in left_out:
        tally = ", ".join(f"{left_out.count(why):,} {why}" for why in sorted(set(left_out))) or "it has none"
        raise CorpusRefused(
            f"no shard is left of {', '.join(chosen)}: {tally}", "Choose other splits, or lift entries of the list."
        )
    paths = locate(manifest, shards, left_out, root)
    notes = check_files(manifest, shards, paths, check)
    if applied is not None:
        notes += [f"the drop list lacks {t.clean(what)}" for what in applied.lacks]
    documents = [drop_list(manifest, selection, quarantine, Choice(origins=())).table]
    documents += [applied.documents] if applied is not None else []
    places = listed_places(documents)
    about = About(
        id=manifest.id,
        dataset=manifest.core.dataset.label,
        passed=passed,
        digests={
            "manifest": manifest.id,
            "policy": "" if passed is None else passed.digest,
            "quarantine": quarantine.digest,
            "applied": "" if applied is None else applied.digest,
            "tokenizer": f"sha256:{manifest.core.tokenizer.sha256}",
            "config": digest_json(manifest.core.config),
            # of what is left out: the same list names less once an entry has ended
            "held": f"sha256:{hashlib.sha256(chr(10).join(left_out).encode() + places.tobytes()).hexdigest()}",
        },
        splits=chosen,
        sources=sources_of(shards),
        config=manifest.core.config,
    )
    folder = cache_folder(cache)
    return Corpus(
        file=share(make_table(shards, paths=paths, held=left_out, about=about), "shards", folder),
        drops_file=share(pa.table({"place": places}), "drops", folder),
        notes=(*notes, *_notes(manifest, shards, left_out, selection)),
    )


def _one_of(name: str, given: Any, known: tuple[Any, ...]) -> Any:
    if given not in known:
        raise ConfigError(f"{name}: no `{given}`{nearest(str(given), known)}", f"One of {', '.join(known)}.")
    return given


def _path(given: PathLike | None) -> Path | None:
    return None if given is None else Path(given)


def _policy(given: PathLike | Mapping[str, Any] | Policy | None) -> tuple[Policy | None, Path]:
    """Return a policy, and its file for messages."""
    if given is None or isinstance(given, Mapping | Policy):
        return None if given is None else policy_of(given), Path("policy")
    path = policy_path(Path(given))
    return policy_of(path), path


def _check_tables(manifest: Manifest) -> None:
    problems = verify(manifest)
    if problems:
        more = f" (and {t.plural(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""
        raise CorpusRefused(f"the manifest is not as it was published: {t.clean(problems[0].text)}{more}", CHANGED)


def _check_applied(manifest: Manifest, listed: Quarantine | None, applied: AppliedFolder) -> None:
    """Refuse what `quarantine apply` made of another manifest or list, and rows that there are not."""
    again = "Write it again: `dataaudit quarantine apply FILE --manifest DIR --out FOLDER --documents`."
    if applied.manifest != manifest.id:
        raise CorpusRefused(
            f"the applied list is of another manifest: {t.clean(applied.manifest, 80)}, this one is {manifest.id}",
            again,
        )
    if listed is not None and applied.quarantine != listed.digest:
        raise CorpusRefused(
            f"the applied list is {t.clean(applied.quarantine, 80)}, the quarantine list is {listed.digest}",
            again,
        )
    shards = manifest.table("shards", ["rows", "sha256"])
    numbers, rows = (applied.documents[name].to_numpy().astype(np.int64) for name in ("shard", "row"))
    there = (numbers >= 0) & (numbers < shards.num_rows) & (rows >= 0) & (rows < 1 << ROW_BITS)
    if there.all():
        there = rows < shards["rows"].to_numpy()[numbers]
    digests = shards["sha256"].take(pa.array(np.where(there, numbers, 0))) if shards.num_rows else None
    if not there.all() or (digests is not None and not digests.equals(applied.documents["sha256"])):
        raise CorpusRefused("the applied list names documents that the manifest does not have", again)


def _splits(manifest: Manifest, given: Iterable[str] | None) -> tuple[str, ...]:
    known = {split.name: split.held_out for split in manifest.core.splits}
    if given is None:
        return tuple(sorted(name for name, held_out in known.items() if not held_out)) or tuple(sorted(known))
    chosen, hint = (given,) if isinstance(given, str) else tuple(given), f"Known: {', '.join(sorted(known))}."
    for split in chosen:
        if split not in known:
            raise ConfigError(f"splits: no split `{split}`{nearest(split, list(known))}", hint)
    if not chosen:
        raise ConfigError("splits: expected at least one", hint)
    return tuple(sorted(set(chosen)))


def _left_out(selection: Selection, applied: AppliedFolder | None, chosen: tuple[str, ...]) -> list[str]:
    """Return for each shard why loaders do not get it; empty when they do.

    What the applied folder left out stays so although an entry may have ended since: its documents are in no drop list.
    """
    excluded = {} if applied is None else {(split, uri): why for split, uri, why in applied.excluded}
    rows = [(shard.why, shard.row["split"], shard.row["uri"]) for shard in selection.shards]
    return [
        why or excluded.get((split, uri), "") or ("" if split in chosen else NOT_CHOSEN) for why, split, uri in rows
    ]


def _notes(manifest: Manifest, shards: pa.Table, left_out: list[str], selection: Selection) -> list[str]:
    """Return what nobody should overlook."""
    notes = []
    formats, reasons = shards["format"].to_pylist(), shards["reason"].to_pylist()
    if streamed := sum(kind == STREAMED and not why for kind, why in zip(formats, left_out, strict=True)):
        notes.append(f"{t.plural(streamed, 'shard')} of streamed datasets: no digest of a file to hold them to")
    ledger = manifest.core.ledger
    counts = ((ledger.listed_shards, "shard"), (ledger.documents.held_back, "document"))
    if listed := " and ".join(t.plural(many, noun) for many, noun in counts if many):
        notes.append(f"{listed} left out, as the quarantine list of the build said: nobody audited them")
    if unread := sum(why == UNREAD and by != HELD_BACK for why, by in zip(left_out, reasons, strict=True)):
        notes.append(f"{t.plural(unread, 'shard')} could not be read by the build: held, as nobody audited them")
    for item in selection.stale[:_NAMED]:
        name = t.clean(selection.shards[item.shard].name, 200)
        notes.append(
            f"{name} is listed under another digest ({short_id(item.entry)}): it has changed since, and is not held"
        )
    if len(selection.stale) > _NAMED:
        notes.append(f"and {len(selection.stale) - _NAMED:,} more are listed under another digest")
    return notes
