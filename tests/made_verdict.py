"""Verdicts made by hand and by chance: plain ones for the eye, and ones whose every name comes from an enemy."""

import datetime as dt
from collections import Counter

from hypothesis import strategies as st

from dataaudit.decide.gate.policy import Rule, Waiver
from dataaudit.decide.gate.verdict import (
    ORDER,
    Case,
    Evidence,
    RuleResult,
    State,
    Subject,
    Verdict,
    WaiverResult,
    WaiverState,
)
from dataaudit.manifest.metric import Scope

HOSTILE = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\x1b[31mred\x1b[0m", "\u202egpj.exe\u2066",
    "::error::forged", "##[error]forged", "##vso[task.complete result=Succeeded]",
    "x\n::set-output name=a::b\r\n::error::c", '=cmd|" /C calc"!A1', "a|b|c", "`code` ``more`` ```",
    "[click](http://evil.example) ![x](http://evil.example/x.png)",
    "<http://evil.example> https://evil.example www.evil.example me@evil.example",
    "@everyone #1 owner/repo#2 GH-3 deadbeefdeadbeef :smile: $x^2$", "\n\n# Title\n\n- [ ] a\n\n| a | b |\n|---|---|\n",
    "--> <!-- ]]> &lt; &#x41; %0A %25", "../../etc/passwd", "\\", "\\|", "ends with \\", "   ", "", "\x00",
    "\ufffe\uffff\ud800", "\u2028\u2029\u0085", "x" * 10_000, "\U0001f4a9" * 300, "|" * 3000,
)  # fmt: skip
"""Names that try to be markup, commands or formulas."""
_BAD = (State.FAILED, State.NOT_EVALUATED, State.WARNED)


def rule(name="copied-spans", **more):
    """Return a rule; without a limit it is a budget of 0."""
    given = {"metric": "train_val_overlap", "stat": "span", "unit": "ratio", **more}
    if not {"budget", "change", "relative_change", "robust_sd"} & given.keys():
        given["budget"] = 0
    return Rule(name=name, **given)


def case(state=State.FAILED, *, of="copied-spans", scope=None, value=0.0012, **more):
    """Return a case with a value, judged as it is."""
    given = {
        "rule": of,
        "stat": "span",
        "scope": scope or Scope(set="val"),
        "state": state,
        "unit": "ratio",
        "value": value,
        "judged": value,
        "denominator": 1000,
        "fingerprint": "0123456789abcdef",
    }
    return Case(**(given | more))


def result(of, *cases, **more):
    """Return a rule's result, with the state and the counts that its cases give; `state` is for one without any."""
    held = [one.state for one in cases if not one.waived]
    state = more.pop("state", None) or min(held, key=ORDER.index, default=State.PASSED)
    counts = more.pop("counts", None) or dict(Counter(one.state for one in cases)) or {state: 1}
    return RuleResult(
        rule=of, state=state, counts=counts, waived=sum(one.waived for one in cases), cases=tuple(cases), **more
    )


def waiver(state=WaiverState.USED, **more):
    """Return a waiver and what became of it."""
    given = {
        "fingerprint": "0123456789abcdef",
        "rule": "copied-spans",
        "owner": "data team",
        "reason": "known, and agreed on",
        "expires": dt.date(2027, 1, 31),
    }
    return WaiverResult(waiver=Waiver(**(given | more)), state=state)


def subject(**more):
    """Return the manifest that is judged."""
    given = {"id": "sha256:" + "ab" * 32, "name": "made", "version": "1.0.0", "documents": 23_534, "shards": 19}
    return Subject(**(given | more))


def verdict(*results, **more):
    """Return the verdict of these results."""
    given = {
        "policy": "release-gate",
        "policy_version": "1",
        "policy_digest": "sha256:" + "cd" * 32,
        "subject": subject(),
        "baseline": None,
        "fail_on": "fail",
        "on": "2026-11-22",
        "rules": tuple(results),
        "waivers": (),
    }
    return Verdict(**(given | more))


def rule_result(
    name, state, *, severity="fail", metric="exact_dup_rate", stat="rate", scope=None, judged=0.25, required=True
):
    """Return the result of a rule with a budget of 0.1 and one case in that state."""
    more = {"severity": severity, "required": required, "reason": f"why {name}"}
    of = rule(name, metric=metric, stat=stat, budget=0.1, **more)
    value, reason = (None, "metric_missing") if state == State.NOT_EVALUATED else (judged, "")
    own = {"of": name, "stat": stat, "scope": scope or Scope(), "value": value, "reason": reason, "denominator": 0}
    return result(of, case(state, **own))


def verdict_of(manifest, *results, baseline=None, waivers=()):
    """Return a verdict of a manifest; without results one rule passes."""

    def subject_of(judged):
        dataset, totals = judged.core.dataset, judged.core.totals
        return subject(id=judged.id, **dataset.model_dump(), documents=totals.documents, shards=totals.shards)

    return verdict(
        *(results or (rule_result("duplicates", State.PASSED, judged=0.01),)),
        policy="strict",
        policy_version="7",
        policy_digest=f"sha256:{'5a' * 32}",
        subject=subject_of(manifest),
        baseline=None if baseline is None else subject_of(baseline),
        waivers=waivers,
    )


def used_waiver():
    """Return a waiver that covers a case."""
    return waiver(rule="duplicates", owner="a@b.c", reason="known", expires=dt.date(2027, 1, 1))


def mixed():
    """Return a verdict with a rule of every kind: what a page has to show, with plain names."""
    leak = rule(
        owner="Evaluation",
        reason="Copied spans make scores worthless.",
        runbook="https://wiki.example/runbooks/leak?step=1",
        bound="against",
    )
    personal = rule(
        "personal-data",
        metric="pii_hit_rate",
        stat="validated_hits",
        unit="hits per million tokens",
        relative_change=0.5,
        scope={"per": "entity"},
        owner="@privacy",
    )
    lengths = rule(
        "shard-lengths",
        metric="seq_len_p50_p95",
        stat="p50",
        unit="tokens",
        robust_sd=5,
        scope={"per": "shard"},
        severity="warn",
    )
    unread = rule("unread", metric="coverage_unread_bytes", stat="bytes", unit="bytes")
    sampled = rule("toxicity", metric="data_toxicity_rate", stat="rate", unit="ratio", budget=0.001)
    drift = rule("drift", metric="token_kl_drift", stat="kl", unit="nats", change=0.1, baseline="optional")
    language = rule("english", metric="language_share", stat="share", unit="ratio", budget=0.5, comparator=">=")
    shard = case(
        of="shard-lengths",
        stat="p50",
        scope=Scope(shard=7),
        shard_uri="train/part-7.jsonl",
        unit="tokens",
        value=40.0,
        baseline=200.0,
        judged=7.25,
        state=State.WARNED,
        fingerprint="1" * 16,
    )
    return verdict(
        result(
            leak,
            case(evidence=(Evidence(shard=3, uri="train/part-3.jsonl", count=12, noun="documents with copied spans"),)),
            case(scope=Scope(set="gsm8k"), value=0.0004, fingerprint="2" * 16, waived=True),
        ),
        result(
            personal,
            case(
                of="personal-data",
                stat="validated_hits",
                scope=Scope(entity="CREDIT_CARD"),
                value=3.0,
                judged=0.8,
                baseline=1.7,
                unit="hits per million tokens",
                denominator=100_000_000,
                fingerprint="3" * 16,
                evidence=(Evidence(shard=1, uri="train/part-1.jsonl", count=3, noun="documents with findings"),),
            ),
        ),
        result(lengths, shard),
        result(unread, case(State.PASSED, of="unread", stat="bytes", scope=Scope(), value=0.0, unit="bytes")),
        result(
            sampled,
            case(
                State.NOT_EVALUATED,
                of="toxicity",
                stat="rate",
                scope=Scope(),
                value=None,
                reason="no_detector",
                fingerprint="4" * 16,
            ),
        ),
        result(drift, state=State.NOT_APPLICABLE, waits=True),
        result(language, case(State.PASSED, of="english", stat="share", scope=Scope(language="en"), value=0.93)),
        baseline=subject(id="sha256:" + "ef" * 32, version="0.9.0"),
        waivers=(
            waiver(fingerprint="2" * 16),
            waiver(WaiverState.UNUSED, fingerprint="5" * 16, rule="unread"),
            waiver(WaiverState.EXPIRED, fingerprint="6" * 16, rule="english", expires=dt.date(2026, 1, 1)),
        ),
    )


def hostile(name):
    """Return a verdict that carries one hostile name wherever a name from the data or a text can stand."""
    scope = Scope(split=name, source=name, language=name, set=name, entity=name, rule=name)
    proof = (Evidence(shard=0, uri=name, count=7, noun="documents"), Evidence(shard=1, uri=name, count=1, noun=name))
    text = written(name) or "-"
    rules = []
    for number, state in enumerate(State):
        of = rule(f"rule-{number}", metric=text, stat=text, unit=text, owner=text, reason=text, runbook=text)
        one = case(
            state,
            of=of.name,
            stat=name,
            scope=scope,
            reason=name,
            unit=name,
            evidence=proof,
            fingerprint=f"{number:016x}",
        )
        shard = case(
            state,
            of=of.name,
            scope=Scope(shard=1),
            shard_uri=name,
            reason=name,
            unit=name,
            fingerprint=f"{number + 8:016x}",
            waived=state == State.FAILED,
        )
        rules.append(result(of, one, shard))
    waivers = tuple(
        waiver(state, fingerprint=f"{number + 8:016x}", owner=text, reason=text)
        for number, state in enumerate((WaiverState.USED, WaiverState.EXCEEDED, WaiverState.EXPIRED))
    )
    return verdict(
        *rules,
        policy=name,
        policy_version=name,
        on=name,
        waivers=waivers,
        subject=subject(name=name, version=name, id=name),
    )


def written(name):
    """Return what of a name can stand in a policy: 1,000 characters of Unicode."""
    return name.encode("utf-8", "ignore").decode()[:1000]


def many(number, of_rule="many", **more):
    """Return a verdict with so many failing cases of one rule."""
    names = tuple(
        case(of=of_rule, scope=Scope(source=f"source-{index}"), fingerprint=f"{index:016x}") for index in range(number)
    )
    return verdict(result(rule(of_rule, scope={"per": "source"}), *names), **more)


names = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=40),
    st.builds("{}{}".format, st.sampled_from(HOSTILE), st.text(max_size=10)),
)
"""Any string, and every hostile one."""
_texts = names.map(written).filter(bool)
_floats = st.one_of(st.none(), st.floats(), st.integers(-5, 10**18).map(float))


@st.composite
def _scopes(draw):
    given = draw(st.sets(st.sampled_from(["split", "source", "language", "set", "entity", "rule"])))
    values = {field: draw(names) for field in sorted(given)}
    return Scope(**values, shard=draw(st.one_of(st.none(), st.integers(0, 10**6))))


@st.composite
def _cases(draw, of):
    state = draw(st.sampled_from(State))
    return Case(
        rule=of.name,
        stat=draw(names),
        scope=draw(_scopes()),
        shard_uri=draw(st.one_of(st.none(), names)),
        state=state,
        reason=draw(names),
        unit=draw(names),
        value=draw(_floats),
        low=draw(_floats),
        high=draw(_floats),
        confidence=draw(_floats),
        method=draw(st.sampled_from(["exact", "sampled", "estimated"])),
        denominator=draw(st.integers(0, 10**15)),
        baseline=draw(_floats),
        judged=draw(_floats),
        fingerprint=draw(st.text("0123456789abcdef", min_size=16, max_size=16)),
        waived=state in _BAD and draw(st.booleans()),
        evidence=tuple(
            Evidence(shard=index, uri=draw(names), count=draw(st.integers(0, 10**9)), noun=draw(names))
            for index in range(draw(st.integers(0, 3)))
        ),
    )


@st.composite
def _results(draw, name):
    kind = draw(st.sampled_from(["budget", "change", "relative_change", "robust_sd"]))
    limits = st.floats(0, 1e12, allow_nan=False, allow_infinity=False)
    of = Rule(
        name=name,
        metric=draw(st.one_of(st.just("pii_hit_rate"), _texts)),
        stat=draw(_texts),
        unit=draw(_texts),
        severity=draw(st.sampled_from(["fail", "warn"])),
        required=draw(st.booleans()),
        owner=draw(st.one_of(st.none(), _texts)),
        reason=draw(st.one_of(st.none(), _texts)),
        runbook=draw(st.one_of(st.none(), _texts, st.just("https://wiki.example/a?b=c#d"))),
        scope={"per": "shard"} if kind == "robust_sd" else {},
        **{kind: draw(limits)},
    )
    cases = draw(st.lists(_cases(of), max_size=4))
    if cases:
        return result(of, *cases)
    return result(of, state=draw(st.sampled_from(State)), waits=draw(st.booleans()))


@st.composite
def verdicts(draw):
    """Draw verdicts that agree with themselves: states, counts and codes are those of the cases."""
    number = draw(st.integers(0, 4))
    rules = [draw(_results(f"rule-{index}")) for index in range(number)]
    waivers = tuple(
        waiver(draw(st.sampled_from(WaiverState)), fingerprint=f"{index:016x}", owner=draw(_texts), reason=draw(_texts))
        for index in range(draw(st.integers(0, 3)))
    )
    made = st.builds(
        Subject, id=names, name=names, version=names, documents=st.integers(0, 10**12), shards=st.integers(0, 10**6)
    )
    return Verdict(
        policy=draw(names),
        policy_version=draw(names),
        policy_digest=draw(names),
        subject=draw(made),
        baseline=draw(st.one_of(st.none(), made)),
        fail_on=draw(st.sampled_from(["fail", "warn"])),
        on=draw(names),
        rules=tuple(rules),
        waivers=waivers,
    )
