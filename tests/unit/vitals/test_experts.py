"""Routers of experts: every family against a slow reference, and what goes wrong in them is named."""

import math
import time

import pytest
from lanes import sample

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import expert_models as experts  # noqa: E402
import vitals_models as made  # noqa: E402

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig, ranks, routers  # noqa: E402
from dataaudit.vitals.metrics.experts import of_window  # noqa: E402
from dataaudit.vitals.structure import find  # noqa: E402
from dataaudit.vitals.summary import in_a_line  # noqa: E402

pytestmark = pytest.mark.vitals
OF_EXPERTS = ("router_", "moe_")
MEASURE = ("attention", "activations", "weights", "experts")


def config_of(family, **more):
    mapping = experts.MAPPING if family == "mapped" else None
    return VitalsConfig(
        **{"interval": 1, "window": 1, "adapt": False, "mapping": mapping, "escalate": 0, "measure": MEASURE, **more}
    )


def run(model, config, steps, run=None, micro_batches=1, optimizer=None, before=lambda _vitals, _step: None):
    """Return what a model's passes gave: values by metric, step, layer, expert and statistic, events, and vitals."""
    with Vitals(model, optimizer, config, [sink := MemorySink()]) as vitals:
        for step in range(1, steps + 1):
            before(vitals, step)
            with vitals.step():
                for micro in range(micro_batches):
                    loss = made.loss_of(run or model, step, micro)
                    if optimizer is not None:
                        loss.backward()
                if optimizer is not None:
                    optimizer.step()
                    optimizer.zero_grad()
    assert not vitals.failures or vitals.config.mapping.top_k == 0
    values = {(row[1], row[4], row[0], row[2], row[3]): row[5] for row in sink.values if row[1].startswith(OF_EXPERTS)}
    return values, sink.events, vitals


@pytest.mark.parametrize(
    ("family", "backend"),
    [
        *((family, None) for family in experts.FAMILIES),
        *sample([(family, "aot_eager") for family in reversed(experts.FAMILIES)], 3),
    ],
)
def test_every_family_is_as_a_slow_reference_says(family, backend):
    torch._dynamo.reset()
    model = experts.model_of(family)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config, true, weights = config_of(family), {}, {}
    compiled = model if backend is None else torch.compile(model, backend=backend)
    with Vitals(model, optimizer, config, [sink := MemorySink()]) as vitals:
        for step in range(1, 4):
            true[step] = experts.reference(model, family, [made.batch_of(step, micro) for micro in range(2)])
            with vitals.step():
                for micro in range(2):
                    made.loss_of(compiled, step, micro).backward()
                optimizer.step()
                optimizer.zero_grad()
            weights[step] = {layer: experts.of_rows(own.weight) for layer, own in experts.routers_of(model).items()}
    assert not vitals.failures
    seen = {(row[1], row[4], row[0], row[2], row[3]): row[5] for row in sink.values if row[1].startswith(OF_EXPERTS)}
    layers = sorted(experts.routers_of(model))
    assert layers == ([1] if family == "deepseek_v3" else [0, 1])
    kind = routers.SIGMOID if family == "deepseek_v3" else routers.SOFTMAX
    assert vitals.summary()["estimators"]["router_token_entropy"] == kind
    for step in range(1, 4):
        for layer in layers:
            own = true[step][layer]
            counts = own["counts"]
            for (metric, stat), value in ((key, value) for key, value in own.items() if isinstance(key, tuple)):
                assert seen[metric, stat, step, layer, -1] == pytest.approx(value, rel=2e-5, abs=2e-6), (metric, stat)
            even = sum(counts) / len(counts)
            if even < 32:
                assert ("moe_dead_experts", "load", step, layer, 0) not in seen
                continue
            loads = [seen["moe_dead_experts", "load", step, layer, at] for at in range(len(counts))]
            assert [round(load * even, 6) for load in loads] == counts
            assert seen["moe_dead_experts", "dead", step, layer, -1] == counts.count(0)
    for (metric, _, step, layer, _), value in seen.items():
        if metric in {"router_weight_similarity", "router_centered_conditioning"}:
            own = {name: number for (name, _), number in weights[step][layer].items()}
            assert value == pytest.approx(own[metric], rel=1e-5, abs=1e-6)
    read = {layer for metric, _, _, layer, _ in seen if metric == "router_weight_similarity"}
    assert read == set(layers)
    states = vitals.summary()["metrics"]
    assert states["moe_drop_rate"].startswith("not_applicable: no router has a capacity")
    assert states["router_weight_similarity"] == states["moe_util_entropy"] == "ok"


def test_measuring_moves_without_compiling_again():
    torch._dynamo.reset()
    model = experts.model_of("mapped")
    with Vitals(model, None, config_of("mapped", preset="medium"), [sink := MemorySink()]) as vitals:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        with vitals.step():
            made.loss_of(compiled, 1)
        with torch.compiler.set_stance("fail_on_recompile"):
            for step in range(2, 10):
                with vitals.step():
                    made.loss_of(compiled, step)
        made.loss_of(compiled, 1)  # outside of a step nothing is counted
    assert sorted({row[0] for row in sink.values if row[1] == "moe_util_entropy"}) == [4, 8]


@pytest.mark.parametrize("family", ["mixtral", "mapped"])
def test_what_checkpointing_runs_again_is_not_counted_again(family):
    model = experts.model_of(family, again=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    true = experts.reference(model, family, [made.batch_of(1)])
    seen, _, _ = run(model, config_of(family, window=2), 2, optimizer=optimizer)
    both = [made.batch_of(1), made.batch_of(2)]
    for layer, own in experts.reference(model, family, both).items():
        even = sum(own["counts"]) / len(own["counts"])
        loads = [seen["moe_dead_experts", "load", 2, layer, at] for at in range(len(own["counts"]))]
        assert [round(load * even, 6) for load in loads] == own["counts"]
        shares = [count / sum(own["counts"]) for count in own["counts"]]
        entropy = -sum(s * math.log(s) for s in shares) / math.log(len(shares))
        assert seen["moe_util_entropy", "window", 2, layer, -1] == pytest.approx(entropy, rel=1e-6)
        assert seen["moe_util_entropy", "normalised", 1, layer, -1] == pytest.approx(
            true[layer]["moe_util_entropy", "normalised"], rel=1e-5
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_the_operator_runs_on_a_device_that_is_not_there(dtype, masked, monkeypatch):
    """Tensors of meta: whoever asks for a value, or mixes in a tensor of the host, fails."""
    autocast = torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda kind, **named: autocast(kind.replace("meta", "cpu"), **named))
    model = experts.model_of("mapped")
    hooks = Vitals(model, None, config_of("mapped"))._hooks
    site, where = hooks.routed[0], {"device": "meta"}
    sums = hooks.routers.sums.to(**where)
    hooks.routers.sources._device = torch.device("meta")
    hooks.routers.sources.use(torch.empty(2, dtype=torch.int64, **where), 3)
    logits = torch.empty(2, 6, 5, dtype=dtype, **where)
    chosen = torch.empty(2, 6, 5 if masked else 2, dtype=torch.int64, **where)
    routers._routed(logits, chosen, sums, site)
    routers._routed(logits, None, sums, site)
    with pytest.raises(RuntimeError):
        sums.sum().item()


@pytest.mark.parametrize("family", ["gpt_oss", "mapped"])
def test_a_dead_expert_is_named_with_layer_and_number(family):
    model = experts.model_of(family)
    own = experts.routers_of(model)[1]

    def plant(_vitals, step):
        if step == 3:
            own.bias.data[3] = -math.inf

    seen, events, _ = run(model, config_of(family, window=2), 6, micro_batches=4, before=plant)
    alarms = [(step, detail) for step, kind, detail in events if kind == "alarm" and detail["rule"] == "unused"]
    ((step, alarm),) = alarms
    assert (step, alarm["metric"], alarm["layer"], alarm["head"], alarm["value"]) == (4, "moe_dead_experts", 1, 3, 0)
    assert "layer 1, expert 3 was sent no token in a window" in in_a_line(alarm)
    for step, dead in ((2, 0), (4, 1), (6, 1)):
        assert seen["moe_dead_experts", "dead", step, 1, -1] == dead
        assert seen["moe_dead_experts", "dead", step, 0, -1] == 0
    assert seen["router_token_entropy", "normalised", 4, 1, -1] < 1  # a share of 0 has no entropy, and no NaN


def test_a_window_is_cold_dead_or_too_short_to_say():
    numbers, loads = of_window(torch.tensor([0, 3, 97, 100]).double().numpy())
    assert loads.tolist() == [0, 0.06, 1.94, 2.0]
    assert numbers[2:] == [1, 1]
    p = torch.tensor([3, 97, 100]).double() / 200
    assert numbers[0] == pytest.approx(torch.special.entr(p).sum().item() / math.log(4))
    assert numbers[1] == pytest.approx(torch.tensor(loads).std(unbiased=False).item())
    numbers, loads = of_window(torch.tensor([0, 3, 97, 27]).double().numpy())
    assert all(math.isnan(number) for number in [*numbers[2:], *loads])
    assert all(map(math.isnan, of_window(torch.zeros(4).double().numpy())[0]))


@pytest.mark.parametrize("alike", [True, False])
def test_rows_that_become_alike_are_alarmed_of(alike):
    model = experts.model_of("mapped")
    own, draw = experts.routers_of(model)[1], torch.Generator().manual_seed(1)

    def before(_vitals, step):
        own.weight.data += 0.01 * torch.randn(own.weight.shape, generator=draw)
        if alike and step > 160:
            own.weight.data = 0.7 * own.weight.data + 0.3 * own.weight.data.mean(0)

    _, events, _ = run(model, config_of("mapped", measure=("experts",)), 190, before=before)
    alarms = [(step, detail) for step, kind, detail in events if kind == "alarm"]
    raised = [step for step, detail in alarms if detail["metric"] == "router_weight_similarity"]
    assert bool(raised) == alike
    assert all(step > 160 and detail["layer"] == 1 for step, detail in alarms)


def test_choices_are_counted_by_source():
    model = experts.model_of("qwen3_moe")
    by_row, by_token = torch.tensor([1, 0]), torch.randint(0, 3, (2, made.LENGTH))
    given = {1: by_row, 2: by_token, 3: torch.tensor([0, 7])}

    with Vitals(model, None, config_of("qwen3_moe"), [sink := MemorySink()]) as vitals:
        state = vitals.summary()["metrics"]["moe_source_load"]
        assert state.startswith("not_applicable: no sources were handed over yet")
        for step, ids in given.items():
            with vitals.step():
                vitals.log_sources(ids, 3)
                made.loss_of(model, step)
        assert vitals.summary()["metrics"]["moe_source_load"] == "ok"
        with vitals.step():
            vitals.log_sources(torch.arange(5), 3)
            made.loss_of(model, 1)
        assert "48 tokens where 5 sources" in vitals.summary()["metrics"]["moe_source_load"]
        for wrong in (torch.ones(2), torch.zeros(1, 1, 1).int(), None):
            with pytest.raises(ConfigError, match="log_sources"):
                vitals.log_sources(wrong, 3)
    rows = [row for row in sink.values if row[1] == "moe_source_load"]
    for step, ids in given.items():
        each = (ids if ids.dim() == 2 else ids[:, None].expand(-1, made.LENGTH)).flatten().tolist()
        for layer, own in experts.reference(model, "qwen3_moe", [made.batch_of(step)]).items():
            true = {}
            for source, picks in zip(each, own["picks"], strict=True):
                for at in picks if source < 3 else ():
                    true[at, f"source_{source}"] = true.get((at, f"source_{source}"), 0) + 1
            assert {(row[3], row[4]): row[5] for row in rows if (row[0], row[2]) == (step, layer)} == true


def test_what_a_capacity_drops_is_known():
    """Of Switch Transformers itself, whose router returns a mask without what it dropped."""
    import transformers

    sizes = {"num_layers": 2, "num_decoder_layers": 0, "num_sparse_encoder_layers": 2, "num_experts": 4, "d_kv": 8}
    sizes |= {"d_model": 32, "d_ff": 48, "num_heads": 4, "vocab_size": made.VOCAB, "expert_capacity": 5}
    torch.manual_seed(0)
    model = transformers.SwitchTransformersEncoderModel(transformers.SwitchTransformersConfig(**sizes)).eval()
    kept = {}
    named = [(name, item) for name, item in model.named_modules() if name.endswith("mlp.router")]
    for layer, (_, router) in enumerate(named):
        router.register_forward_hook(lambda _, __, out, at=layer: kept.update({at: out[0].detach().flatten(0, 1)}))
    with Vitals(model, None, config_of("switch"), [sink := MemorySink()]) as vitals:
        assert vitals.summary()["metrics"]["moe_drop_rate"] == "ok"
        with vitals.step(), torch.no_grad():
            model(made.batch_of(1)[0])
    seen = {(row[1], row[4], row[2]): row[5] for row in sink.values}
    assert len(kept) == 2
    for at, site in enumerate(vitals._hooks.routed):
        mask = kept[at]
        assert seen["moe_drop_rate", "share", site.layer] == pytest.approx(1 - mask.sum().item() / len(mask), rel=1e-6)
        assert 0 < mask.sum() < len(mask)
        shares = mask.sum(0).double() / mask.sum()
        entropy = torch.special.entr(shares).sum().item() / math.log(4)
        assert seen["moe_util_entropy", "normalised", site.layer] == pytest.approx(entropy, rel=1e-5)
    warned = {detail["metric"] for _, kind, detail in sink.events if kind == "warning"}
    assert "moe_drop_rate" in warned


def ceils(self, tokens):
    return math.ceil(tokens)


def cuts(self, tokens):
    return int(tokens)


@pytest.mark.parametrize(
    ("settings", "rounds", "room"),
    [
        ({"capacity": 10}, None, 10),
        ({"capacity_factor": 0.52}, ceils, 10),  # 48 tokens, two choices each, five experts: 9.98
        ({"moe_expert_capacity_factor": 0.52}, cuts, 9),
        ({"capacity_factor": 0.1, "min_capacity": 8}, None, 8),
        ({"capacity_factor": 0.52, "drop_tokens": False}, None, None),
    ],
)
def test_what_is_beyond_a_capacity_or_a_factor_of_the_even_share_is_dropped(settings, rounds, room, monkeypatch):
    model = experts.model_of("mapped")
    if rounds is not None:  # the code of a block says how it rounds
        monkeypatch.setattr(experts.MoE, "room", rounds, raising=False)
    for block in model.blocks:
        vars(block.moe).update(settings)
    seen, _, vitals = run(model, config_of("mapped"), 1)
    if room is None:
        assert vitals.summary()["metrics"]["moe_drop_rate"].startswith("not_applicable: no router has a capacity")
        return
    for layer, own in experts.reference(model, "mapped", [made.batch_of(1)]).items():
        over = sum(max(0, count - room) for count in own["counts"]) / sum(own["counts"])
        assert seen["moe_drop_rate", "share", 1, layer, -1] == pytest.approx(over, rel=1e-6)
        assert over > 0


@pytest.mark.parametrize("family", ["llama", "gpt2", "mapped"])
def test_dense_models_say_that_they_have_none(family):
    config = config_of("none", mapping=made.MAPPING if family == "mapped" else None)
    seen, events, vitals = run(made.model_of(family), config, 2)
    states = [state for name, state in vitals.summary()["metrics"].items() if name.startswith(OF_EXPERTS)]
    assert not seen
    assert len(states) == 8
    assert set(states) == {"not_applicable: no router of experts found"}
    assert not [detail for _, kind, detail in events if kind in {"not_seen", "no_value"}]


def test_who_does_not_ask_for_experts_gets_none():
    seen, _, vitals = run(experts.model_of("mapped"), config_of("mapped", measure=("activations",)), 2)
    assert not seen
    assert vitals.summary()["metrics"]["moe_util_entropy"] == (
        'not_applicable: not asked for: VitalsConfig(measure=(..., "experts"))'
    )


def test_a_mapping_names_a_router_and_says_where_it_is_wrong():
    layers = {"layers": "blocks", "attention": "attention", "heads": made.HEADS}
    with pytest.raises(ConfigError, match=r"router, moe\.gate"):
        Vitals(experts.model_of("mapped"), None, VitalsConfig(mapping=Mapping(**layers, router="moe.gate")))
    for wrong in ({"router": ""}, {"top_k": -1}, {"top_k": True}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Mapping(**layers, **wrong)
    model, unknown = experts.model_of("mapped"), Mapping(**layers, router="moe.scores")
    seen, _, vitals = run(model, config_of("x", mapping=unknown, window=2), 2)
    known, _, _ = run(model, config_of("mapped", window=2), 2)
    of_scores = {at: value for at, value in known.items() if at[0].startswith("router_")}
    assert {at: value for at, value in seen.items() if not math.isnan(value)} == of_scores
    why = "how many experts a token is sent to is not known: Mapping(..., top_k=...)"
    counted = ("moe_util_entropy", "moe_load_balance_loss", "moe_dead_experts")
    assert {vitals.summary()["metrics"][name] for name in counted} == {f"not_applicable: {why}"}
    assert vitals.summary()["found"]["experts"] == "2 of 2 layers, 5 experts, some a token"
    assert not vitals.failures


@pytest.mark.parametrize("name", ["k", "num_selected_experts", "experts_per_token"])
def test_how_many_experts_a_token_is_sent_to_has_many_names(name):
    model = experts.model_of("mapped")
    for block in model.blocks:
        setattr(block.moe, name, 2)
    mapping = Mapping(layers="blocks", router="moe.scores")
    assert [item.top_k for item in routers.find_routers(find(model, mapping), mapping)] == [2, 2]
    block.moe.__dict__[name] = 9  # more than there are is something else
    assert [item.top_k for item in routers.find_routers(find(model, mapping), mapping)] == [2, 0]


def test_a_router_of_its_own_that_returns_logits_alone_is_reported():
    class Scores(torch.nn.Module):
        """A router that might return choices, too."""

        def __init__(self, linear):
            super().__init__()
            self.weight = linear.weight

        def forward(self, x):
            return x @ self.weight.T

    model = experts.model_of("mapped")
    for block in model.blocks:
        block.moe.scores = Scores(block.moe.scores)
    unknown = Mapping(layers="blocks", attention="attention", heads=made.HEADS, router="moe.scores")
    seen, events, vitals = run(model, config_of("x", mapping=unknown), 2)
    assert [detail["what"] for _, kind, detail in events if kind == "no_value"] == [
        "moe_util_entropy, moe_load_balance_loss, moe_dead_experts"
    ]
    assert "top_k=..." in vitals.coverage()["moe_util_entropy"]["why"]
    assert any(not math.isnan(value) for at, value in seen.items() if at[0] == "router_token_entropy")


def test_a_router_that_returns_too_few_numbers_is_reported():
    model = experts.model_of("mapped")
    experts.routers_of(model)[0].register_forward_hook(lambda _, __, output: output[..., :3])
    with Vitals(model, None, config_of("mapped"), [sink := MemorySink()]) as vitals, vitals.step():
        made.loss_of(model, 1)
    missing = [detail for _, kind, detail in sink.events if kind == "not_seen"]
    assert missing == [{"what": "router", "layers": [0], "why": "it returns no number for each of 5 experts"}]
    assert {row[2] for row in sink.values if row[1] == "moe_util_entropy"} == {1}


def test_what_is_there_after_a_softmax_is_taken_as_shares():
    logits = torch.randn(6, 4)
    true = torch.special.entr(logits.double().softmax(-1)).sum().item()
    found = [routers._shares(item, sigmoid=False) for item in (logits, logits.softmax(-1))]
    for shares in found:
        assert torch.special.entr(shares).sum().item() == pytest.approx(true, rel=1e-6)


def test_a_matrix_that_is_sharded_is_a_gap_with_a_reason():
    model = experts.model_of("mapped")
    with Vitals(model, None, config_of("mapped"), [MemorySink()]) as vitals:
        with vitals.step():
            made.loss_of(model, 1)
            for own in experts.routers_of(model).values():
                own.weight.data = torch.empty(0)  # as FSDP leaves it between passes
        assert "sharded" in vitals.coverage()["router_weight_similarity"]["why"]


def worker(rank, queue):
    model, config = experts.model_of("mapped"), config_of("mapped", window=2, measure=("experts",))
    found = []
    for scene in ("both", "one"):
        ranks._WAITS = ranks._WAITS if scene == "both" else ranks.timedelta(seconds=1)
        if scene == "one" and rank == 1:
            continue
        with Vitals(model, None, config, [sink := MemorySink()]) as vitals:
            counts = [[0] * 5 for _ in range(made.LAYERS)]
            for step in range(1, 3):
                for layer, own in experts.reference(model, "mapped", [made.batch_of(step, rank)]).items():
                    counts[layer] = [a + b for a, b in zip(counts[layer], own["counts"], strict=True)]
            until = time.monotonic() + 60
            while not any(row[1] == "moe_dead_experts" for row in sink.values) and time.monotonic() < until:
                with vitals.step():
                    made.loss_of(model, 1 + vitals.steps % 2, rank)
                    time.sleep(0.01)
            why = vitals.coverage()["moe_dead_experts"]["why"]
        loads = [row[5] for row in sink.values if row[4] == "load"][: 5 * made.LAYERS]
        found.append((scene, rank, loads, counts, why))
    queue.put(found)


def test_windows_of_two_ranks_are_summed_and_one_alone_says_so():
    queue = made.spawned(worker)
    found = {(scene, rank): rest for _ in range(2) for scene, rank, *rest in queue.get()}
    layers = zip(found["both", 0][1], found["both", 1][1], strict=True)
    total = [[a + b for a, b in zip(*pair, strict=True)] for pair in layers]
    for rank in range(2):
        loads, _, why = found["both", rank]
        assert loads == pytest.approx([count * 5 / sum(own) for own in total for count in own], rel=1e-9)
        assert "rank alone" not in why
    loads, counts, why = found["one", 0]
    assert loads == pytest.approx([count * 5 / sum(own) for own in counts for count in own], rel=1e-9)
    assert why.startswith("counts are of this rank alone")
