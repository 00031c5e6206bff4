"""Attention of every family of text models of the installed transformers: right in float64, or said why not."""

import math

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import families  # noqa: E402
from lanes import WHOLE, thinned  # noqa: E402

from dataaudit.base.errors import CatchErrors, ConfigError  # noqa: E402
from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
SOME = (
    "bloom", "deepseek_v2", "deepseek_v3", "falcon", "glm_moe_dsa", "gpt_neox", "inkling", "inkling2", "longformer",
    "mamba",
)  # fmt: skip
SOME += ("inkling2", "minicpm3", "mistral4", "t5", "xlm")
MOST = 3_000_000
"""Parameters of a model that is tiny; families whose configs of pictures or sound are not made so are left out."""
UNSUPPORTED = {
    "big_bird": "called none",
    "flaubert": "no module list",
    "funnel": "called none",
    "longformer": "expected [batch",
    "prophetnet": "expected [batch",
    "reformer": "calls softmax",
    "xlm": "no module list",
}
"""Families whose attention has weights that are not measured, and words of what is said: ten at most."""
NO_WEIGHTS = ("bailing_hybrid", "falcon_mamba", "fnet", "mamba", "mamba2", "mra", "rwkv", "xlstm", "yoso")
"""Families without attention, or whose attention makes no weights by softmax; tiny ones may have no layer with it."""
SINKS_APART = ("granite_swa", "granitemoe_swa")


def looked(name, kind, auto):
    """Return the reference, the entropies, the largest logits and what is said of a family; None: it is not tiny."""
    model = None
    with CatchErrors():  # a config may have rules between sizes
        parameters = sum(one.numel() for one in families.model_of(kind, auto, "meta").parameters())
        model = families.model_of(kind, auto) if parameters < MOST else None
    if model is None:
        return None
    sink = MemorySink()
    try:
        vitals = Vitals(model, None, VitalsConfig(interval=1, adapt=False, sampled_rows=64), [sink])
    except ConfigError as error:
        return {}, {}, {}, str(error)
    taken = {one.index: one.attention.module for one in vitals._hooks.head_layers}
    reference = families.Reference(taken, apart=name in SINKS_APART)
    tokens = torch.arange(3, 15)[None]
    more = {"decoder_input_ids": tokens.flip(1)} if "Seq2Seq" in auto.__name__ else {}
    with CatchErrors() as watched, torch.no_grad(), vitals.step():
        model(input_ids=tokens, **more)
    reference.close()
    vitals.close()
    if watched.error is not None:
        with CatchErrors() as plain, torch.no_grad():
            model(input_ids=tokens, **more)
        assert plain.error is not None, (name, watched.origin)
        return None  # the tiny model does not run, be it watched or not
    held = [
        {row[2:4]: row[5] for row in sink.values if row[1] == metric and row[4] == stat}
        for metric, stat in (("attn_entropy", "mean"), ("max_attn_logit", "sampled"))
    ]
    said = [detail["why"] for _, event, detail in sink.events if event == "not_seen" and detail["what"] == "attention"]
    return reference.found, *held, " ".join([*said, vitals.summary()["metrics"]["attn_entropy"]])


def test_attention_of_each_family_is_right_in_float64_or_said_not_to_be_seen():
    assert len(UNSUPPORTED) <= 10
    every, tried = families.kinds(), 0
    for name in thinned([*every], few=[one for one in SOME if one in every]):
        found = looked(name, *every[name])
        if found is None:
            continue
        reference, entropies, largest, said = found
        tried += 1
        if name in NO_WEIGHTS or name in UNSUPPORTED:
            assert not entropies, name
            assert UNSUPPORTED.get(name, "no module in it calls softmax") in said, (name, said)
            continue
        assert reference, (name, said)
        assert entropies, (name, said)
        for layer, (expected, highest) in reference.items():
            for head, (one, two) in enumerate(zip(expected.tolist(), highest.tolist(), strict=True)):
                assert entropies[layer, head] == pytest.approx(one, abs=1e-4), (name, layer, head)
                assert math.isnan(two) or largest[layer, head] == pytest.approx(two, abs=1e-4), (name, layer, head)
                assert not math.isnan(one)
    assert tried >= (170 if WHOLE else len(SOME) - 1)


def test_parts_of_t5_are_found():
    every = families.kinds()
    if "t5" not in every:
        pytest.skip("no T5")
    model = families.model_of(*every["t5"])
    with Vitals(model) as vitals:
        assert vitals.structure.embedding[0] == "decoder.embed_tokens"
        assert {type(one.mlp).__name__ for one in vitals.structure.layers} == {"T5LayerFF"}
        assert all(one.units == 48 for one in vitals.structure.layers)
