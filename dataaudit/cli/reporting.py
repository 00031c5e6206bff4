"""The command that writes the report."""

from __future__ import annotations

from pathlib import Path

import click

from dataaudit.cli.options import FOLDER, POLICY, block
from dataaudit.cli.shell import print_text


@click.command(
    short_help="Write one HTML file of a manifest.",
    epilog=block(
        "Examples:",
        "dataaudit report manifests/first --out report.html",
        "dataaudit report manifests/new --out report.html --baseline manifests/old --policy strict",
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--out", type=FOLDER, metavar="FILE.html", required=True, help="Where to write it.")
@click.option("--baseline", type=FOLDER, metavar="OLD", help="Older manifest: the report says what changed.")
@click.option("--policy", type=POLICY, metavar="POLICY.yaml", help="Policy to judge by.")
@click.option(
    "--verdict",
    type=FOLDER,
    metavar="FILE",
    help="The gate's gate.json, instead of --policy; DIR/gate.json is shown when it is there.",
)
@click.option("--quarantine", type=FOLDER, metavar="FILE", help="Quarantine list whose shards are marked.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def report(
    folder: Path,
    out: Path,
    baseline: Path | None,
    policy: Path | None,
    verdict: Path | None,
    quarantine: Path | None,
    *,
    as_json: bool,
) -> None:
    """Write the report of a manifest: one HTML file that opens from disk, fetches nothing and holds no document text.

    Verdict or what stands out first, then what changed, then every area, then all shards. The exit code is 0 when the
    file was written: the report shows a verdict, `dataaudit gate` decides.
    """
    from dataaudit.report.write import Given, write_report

    given = Given(baseline=baseline, policy=policy, verdict=verdict, quarantine=quarantine)
    print_text(write_report(folder, out, given, as_json=as_json))
