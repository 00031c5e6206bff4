"""Which stages a config chooses, and with which parameters."""

import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.metrics.stages import STAGES, make_stages


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"lenghts": True}, "did you mean `lengths`"),
        ({"lengths": {"max_distnct": 300}}, "did you mean `max_distinct`"),
        ({"lengths": {"max_distinct": 3}}, "at least 256"),
        ({"lengths": {"max_distinct": "many"}}, "max_distinct"),
        ({"volume": False}, "cannot be switched off"),
    ],
)
def test_wrong_stage_choices_are_named(chosen, message):
    """An unknown stage, an unknown parameter, a wrong value and a required stage each get their own words."""
    with pytest.raises(ConfigError, match=message):
        make_stages(chosen)


def test_wrong_choices_of_several_stages_are_named_together():
    """Nobody has to run once for each mistake."""
    with pytest.raises(ConfigError) as caught:
        make_stages(
            {
                "lenghts": True,
                "lengths": {"max_distinct": 3},
                "volume": False,
                "near_dup": {"treshold": 1, "ngram": "x"},
            }
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == "stages: 5 problems"
    assert [line.split(":")[0].strip(" -") for line in lines[1:6]] == [
        "stages.lenghts",
        "stages.volume",
        "stages.lengths",
        "stages.near_dup.treshold",
        "stages.near_dup.ngram",
    ]


def test_stages_can_be_left_out_and_parametrised():
    """`false` leaves a stage out, a mapping sets its parameters, the order stays."""
    stages = make_stages({"exact_dup": False, "lengths": {"max_distinct": 500}})
    assert [stage.name for stage in stages] == [kind.name for kind in STAGES if kind.name != "exact_dup"]
    assert stages[1].max_distinct == 500
