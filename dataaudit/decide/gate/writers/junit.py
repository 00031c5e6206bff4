"""JUnit XML: a suite for the policy, a test case for each rule; GitLab, Jenkins and others show it.

JUnit knows no warning: a rule that warns passes, with the warning in its output. A failure or an error stands in the
file exactly when the gate ends with another code than 0.
"""

from __future__ import annotations

from junitparser import Error, Failure, JUnitXml, Skipped, SystemOut, TestCase, TestSuite

from dataaudit import __version__
from dataaudit.base.text import plural
from dataaudit.decide.gate.verdict import RuleResult, Verdict
from dataaudit.decide.gate.writers import words as w

CASES = 20
"""Cases of a rule that are listed; the others are counted."""
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'
_ILLEGAL = {"\ufffe": "\\ufffe", "\uffff": "\\uffff"}
"""What XML cannot hold, of what is left when control characters and surrogates are escapes."""


def junit_xml(verdict: Verdict) -> bytes:
    """Return the file, UTF-8."""
    suite = TestSuite(_xml(w.name(f"dataaudit gate: {verdict.policy}")))
    for name, value in _properties(verdict):
        suite.add_property(name, _xml(value))
    for result in verdict.rules:
        suite.add_testcase(_test_case(verdict, result))
    for late in w.expired(verdict):
        test = _named(verdict, f"waiver {late.waiver.fingerprint} has expired")
        test.result = [Failure(_xml(w.waiver_words(late)), "expired_waiver")]
        suite.add_testcase(test)
    suite.update_statistics()
    if not verdict.passed and not (suite.failures or suite.errors):
        test = _named(verdict, "verdict")
        test.result = [Error(f"{w.headline(verdict)}: {w.advice(verdict)}", "nothing_evaluated")]
        suite.add_testcase(test)
    file = JUnitXml("dataaudit")
    file.add_testsuite(suite)
    file.update_statistics()
    whole = bytes(file.tostring())
    return _DECLARATION + whole[whole.index(b"<testsuites") :] + b"\n"


def _test_case(verdict: Verdict, result: RuleResult) -> TestCase:
    effect = w.effect_of(verdict, result)
    test = _named(verdict, result.rule.name)
    cases = w.problems(verdict, result)
    deciding = [shown for shown in cases if shown.effect == effect]
    first = w.message(result.rule, deciding[0].case) if deciding else w.why(result)
    more = f" (and {plural(len(deciding) - 1, 'more case')})" if len(deciding) > 1 else ""
    if effect in w.STOPPING:
        kind, label = (Failure, "budget_exceeded") if effect == w.Effect.STOPS else (Error, "not_evaluated")
        failure = kind(_xml(first + more), label)
        failure.text = _xml("\n".join(_lines(result, cases)))
        test.result = [failure]
    elif effect == w.Effect.SKIPPED:
        test.result = [Skipped(_xml(first if deciding else w.why(result)), str(result.state))]
    notes = [f"warning: {line}" for line in _lines(result, deciding)] if effect == w.Effect.WARNS else []
    waived = [shown for shown in cases if shown.effect == w.Effect.WAIVED]
    notes += [f"waived: {line}" for line in _listed(result, waived)]
    if notes:
        test.append(SystemOut(_xml("\n".join(notes))))
    return test


def _named(verdict: Verdict, name: str) -> TestCase:
    return TestCase(_xml(w.name(name)), _xml(w.name(verdict.policy)), 0.0)


def _lines(result: RuleResult, cases: tuple[w.Shown, ...] | list[w.Shown]) -> list[str]:
    own = [shown for shown in cases if shown.effect != w.Effect.WAIVED]
    return [*_listed(result, own), *w.about(result.rule, "owner", "reason", "runbook")]


def _listed(result: RuleResult, cases: list[w.Shown]) -> list[str]:
    lines = [
        f"{w.message(result.rule, shown.case)}"
        + (f"; fingerprint {w.name(shown.case.fingerprint, 40)}" if shown.case and shown.case.fingerprint else "")
        for shown in cases[:CASES]
    ]
    left = len(cases) - len(lines)
    return [*lines, f"and {plural(left, 'more case')}"] if left else lines


def _properties(verdict: Verdict) -> list[tuple[str, str]]:
    pairs = [
        ("dataaudit.version", __version__),
        ("verdict", w.headline(verdict)),
        ("exit_code", str(int(verdict.exit_code))),
        ("fail_on", w.name(verdict.fail_on)),
        ("on", w.name(verdict.on)),
        ("policy", w.name(f"{verdict.policy} {verdict.policy_version}")),
        ("policy_digest", w.name(verdict.policy_digest)),
        ("manifest", w.name(verdict.subject.id)),
        ("dataset", w.name(f"{verdict.subject.name} {verdict.subject.version}")),
    ]
    if verdict.baseline is not None:
        pairs.append(("baseline", w.name(verdict.baseline.id)))
    if verdict.canary is not None:
        pairs.append(("canary", w.canary_words(verdict.canary)))
    return [*pairs, *(("waiver", w.waiver_words(waiver)) for waiver in verdict.waivers)]


def _xml(text: str) -> str:
    for character, escaped in _ILLEGAL.items():
        text = text.replace(character, escaped)
    return text
