"""Tests of training over packed sentences, against autograd over padded ones."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.config import ModelConfig, TrainConfig
from regard.data.batch import Pairs
from regard.data.store import Ragged
from regard.fast.kernels import sums
from regard.fast.kernels.intervals import Intervals
from regard.fast.support import untrained
from regard.fast.training import learner as fused_module
from regard.fast.training.layout import Packing, PackLayout, empty_array
from regard.fast.training.learner import FusedLearner
from regard.fast.training.parameters import FlatParameters
from regard.fast.training.transformer import PackedTransformer
from regard.machine.processes import Processes
from regard.model.kinds import build_encoder_decoder
from regard.model.transformer import Transformer
from regard.train.learner import Learner
from regard.train.loss import smoothed_cross_entropy
from regard.train.totals import Totals
from tests.conftest import tiny_config

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CONFIG = tiny_config(d_model=32, num_heads=2, encoder_layers=2, decoder_layers=1)
LAYOUT = PackLayout(64, 64, CONFIG.src_vocab_size, CONFIG.tgt_vocab_size, CONFIG.pad_id)
TRAIN = TrainConfig(
    steps=20,
    warmup=2,
    learning_rate=1e-2,
    schedule="linear",
    clip_norm=1.0,
    precision="float32",
    compile="off",
    accumulation=1,
)


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum rows in a few programs where Triton interprets; one program per row took most of the time here."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(sums, "SPANS", 2)


def some_pairs(seed: int, *lengths: tuple[int, int]) -> Pairs:
    random = np.random.default_rng(seed)
    sides = ([random.integers(4, CONFIG.src_vocab_size, pair[side]) for pair in lengths] for side in (0, 1))
    return Pairs(*(Ragged.of(side) for side in sides))


def packings(pairs: Pairs, layout: PackLayout = LAYOUT) -> list[Packing]:
    return [layout.parts(torch.from_numpy(array)) for array in layout.pack(pairs).arrays]


LENGTHS = ((3, 5), (12, 9), (30, 37), (1, 2))


def test_packing_says_who_may_attend_to_whom_as_the_masks_do() -> None:
    pairs = some_pairs(1, *LENGTHS)
    batch, [packing] = pairs.padded(), packings(pairs)
    is_src, is_tgt = batch.src != CONFIG.pad_id, batch.tgt_out != CONFIG.pad_id
    assert packing.src.ids[: int(is_src.sum())].tolist() == batch.src[is_src].tolist()
    assert packing.tgt.ids[: int(is_tgt.sum())].tolist() == batch.tgt_in[is_tgt].tolist()
    assert packing.targets.tolist() == batch.tgt_out[is_tgt].tolist() + [CONFIG.pad_id] * (64 - int(is_tgt.sum()))
    sentence = {"src": is_src.nonzero()[:, 0], "tgt": is_tgt.nonzero()[:, 0]}
    position = is_tgt.nonzero()[:, 1]
    assert packing.tgt.positions[: len(position)].tolist() == position.tolist()
    for intervals, queries, keys in (
        (packing.encoder, "src", "src"),
        (packing.decoder, "tgt", "tgt"),
        (packing.cross, "tgt", "src"),
    ):
        may = sentence[queries][:, None] == sentence[keys][None, :]
        if intervals is packing.decoder:
            may &= position[:, None] >= position[None, :]
        places = torch.arange(64)
        by_query = (places >= intervals.key_first[:, None]) & (places < intervals.key_end[:, None])
        by_key = (places[:, None] >= intervals.query_first) & (places[:, None] < intervals.query_end)
        expected = torch.zeros(64, 64, dtype=torch.bool)
        expected[: len(may), : may.shape[1]] = may
        assert torch.equal(by_query, expected)
        assert torch.equal(by_key, expected)


def test_packing_sorts_the_rows_by_token() -> None:
    [packing] = packings(some_pairs(2, *LENGTHS))
    side = packing.src
    for token in range(CONFIG.src_vocab_size):
        rows = side.order[side.starts[token] : side.starts[token + 1]].tolist()
        here = (side.ids == token).nonzero()[:, 0].tolist()
        assert rows == ([] if token == CONFIG.pad_id else here)  # padding is nowhere


def test_copies_stand_behind_each_other_and_see_only_themselves() -> None:
    pairs = some_pairs(2, *LENGTHS)
    layout = replace(LAYOUT, src=60, tgt=70)
    layouts = layout, replace(layout, copies=2)
    [one], [two] = (packings(pairs, each) for each in layouts)
    assert torch.equal(two.targets, one.targets)
    for name, rows in (("src", 60), ("tgt", 70)):
        side, single = getattr(two, name), getattr(one, name)
        for doubled, once in ((side.ids, single.ids), (side.positions, single.positions)):
            assert torch.equal(doubled, torch.cat([once, once]))
        assert len(side.order) == 2 * rows
        for token in range(CONFIG.src_vocab_size):
            here = (side.ids == token).nonzero()[:, 0].tolist()
            places = side.order[side.starts[token] : side.starts[token + 1]].tolist()
            assert sorted(places) == ([] if token == CONFIG.pad_id else here)
    for name, num_queries, num_keys in (("encoder", 60, 60), ("decoder", 70, 70), ("cross", 70, 60)):
        may = [seen(getattr(packing, name)) for packing in (one, two)]
        for by_query, by_key in may:
            assert torch.equal(by_query, by_key)
        expected = torch.block_diag(may[0][0], may[0][0]).bool()
        assert expected.shape == (2 * num_queries, 2 * num_keys)
        assert torch.equal(may[1][0], expected)


def seen(intervals: Intervals) -> tuple[Tensor, Tensor]:
    """Return which query may attend to which key, by the queries' intervals and by the keys'."""
    queries, keys = torch.arange(len(intervals.key_first))[:, None], torch.arange(len(intervals.query_first))
    by_query = (keys >= intervals.key_first[:, None]) & (keys < intervals.key_end[:, None])
    return by_query, (queries >= intervals.query_first) & (queries < intervals.query_end)


def test_what_does_not_fit_is_cut_between_sentences() -> None:
    pairs = some_pairs(3, (30, 20), (30, 20), (10, 40), (60, 5))
    batch, pieces = pairs.padded(), packings(pairs)
    assert [int((piece.src.ids != CONFIG.pad_id).sum()) for piece in pieces] == [62, 11, 61]  # including EOS
    for name, table in (("src", batch.src), ("tgt", batch.tgt_in)):
        together = torch.cat([getattr(piece, name).ids for piece in pieces])
        assert together[together != CONFIG.pad_id].tolist() == table[table != CONFIG.pad_id].tolist()


SERVED = [
    {"norm": norm, "shared_embeddings": shared, "positions": positions, "decoder_layers": layers}
    for norm, positions, (shared, layers) in product(
        ["post", "pre"], ["sinusoidal", "none"], [("all", 1), ("target", 2), ("none", 1)]
    )
]


@pytest.mark.parametrize("changes", SERVED, ids=lambda changes: "-".join(map(str, changes.values())))
def test_states_and_gradients_are_autograds(changes: dict[str, Any]) -> None:
    config = replace(CONFIG, **changes)
    model = build_encoder_decoder(config).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    pairs = some_pairs(4, *LENGTHS)
    batch = pairs.padded()
    is_real = batch.tgt_out != config.pad_id
    states = model.states(batch.src, batch.tgt_in)
    grad = torch.randn_like(states) * is_real[:, :, None]
    states.backward(grad)
    packed_model = build_encoder_decoder(config).to(DEVICE)
    assert isinstance(packed_model, Transformer)
    packed_model.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()})
    flat = FlatParameters(packed_model, torch.float32)
    [array] = LAYOUT.pack(pairs).arrays
    with torch.no_grad():
        ours = PackedTransformer(packed_model, flat, num_positions=64)
        found, tape = ours.forward(LAYOUT.parts(torch.from_numpy(array).to(DEVICE)))
        num_real = int(is_real.sum())
        torch.testing.assert_close(found[:num_real].double().cpu(), states[is_real], atol=1e-5, rtol=1e-5)
        packed_grad = torch.zeros_like(found)
        packed_grad[:num_real] = grad[is_real].to(packed_grad)
        ours.backward(packed_grad, tape)
    for (name, expected), actual in zip(model.named_parameters(), packed_model.parameters(), strict=True):
        assert actual.grad is not None
        wanted = torch.zeros_like(expected) if expected.grad is None else expected.grad
        largest = float((actual.grad.double().cpu() - wanted).abs().max())
        assert largest < 1e-4 * max(1.0, float(wanted.abs().max())), name


def fused(config: ModelConfig = CONFIG, train: TrainConfig = TRAIN, layout: PackLayout = LAYOUT) -> FusedLearner:
    return FusedLearner(config, train, DEVICE, replace(layout, copies=2 if train.r_drop else 1))


def learn(learner: Any, batches: list[Pairs]) -> list[float]:
    totals = Totals(DEVICE)
    for batch in batches:
        learner.update([(0, learner.layout.pack(batch) if isinstance(learner, FusedLearner) else batch.padded())], totals)
    return totals.to_list()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_fused_learner_learns_what_a_plain_one_learns(optimizer: Any) -> None:
    batches = [some_pairs(seed, *LENGTHS) for seed in range(3)]
    train = replace(TRAIN, optimizer=optimizer)
    plain, ours = Learner(CONFIG, train, DEVICE, Processes()), fused(train=train)
    ours.restore(plain.weights(), {}, 0)
    for ours_sum, sum_ in zip(learn(ours, batches), learn(plain, batches), strict=True):
        assert ours_sum == pytest.approx(sum_, rel=1e-4)
    for name, tensor in plain.weights().items():
        if not name.endswith("key_value.bias"):  # the gradient of keys' biases is only rounding, which Adam magnifies
            torch.testing.assert_close(ours.weights()[name], tensor, atol=2e-4, rtol=0, msg=name)


def test_with_r_drop_too() -> None:
    """Compare losses, and all gradients before Adam's steps."""
    train = replace(TRAIN, r_drop=3.0, clip_norm=0.0)
    batch = some_pairs(1, *LENGTHS)
    plain, ours = Learner(CONFIG, train, DEVICE, Processes()), fused(train=train)
    ours.restore(plain.weights(), {}, 0)
    ours._apply = lambda: None
    for ours_sum, sum_ in zip(learn(ours, [batch])[:3], learn(plain, [batch])[:3], strict=True):
        assert ours_sum == pytest.approx(sum_, rel=1e-5)
    for (name, expected), actual in zip(plain.model.named_parameters(), ours.model.parameters(), strict=True):
        assert expected.grad is not None and actual.grad is not None
        torch.testing.assert_close(actual.grad, expected.grad, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("pairs_in_a_chunk", [30, 1000])
def test_r_drop_of_states_that_differ(monkeypatch: pytest.MonkeyPatch, pairs_in_a_chunk: int) -> None:
    """Use the states of two passes that differ as if by dropout, whose masks the two implementations draw differently."""
    monkeypatch.setattr(fused_module, "CHUNK", 2 * pairs_in_a_chunk * CONFIG.tgt_vocab_size)
    learner = fused(train=replace(TRAIN, r_drop=3.0))
    [array] = learner.layout.pack(some_pairs(1, *LENGTHS)).arrays
    learner._array.copy_(torch.from_numpy(array))
    learner._scale.fill_(0.5)
    states = torch.randn(2 * LAYOUT.tgt, CONFIG.d_model, device=DEVICE)
    with torch.no_grad():
        learner._losses.zero_()
        learner._flat.grads.zero_()
        found = learner._learn_output(states), learner.model.output_weight.grad
    exact = states.double().unflatten(0, (2, 1, -1)).requires_grad_()
    weight = learner.model.output_weight.detach().double().requires_grad_()
    targets = learner._packing.targets.long()[None]
    loss = smoothed_cross_entropy(exact, weight, targets, pad_id=CONFIG.pad_id, smoothing=0.1, r_drop=3.0)
    torch.testing.assert_close(learner._losses.double(), torch.stack([loss.total, loss.nll]).detach(), rtol=1e-5, atol=0)
    for actual, expected in zip(found, torch.autograd.grad(loss.total / 2, (exact, weight)), strict=True):
        assert actual is not None
        torch.testing.assert_close(actual.double(), expected.reshape(actual.shape), atol=1e-5, rtol=1e-4)


def test_the_copies_of_r_drop_differ_by_dropout_alone() -> None:
    batch = some_pairs(1, *LENGTHS)
    dropped = replace(CONFIG, dropout=0.2)

    def losses(config: ModelConfig, r_drop: float) -> list[float]:
        return learn(fused(config, replace(TRAIN, r_drop=r_drop)), [batch])[:3]

    little, much, without = losses(dropped, 1e-6), losses(dropped, 10.0), losses(CONFIG, 10.0)
    assert much == losses(dropped, 10.0)
    assert much[0] > 1.01 * little[0] and much[1:] == little[1:]  # the same two passes, which differ
    assert without == pytest.approx(losses(CONFIG, 0.0), rel=1e-5)


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_an_update_does_not_depend_on_how_it_is_cut(r_drop: float) -> None:
    batch = some_pairs(5, *LENGTHS)
    train = replace(TRAIN, r_drop=r_drop)
    narrow = PackLayout(40, 40, CONFIG.src_vocab_size, CONFIG.tgt_vocab_size, CONFIG.pad_id)
    whole, cut = fused(train=train), fused(train=train, layout=narrow)
    assert [len(learner.layout.pack(batch).arrays) for learner in (whole, cut)] == [1, 3]
    for actual, expected in zip(learn(cut, [batch]), learn(whole, [batch]), strict=True):
        assert actual == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("r_drop", "optimizer"), [(0.0, "adam"), (2.0, "adam"), (0.0, "muon")])
def test_a_fused_learner_continues_bit_for_bit_and_as_a_plain_one_would(r_drop: float, optimizer: Any) -> None:
    train = replace(TRAIN, r_drop=r_drop, optimizer=optimizer)
    config = replace(CONFIG, dropout=0.2, embedding_dropout=0.1)
    batches = [some_pairs(seed, *LENGTHS) for seed in range(2)]
    through = fused(config, train)
    learn(through, batches)
    begun = fused(config, train)
    learn(begun, batches[:1])
    weights, optimizer = begun.weights(), begun.optimizer_state()
    continued = fused(config, train)
    continued.restore(weights, optimizer, 1)
    learn(continued, batches[1:])
    for one, other in ((through.weights(), continued.weights()), (through.optimizer_state(), continued.optimizer_state())):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    plain = Learner(config, train, DEVICE, Processes())
    plain.restore(weights, optimizer, 1)
    assert plain.optimizer_state().keys() == optimizer.keys()
    assert all(torch.equal(tensor, optimizer[name]) for name, tensor in plain.optimizer_state().items())


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_what_is_not_finite_changes_nothing(optimizer: Any) -> None:
    learner = fused(train=replace(TRAIN, optimizer=optimizer))
    learn(learner, [some_pairs(6, *LENGTHS)])
    before, state = learner.weights(), learner.optimizer_state()
    before = {name: tensor.clone() for name, tensor in before.items()}
    state = {name: tensor.clone() for name, tensor in state.items()}
    learner._flat.copy.fill_(math.nan)  # as after an overflow
    sums = learn(learner, [some_pairs(7, *LENGTHS)])
    assert sums[-1] == 1.0  # skipped
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.weights().items())
    assert all(torch.equal(tensor, state[name]) for name, tensor in learner.optimizer_state().items())


def test_rows_that_are_left_over_count_for_nothing() -> None:
    batch = some_pairs(8, (5, 6), (7, 3))
    roomy = PackLayout(128, 192, CONFIG.src_vocab_size, CONFIG.tgt_vocab_size, CONFIG.pad_id)
    narrow, wide = fused(layout=replace(LAYOUT)), fused(layout=roomy)
    for actual, expected in zip(learn(wide, [batch]), learn(narrow, [batch]), strict=True):
        assert actual == pytest.approx(expected, rel=1e-5)
    assert (roomy.parts(empty_array(roomy, DEVICE)).targets == CONFIG.pad_id).all()


@pytest.mark.parametrize(
    "changes",
    [{"activation": "gelu"}, {"positions": "learned"}, {"attention_dropout": 0.1}, {"num_heads": 4}, {"ablation": "scale"}],
    ids=str,
)
def test_what_is_not_served_is_said(changes: dict[str, Any]) -> None:
    assert untrained(CONFIG) is None
    assert untrained(replace(CONFIG, **changes)) is not None


def test_flat_parameters_are_views() -> None:
    model = Transformer(CONFIG)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flat = FlatParameters(model, torch.bfloat16)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    flat.values.zero_()
    assert all((parameter == 0).all() for parameter in model.parameters())
    assert flat.copy.dtype == torch.bfloat16 and not (flat.copy == 0).all()
    flat.refresh()
    assert (flat.copy == 0).all()
    names = list(flat.names)
    last = ["encoder.0.feed_forward.inner.weight", "decoder.0.feed_forward.inner.weight"]
    others = FlatParameters(Transformer(CONFIG), torch.float32, last=last)
    assert list(others.names) == [name for name in names if name not in last] + last
    behind = others.values[others.span(last)]
    assert behind.data_ptr() + behind.nbytes == others.values.data_ptr() + others.values.nbytes
    for name, tensor in others.by_name(behind, last).items():
        assert torch.equal(tensor, others.by_name(others.values, list(others.names))[name])
