"""Tests of the bench's arithmetic, without a clock."""

import itertools
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.decode import Agreement, agreement
from regard.bench.model import BenchSettings, interleaved, print_table, step_flops
from regard.bench.peers import TorchTransformer, TrainingStep
from regard.bench.speed import Speed
from regard.model.transformer import Transformer
from regard.translate.search import Search
from regard.translate.translator import load
from tests.conftest import tiny_config

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
SETTINGS = BenchSettings(
    preset="tiny", batch=4, length=5, vocab=50, rounds=3, steps=2, device="cpu", dtype="float32", compile=False
)


def test_step_flops_are_those_of_the_products() -> None:
    config = tiny_config(encoder_layers=1, decoder_layers=3)
    model = Transformer(config)
    ids = torch.randint(1, 23, (4, 5))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids, ids)
    assert step_flops(config, 4, 5) == 3 * counter.get_total_flops()


def test_rounds_are_interleaved_and_counted_in_tokens_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a clock that advances half a second per call, two contestants, and one round of warm-up."""
    clock = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) / 2)
    calls: list[str] = []
    contestants: dict[str, TrainingStep] = {name: partial(calls.append, name) for name in ("regard", "peer")}
    speeds = interleaved(SETTINGS, contestants, torch.device("cpu"))
    assert calls == ["regard", "regard", "peer", "peer"] * 4
    assert speeds == [Speed("regard", (80.0, 80.0, 80.0)), Speed("peer", (80.0, 80.0, 80.0))]  # 2 · 4 · 5 tokens in ½ s


def test_the_table_says_how_many_times_as_fast(capsys: pytest.CaptureFixture[str]) -> None:
    speeds = [Speed("regard", (10.0, 300.0, 310.0)), Speed("slow", (100.0,)), Speed("fast", (200.0,))]
    print_table(SETTINGS, speeds, ceiling=2e9, tokens_at_ceiling=1000.0)
    rows = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert "30%" in rows["regard"] and "10–310" in rows["regard"]
    assert "3.00 ×" in rows["slow"] and "1.50 ×" in rows["fast"]
    print_table(SETTINGS, speeds, ceiling=2e9, tokens_at_ceiling=1000.0)
    assert "regard trains 1.50 times as fast as the faster peer, fast." in capsys.readouterr().out


def test_the_peers_drop_what_ours_drops_and_no_more() -> None:
    peer = TorchTransformer(tiny_config(dropout=0.5), max_length=5).train()
    for layer in (*peer.transformer.encoder.layers, *peer.transformer.decoder.layers):
        assert layer.self_attn.dropout == 0.0
        assert layer.dropout.p == 0.0
        assert layer.dropout1.p == layer.dropout2.p == 0.5


def test_outputs_that_differ_are_told_apart_by_what_the_model_makes_of_them() -> None:
    """Two words have equal probability: rounding decides between them, and so do the differences that follow."""
    translator = load(RUN, device="cpu")
    [model] = translator.models
    text = (RUN / "source.de").read_text(encoding="utf-8").splitlines()[0]
    source = translator.tokenizer.src.encode([text])[0]
    [found] = translator.translate([text], Search(beam=1))
    first, *rest = ours = translator.ids_of(found.pieces, "ours")
    assert len(rest) >= 2
    twin, unlikely = [token for token in range(300, 400) if token not in {*source, *ours}][:2]
    with torch.no_grad():
        model.output_weight[twin] = model.output_weight[first]
    tie, worse = [twin, *rest[::-1], first], [first, unlikely, *rest]
    agreed = agreement(translator, [source] * 3, [ours] * 3, [ours, tie, worse])
    assert agreed == Agreement(equal=1, ties=1, better=0, worse=1)
    assert agreement(translator, [source], [worse], [ours]) == Agreement(equal=0, ties=0, better=1, worse=0)
