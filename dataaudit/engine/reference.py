"""The reference: an older manifest, loaded once before anything is scanned. Its corpus is never needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dataaudit.corpus.tokens import TokenizerFile
from dataaudit.engine.progress import Progress
from dataaudit.errors import ManifestError
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.drift.stage import Histogram
from dataaudit.stages.base import Stage
from dataaudit.stages.partial import OTHER
from dataaudit.stages.token_counts import NO_HISTOGRAM, OTHER_TOKENIZER, Reference


def load_reference(
    given: str | None, base: Path, stages: Sequence[Stage], tokenizer: TokenizerFile, progress: Progress
) -> tuple[tuple[str, ...], Reference | None]:
    """Load the reference manifest, if there is one, and check what is used of it.

    Args:
        given: Folder of the manifest, relative to ``base``.
        base: Where relative paths start.
        stages: Stages of this build.
        tokenizer: Of this build.
        progress: Where to say that nothing can be compared.

    Returns:
        Ids of the manifests that this one is compared with, and the token counts.

    Raises:
        ManifestError: There is no manifest, it is damaged, or of an unknown schema.
    """
    if given is None:
        return (), None
    try:
        manifest = load_manifest(base / given)
        if not any(stage.name == Histogram.name for stage in stages):
            progress.note("reference: nothing is compared, because the stage `histogram` is off", important=True)
            return (manifest.id,), None
        return (manifest.id,), _reference(manifest, tokenizer, progress)
    except ManifestError as error:
        hint = f"{error.hint}\n  It is the reference of this build, of its config or of the call (--reference)."
        raise ManifestError(f"reference {given}: {error.message}", hint.strip()) from None


def _reference(manifest: Manifest, tokenizer: TokenizerFile, progress: Progress) -> Reference:
    nothing = TABLES["histogram"].schema.empty_table()
    told = manifest.core.tokenizer
    if (told.sha256, told.format, told.vocab_size) != (tokenizer.sha256, tokenizer.format, tokenizer.vocab_size):
        progress.note(
            f"reference: counted with another tokenizer ({told.name}, this build uses {tokenizer.name}), so its tokens"
            " cannot be compared: token_kl_drift is not_applicable",
            important=True,
        )
        return Reference(nothing, problem=OTHER_TOKENIZER)
    table = manifest.table("histogram")
    if table.num_rows == 0:
        progress.note(
            "reference: it holds no token counts (its stage `histogram` was off): token_kl_drift is not_applicable",
            important=True,
        )
        return Reference(table, problem=NO_HISTOGRAM)
    rows = manifest.table("sources", ["split", "source", "tokens"]).to_pylist()
    sources = [(row["split"], row["source"]) for row in rows if row["tokens"]]
    kept = set(table["source"].unique().to_pylist())
    named = {source for _, source in sources}
    limit = manifest.core.config.get("max_sources", len(named) + 1)
    folded = bool(named - kept) or (OTHER in named and len(named) >= limit)
    return Reference(table, sources=sources, folded=folded)
