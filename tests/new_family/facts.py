"""Questions as people read them."""

from __future__ import annotations

from dataaudit.metrics.questions.definition import METRIC

from dataaudit.manifest.load import Manifest
from dataaudit.render.blocks import Section, Table, names, numbers
from dataaudit.render.line import Name, share


def section(manifest: Manifest) -> Section:
    """Return the rate of each split."""
    records = [one for one in manifest.metrics(METRIC, "rate") if set(one.scope.as_dict()) == {"split"}]
    table = Table(
        title="Questions by split",
        columns=(*names("split"), *numbers("documents with a question mark")),
        rows=tuple((Name(one.scope.split), share(one.value)) for one in records),
    )
    return Section(id="questions", title="Questions", blocks=(table,))
