"""Questions: the share of documents that hold a question mark, and how it is shown."""

from __future__ import annotations

from dataaudit.base.render.blocks import Section, Table, names, numbers
from dataaudit.base.render.line import Name, share
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.family import SOURCES, Family, declare, statistics
from dataaudit.metrics.shown import Part, Shown

METRIC = "question_rate"
_ID, _TITLE = "questions", "Questions"

FAMILY = Family(
    name="questions",
    metrics=(
        declare(
            METRIC,
            statistics("rate", "ratio", SOURCES, draws="documents"),
            reading=8,
            area="questions",
        ),
    ),
    stage="dataaudit.metrics.questions.stage:Questions",
    stage_name="questions",
)


def _section(manifest: Manifest) -> Section:
    """Return the rate of each split; of a manifest that was built without the family, that it says nothing."""
    records = [one for one in manifest.metrics(METRIC, "rate") if set(one.scope.as_dict()) == {"split"}]
    if not records:
        return Section(id=_ID, title=_TITLE, lead="Questions were not counted in this build.", tone="quiet")
    table = Table(
        title="Questions by split",
        columns=(*names("split"), *numbers("documents with a question mark")),
        rows=tuple((Name(one.scope.split or ""), share(one.value)) for one in records),
    )
    return Section(id=_ID, title=_TITLE, blocks=(table,))


SHOWN = Shown(parts=(Part(name=_ID, area=_ID, blocks=lambda manifest: [_section(manifest)]),))
