"""Changes and applies a quarantine list: what is left out of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dataaudit.api.arguments import Day, PathLike, day_of, load, path_of, texts_of
from dataaudit.manifest.load import Manifest as LoadedManifest

if TYPE_CHECKING:
    from dataaudit.decide.gate.verdict import Verdict
    from dataaudit.decide.quarantine.apply import Applied
    from dataaudit.decide.quarantine.changes import Change
    from dataaudit.decide.quarantine.list import Quarantine, Record

_Names = str | Sequence[str]


def quarantine(file: PathLike = "quarantine.jsonl") -> QuarantineList:
    """Return a quarantine list; the file is read, under its lock, whenever a method needs it.

    Args:
        file: The list, a file of JSON lines that only grows; ``add`` and ``propose`` make it.

    Raises:
        TypeError: It is no path.

    Example:
        >>> held_back = quarantine("quarantine.jsonl")
        >>> change = held_back.add("train/train/manual/part-000.jsonl.zst", manifest="manifests/demo", reason="leak")
        >>> len(change.added)
        1
    """
    return QuarantineList(file=path_of(file, "file"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineList:
    """A list of shards and documents that loaders leave out; see ``dataaudit explain quarantine``.

    Every change names who answers for it: ``who``, else git's ``user.email``, else the user's name. It is on disk when
    the method returns.
    """

    file: Path
    """The list."""

    def entries(self, *, everything: bool = False, on: Day | None = None) -> list[Record]:
        """Return the entries in the file's order, each with what became of it.

        Args:
            everything: Lifted, expired and accepted entries too, beside those in force or proposed.
            on: The day, UTC, that expiries are compared with; today when None.

        Raises:
            QuarantineError: There is no such file, or it is of another version.
            QuarantineDamaged: Lines of it cannot be read.

        Example:
            >>> [str(record.standing) for record in quarantine("quarantine.jsonl").entries()]
            ['held']
        """
        from dataaudit.decide.quarantine.list import OPEN, fold, read, today

        contents = read(self.file)
        contents.check(str(self.file))
        folded = fold(contents.entries, day_of(on, "on") or today())
        return [record for record in folded.records if everything or record.standing in OPEN]

    def held(self, *, on: Day | None = None, ignore_bad_lines: bool = False) -> Quarantine:
        """Return the entries in force, as a loader needs them: ``holds(sha256=...)``, ``rows(sha256=...)``.

        Args:
            on: The day, UTC, that expiries are compared with; today when None. A later day frees nothing.
            ignore_bad_lines: Go on when lines cannot be read; what they name is not left out then.

        Raises:
            QuarantineError: There is no such file, or it is of another version.
            QuarantineDamaged: Lines of it cannot be read.

        Example:
            >>> len(quarantine("quarantine.jsonl").held().entries)
            1
        """
        from dataaudit.decide.quarantine.list import load_quarantine

        return load_quarantine(self.file, on=day_of(on, "on"), ignore_bad_lines=ignore_bad_lines)

    def add(
        self,
        places: int | _Names,
        *,
        reason: str,
        manifest: PathLike | LoadedManifest | None = None,
        metric: str | None = None,
        run: str | None = None,
        until: Day | None = None,
        note: str | None = None,
        who: str | None = None,
    ) -> Change:
        """Leave shards or documents out.

        Args:
            places: ``SHARD`` or ``SHARD:ROW``, one or several; a shard is an ordinal, a URI or split/uri of the
                manifest, or ``sha256:HEX``, which needs none.
            reason: Why, as a short code.
            manifest: Where the shards stand, loaded or its folder.
            metric: Number of the table of shards that becomes evidence, such as ``exact_dup_rate``.
            run: Training run that becomes evidence.
            until: Last day, UTC, on which it holds.
            note: Why, in words.
            who: Who answers for it.

        Returns:
            ``added`` entries; ``known`` entries, of the same content; ``notes`` of what is left out besides.

        Raises:
            ConfigError: A place means nothing or several things, or there is no such number.
            ManifestError: The manifest is absent or damaged.
            QuarantineError: The list cannot be written.

        Example:
            >>> quarantine("quarantine.jsonl").add("14:7", manifest="manifests/demo", reason="secret").added[0].reason
            'secret'
        """
        from dataclasses import replace

        from dataaudit.decide.quarantine.changes import add, add_requests, author

        loaded = None if manifest is None else load(manifest)
        requests, notes = add_requests(
            texts_of(places, "places", numbers=True), loaded, reason=reason, metric=metric, run=run
        )
        change = add(self.file, requests, author(who, note), day_of(until, "until"))
        return replace(change, notes=tuple(notes))

    def lift(self, names: _Names, *, reason: str, note: str | None = None, who: str | None = None) -> Change:
        """End entries, turn proposals down, or pass over lines that cannot be read.

        Args:
            names: Beginnings of ids, split/uri or split/uri:row, one or several; a target ends all of its own. A line
                that cannot be read has an id too, which errors and ``dataaudit quarantine list`` show.
            reason: Why, as a short code.
            note: Why, in words.
            who: Who answers for it.

        Raises:
            QuarantineError: A name means nothing in the list, or several things.

        Example:
            >>> len(quarantine("quarantine.jsonl").lift("train/train/manual/part-000.jsonl.zst", reason="mended").added)
            1
        """
        from dataaudit.decide.quarantine.changes import author, lift

        return lift(self.file, texts_of(names, "names"), reason, author(who, note))

    def propose(self, verdict: Verdict, manifest: PathLike | LoadedManifest, *, who: str | None = None) -> Change:
        """Propose the shards that fail rules about single shards; nothing is left out until somebody accepts it.

        Args:
            verdict: What :func:`dataaudit.api.gate` returned.
            manifest: What it judged, loaded or its folder.
            who: Who ran the gate.

        Raises:
            ManifestError: The verdict is of another manifest, or the manifest is damaged.
            QuarantineError: The list cannot be written.

        Example:
            >>> verdict = gate("manifests/demo", "release-gate")
            >>> len(quarantine("quarantine.jsonl").propose(verdict, "manifests/demo").added)
            0
        """
        from dataaudit.decide.quarantine.changes import author, propose_verdict

        change, _ = propose_verdict(self.file, verdict, load(manifest), author(who, None))
        return change

    def accept(
        self,
        names: _Names | None = None,
        *,
        until: Day | None = None,
        note: str | None = None,
        who: str | None = None,
    ) -> Change:
        """Put proposals in force, with their reason and evidence.

        Args:
            names: Beginnings of ids, or targets; every open proposal when None.
            until: Last day, UTC, on which they hold.
            note: Why, in words.
            who: Who answers for it.

        Raises:
            QuarantineError: A name means no proposal, or several things.

        Example:
            >>> len(quarantine("quarantine.jsonl").accept().added)
            0
        """
        from dataaudit.decide.quarantine.changes import accept, author

        chosen = None if names is None else texts_of(names, "names")
        return accept(self.file, chosen, author(who, note), day_of(until, "until"))

    def apply(
        self,
        manifest: PathLike | LoadedManifest,
        out: PathLike,
        *,
        formats: _Names = ("list",),
        documents: bool = False,
        origins: _Names | None = None,
        findings: _Names | None = None,
        ngram_score: float = 0.5,
        with_common: bool = False,
        held_out: bool = False,
        rows: bool = False,
        root: str | None = None,
        exclude_changed: bool = False,
        keep_unread: bool = False,
        ignore_bad_lines: bool = False,
        on: Day | None = None,
    ) -> Applied:
        """Write the lists of the shards that are not left out, and what loaders need to drop single documents.

        Args:
            manifest: Where the shards stand, loaded or its folder.
            out: Folder to write: new, or an older result.
            formats: Forms of the lists: ``list``, ``datatrove``, ``hf``.
            documents: Write ``documents.parquet``: the documents to drop, with why.
            origins: What drops documents, of ``clusters``, ``overlap``, ``findings``; all of them when None.
            findings: Detectors and tiers that do; ``secrets:validated`` when None.
            ngram_score: Share of a held-out document's 13-grams from which on a training document leaks it, 0 to 1.
            with_common: Count text that very many training documents share, notices and licences, as a leak, too.
            held_out: Drop duplicates and findings from held-out splits too.
            rows: Write the rows to drop of each shard as text, too.
            root: Where the shards lie now, a folder or an address; where they were built from when None.
            exclude_changed: Leave out shards that changed since they were listed.
            keep_unread: Keep shards that the build could not read.
            ignore_bad_lines: Go on when lines of the list cannot be read.
            on: The day, UTC, that expiries are compared with; today when None.

        Returns:
            What was written: ``selection``, ``drops``, ``files``; ``exit_code`` is 3 when the drop list is known to
            lack something, 4 when no shard is left.

        Raises:
            ConfigError: An option has no such value or goes only with another, or ``out`` holds other things.
            ManifestError: The manifest is absent or damaged.
            QuarantineError: The list is absent or of another version.
            QuarantineDamaged: Lines of it cannot be read.

        Example:
            >>> quarantine("quarantine.jsonl").apply("manifests/demo", "clean", documents=True).files[0]
            'applied.json'
        """
        from dataaudit.decide.quarantine.apply import Request, apply

        request = Request(
            file=self.file,
            manifest=load(manifest),
            out=path_of(out, "out"),
            formats=texts_of(formats, "formats"),
            documents=documents,
            origins=None if origins is None else texts_of(origins, "origins"),
            findings=None if findings is None else texts_of(findings, "findings"),
            ngram_score=ngram_score,
            with_common=with_common,
            held_out=held_out,
            rows=rows,
            root=root,
            exclude_changed=exclude_changed,
            keep_unread=keep_unread,
            ignore_bad_lines=ignore_bad_lines,
            on=day_of(on, "on"),
        )
        return apply(request)
