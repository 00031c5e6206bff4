"""What the reason codes of a verdict mean, for people. A test holds that every code that the gate gives has a text."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "missing": "the manifest has no such number",
    "lost": "the baseline has this number, the manifest lost it",
    "other_than_demanded": "the policy demands another detector",
    "no_such_part": "the corpus has no split, source, language or set of that name",
    "empty_denominator": "there is nothing to divide by",
    "no_words": "its documents hold no words, so nothing could be found",
    "nothing_to_judge": "the corpus has no part that the rule speaks of",
    "other_unit": "it is in another unit than the rule's or the baseline's",
    "unread_bytes": "not everything was read",
    "unknown_bytes": "a shard was not read, and nobody knows how many bytes it holds",
    "too_few_shards": "fewer than 5 shards have no usual value",
    "no_baseline": "no baseline was given",
    "no_mixture": "the build's config declares no mixture",
    "new_scope": "the baseline did not have this part",
    "baseline_missing": "the baseline has no such number",
    "other_tokenizer": "the baseline was counted with another tokenizer",
    "other_detector": "the baseline was searched by another detector or model",
    "other_protected_set": "the baseline's evaluation set of that name holds other items",
    "other_reference": "the baseline was measured against another reference manifest",
    "other_parameters": "the baseline's stage had other parameters",
    "other_version": "the baseline has it by another version of the definition",
    "withheld": "so few that the number could point at a person",
    "no_judge": "the build had no judge",
    "no_analyzer": "the build had no analyzer",
    "no_reference": "the build had no reference",
    "no_training_documents": "no training document was read",
    "too_few_documents": "too few documents for an estimate",
    "no_cluster": "no cluster was found",
    "not_installed": "a library that the judge needs was not installed",
    "weights_absent": "the judge's model could not be had",
    "config_absent": "the settings of the judge's model could not be had",
    "broken_checkpoint": "the file of the judge's model was damaged",
    "unsafe_checkpoint": "the file of the judge's model asked to run code",
    "no_device": "the device that the config names was not there",
    "not_judged": "the judge answered for no document of the sample",
    "pairs_left_out": "no interval: some pairs were not compared; the value itself is held against the limit",
    "at_least": "at least this: documents with very many candidates were not searched to their end",
    "screen_alone": "no interval: screen not judged; the value itself is held against the limit",
}
"""Texts by code."""
_OF_BASELINE = "baseline_"


def reason_text(code: str) -> str:
    """Return what a code means; of one that this version does not know, the code."""
    if code in REASONS:
        return REASONS[code]
    if code.startswith(_OF_BASELINE) and code.removeprefix(_OF_BASELINE) in REASONS:
        return f"of the baseline: {REASONS[code.removeprefix(_OF_BASELINE)]}"
    return code.replace("_", " ")
