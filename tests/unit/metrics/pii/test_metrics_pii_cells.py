"""Which records of personal data are not shown."""

from pathlib import Path

from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.pii.cells import METRIC, hidden_records

DEMO = Path(__file__).parents[4] / "manifests/demo"


def test_records_of_other_metrics_beside_them_change_nothing():
    manifest = load_manifest(DEMO)
    own, every = manifest.metrics(METRIC), manifest.metrics()
    hidden = {own[index] for index in hidden_records(manifest, own)}
    assert 0 < len(hidden) < len(own) < len(every)
    assert {every[index] for index in hidden_records(manifest, every)} == hidden
    assert not hidden_records(manifest, [one for one in every if one.metric != METRIC])
