"""A hash stands for every artifact, and names what differs."""

from dataclasses import fields, replace

import numpy as np
import pytest

from dataaudit.probes.report import EvalArtifacts, digest_rows

OWN = EvalArtifacts(tokenizer="t", prompts="p", templates="{}", decoding="d", harness="h 1", dtype="float32")


@pytest.mark.parametrize("name", [field.name for field in fields(EvalArtifacts)])
def test_each_artifact_changes_the_hash_and_is_named(name):
    other = replace(OWN, **{name: "other"})
    assert other.digest != OWN.digest
    assert other.differing(OWN) == (name,)
    assert OWN.differing(replace(OWN)) == ()


def test_the_hash_is_pinned():
    """It stands in reports of earlier versions."""
    assert OWN.digest == "sha256:c4d554796d4741bbdcce95328f15fd3488c4e474572e17eb4260ade5ec5ae6f1"


def test_rows_are_not_only_their_join():
    assert digest_rows(["ab", "c"]) != digest_rows(["a", "bc"])
    assert digest_rows([np.array([1, 2])]) == digest_rows([np.array([1, 2], np.int32)])
    assert digest_rows([[1, 2], [3]]) != digest_rows([[1], [2, 3]])
