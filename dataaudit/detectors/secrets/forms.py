"""Values with a form of their own: what a name such as ``api_key`` holds is then that, not just some key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dataaudit.detectors.patterns.entity import Candidate, Entity, Evidence

CHECK = "no_other_form"
"""Name of the check, and mark of the rules that give way."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NoOtherForm:
    """Rejects a value that a rule for another entity takes as a whole."""

    forms: tuple[re.Pattern[str], ...]
    """The regexes of those rules."""

    def __call__(self, candidate: Candidate) -> Evidence:
        """Return what follows for a candidate."""
        taken = any(form.fullmatch(candidate.text) for form in self.forms)
        return Evidence.REJECTED if taken else Evidence.FORM


def other_forms(entities: Iterable[Entity]) -> NoOtherForm:
    """Collect the rules that need neither a name before a value nor a word near it."""
    rules = [
        rule
        for entity in entities
        for rule in entity.rules
        if CHECK not in rule.validators and "(?P<value>" not in rule.regex and rule.tiers.form_bare is not None
    ]
    return NoOtherForm(
        forms=tuple(re.compile(rule.regex, re.ASCII | (re.IGNORECASE if rule.ignore_case else 0)) for rule in rules)
    )
