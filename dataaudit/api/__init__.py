"""What notebooks and pipelines use: build, load, gate, failing, diff, quarantine, report, sign.

``dataaudit explain api`` shows each in use. Every name is at the top of the package too: ``import dataaudit;
dataaudit.load(DIR)``. Nothing here prints, ends the process or handles a signal. What a user can cause is a
:class:`dataaudit.base.errors.DataAuditError`; an argument of a type that makes no sense is a TypeError.
"""

from __future__ import annotations

from dataaudit.api.arguments import Manifest, load
from dataaudit.api.building import Build, build
from dataaudit.api.judging import diff, failing, gate, report, sign
from dataaudit.api.quarantining import QuarantineList, quarantine
from dataaudit.decide.diff.difference import Difference
from dataaudit.decide.gate.verdict import Verdict

__all__ = [
    "Build",
    "Difference",
    "Manifest",
    "QuarantineList",
    "Verdict",
    "build",
    "diff",
    "failing",
    "gate",
    "load",
    "quarantine",
    "report",
    "sign",
]
