"""The numbers of the demo: its id changes with every version of the program or of a library, its tables do not."""

from pathlib import Path

from dataaudit.manifest.load import load_manifest

DEMO = Path(__file__).parents[3] / "manifests/demo"
DIGESTS = {
    "clusters": "df79e72133d82718887aa2b4f13445a540e1a1deb97438f903e9697b2724790b",
    "drift": "7afea5f30aed21e84ae27b315d6861b6514cb0672c4ec370856242fc1758df4a",
    "findings": "d8efb83f8e238ea83dfaecbf7fc08adf7d2c4b75869beba35380fafce3041c0c",
    "histogram": "7be4a787df6d435eb05908a937553ab9069bfc7c5c815b33f78932dbf9035d6b",
    "hotspot_members": "89c5ea071904805462f4c5a10edbb70f68239111a0e1b0b9444821c2e5b3bd62",
    "hotspots": "9a615c7620a5464cd692798ebd0569b66f4c09f86bfe68cfb089227b08dcb28a",
    "judged": "cd874876e65ade6747464706e8c3f7477dedcf091db3c001e06baa6d17dd9528",
    "languages": "dd60fac6b4afaad858c1ec7f89e8bb5ec26e864f8c7eb3f87f52a38d64267a97",
    "ledger": "9d4e56de1518b4179d22f544077c2363a6b8cc78c711279599044e89b4dc7681",
    "lengths": "087b54e0f2392d63fb332cfbb42a077f602fa5f0f0e06c928ec9c6443d2c7315",
    "metrics": "3cdda4c31307dcc64dd2ac2a21b7b3aeab24d286499fa1576b6f5bbcabf978d7",
    "near_sources": "c386ece13cbdacd5f88260a7441260ac2f64f0132a7545c9e81a27205489f68c",
    "overlap": "0276a32d31586f6e191eac6ad6a3e757a73ac8f618e97179a7b4786db42c8e75",
    "pairs": "2379075cc75d27bd68d2460cbbfe3e311b99849fbbb12b4ee16b852de5dd78b2",
    "shards": "f710bda010d9d1ec272201eb4ce72321f44db044befa5f58b13440d14621d543",
    "signatures": "f7c7edf6fe917eae9b45836e357a72df10cd54116c2587ee85e38809e675ea68",
    "sources": "3fc034a478d1c18efda1a412cffe0e38fcdfad6b4e8c865ce036c5131744ec18",
}
"""sha256 of the rows of each table. A change that moves a number says so here, and in the change log."""


def test_a_demo_that_is_built_anew_has_the_same_numbers():
    """Metrics and every other table, row by row; only the versions in the core may differ."""
    tables = load_manifest(DEMO).core.tables
    assert {name: record.digest.removeprefix("sha256:") for name, record in tables.items()} == DIGESTS
