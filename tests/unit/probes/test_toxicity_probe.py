"""The toxicity of continuations: the share of prompts with a toxic one among k, and what the file's prompts are."""

import json

import numpy as np
import pytest
from probe_world import Memory
from tiny_judge import TOXIC, write_checkpoint

torch = pytest.importorskip("torch", reason="models are of torch")
from dataaudit import ConfigError  # noqa: E402
from dataaudit.probes import ProbeModel, ProbeSuite, PromptToxicity, Tokenizer  # noqa: E402
from dataaudit.probes.toxicity import read_prompts  # noqa: E402

pytestmark = pytest.mark.torch
BYTES = Tokenizer.of_bytes(256)
NICE, VILE = "Tell me about the day", "Tell me about the fool"


class Words:
    """Judges by a word."""

    name = "words 1"

    def __call__(self, texts):
        return np.array([np.nan if "???" in text else 0.9 if "vile" in text else 0.2 for text in texts])


def prompts(tmp_path, *more):
    lines = [
        json.dumps({"filename": "a", "prompt": {"text": NICE, "toxicity": 0.1}, "continuation": {"text": "x"}}),
        json.dumps({"prompt": {"text": VILE, "toxicity": 0.8}}),
        json.dumps({"prompt": {"text": "And this", "toxicity": None}}),
        *more,
    ]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines))
    return read_prompts(path)


def model(nice=" is good.", vile=" is vile!!"):
    return ProbeModel(Memory([BYTES.encode(NICE + nice), BYTES.encode(VILE + vile)]), BYTES, context=128)


def test_the_share_of_prompts_with_a_toxic_continuation(tmp_path):
    probe = PromptToxicity.of(prompts(tmp_path), judge=Words(), generations=3)
    report = ProbeSuite([probe]).run(model(), 1)
    assert report.get("rtp_toxicity_prob").value == pytest.approx(1 / 3)
    assert report.get("rtp_toxicity_prob", prompts="toxic").value == 1.0
    assert report.get("rtp_toxicity_prob", prompts="other").value == 0.0
    assert report.get("rtp_toxicity_prob", "expected_max").value == pytest.approx((0.9 + 0.2 + 0.2) / 3)
    assert report.get("rtp_prompt_stats", "prompts").value == 3
    assert report.get("rtp_prompt_stats", "toxic").value == 0.5
    assert report.get("rtp_prompt_stats", "words").value == pytest.approx((5 + 5 + 2) / 3)
    assert "vile" not in str(report.document())


def test_more_generations_find_more(tmp_path):
    """A continuation that comes in 15 % of the draws."""

    def sometimes(ids):
        logits = torch.full((*ids.shape, 257), -30.0)
        logits[..., ord("a")] = 0.0
        begins = (ids != ord("a")) & (ids != ord("v"))
        logits[..., ord("v")] = torch.where(begins, np.log(0.15 / 0.85), -30.0)
        return logits

    class Vs:
        name = "v"

        def __call__(self, texts):
            return np.array([float("v" in text) for text in texts])

    file = prompts(tmp_path, *(json.dumps({"prompt": {"text": f"number {at}"}}) for at in range(37)))
    shares = [
        ProbeSuite([PromptToxicity.of(file, judge=Vs(), generations=k)])
        .run(ProbeModel(sometimes, BYTES, context=128), 1)
        .get("rtp_toxicity_prob")
        for k in (1, 10)
    ]
    assert shares[0].high < shares[1].low
    for k, share in zip((1, 10), shares, strict=True):
        assert share.low <= 1 - 0.85**k <= share.high


def test_continuations_without_an_answer_are_left_out_and_counted(tmp_path):
    report = ProbeSuite([PromptToxicity.of(prompts(tmp_path), judge=Words(), generations=2)]).run(
        model(nice=" is ???"), 1
    )
    assert report.get("rtp_toxicity_prob").units == 2
    assert "rtp: 1 prompts are left out: the judge had no answer for a continuation" in report.notes


def test_another_judge_or_other_generations_invalidate(tmp_path):
    file = prompts(tmp_path)
    probe = PromptToxicity.of(file, judge=Words(), generations=2)
    other = Words()
    other.name = "words 2"
    own = probe.artifacts(model())
    assert PromptToxicity.of(file, judge=other, generations=2).artifacts(model()).differing(own) == ("harness",)
    assert PromptToxicity.of(file, judge=Words(), generations=3).artifacts(model()).differing(own) == ("decoding",)
    assert PromptToxicity.of(file, judge=Words(), generations=2, seed=1).artifacts(model()).differing(own) == (
        "decoding",
    )


def test_files_that_hold_no_prompts_are_refused_and_bad_lines_counted(tmp_path):
    file = prompts(tmp_path, "{broken", '{"prompt": {"toxicity": 1}}', '{"prompt": "plain text"}', "3")
    assert (len(file.prompts), file.bad_lines) == (4, 3)
    report = ProbeSuite([PromptToxicity.of(file, judge=Words(), generations=1)]).run(model(), 1)
    assert "rtp: 3 lines of the file hold no prompt" in report.notes
    (tmp_path / "none").write_text("{}\n")
    with pytest.raises(ConfigError, match="holds no prompt"):
        read_prompts(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "absent")


def test_the_audits_own_judge_scores(tmp_path):
    """A small checkpoint of Detoxify's form; torch's threads are what they were."""
    pytest.importorskip("detoxify", reason="it loads the checkpoint")
    threads = torch.get_num_threads()
    path = write_checkpoint(tmp_path / "judge")
    probe = PromptToxicity.of(prompts(tmp_path), judge=str(path), generations=2)
    report = ProbeSuite([probe]).run(model(vile=f" {TOXIC[0]} you are"), 1)
    assert report.get("rtp_toxicity_prob", prompts="toxic").value == 1.0
    assert report.get("rtp_toxicity_prob", prompts="other").value == 0.0
    assert torch.get_num_threads() == threads


def test_a_judge_that_is_absent_is_named(tmp_path):
    with pytest.raises(ConfigError, match="toxicity"):
        PromptToxicity.of(prompts(tmp_path), judge=str(tmp_path / "none.ckpt"))


def test_a_context_that_cuts_prompts_is_another_template(tmp_path):
    """Numbers of prompts without their beginning were compared with those of whole ones."""
    probe = PromptToxicity.of(prompts(tmp_path), judge=Words(), generations=3)
    short, enough, more = (probe.artifacts(ProbeModel(Memory([]), BYTES, context=own)) for own in (32, 43, 128))
    assert short.differing(more) == ("templates",)
    assert enough == more
