"""Tests of greedy search against the best token of a whole pass, repeated one sentence at a time."""

import torch
from torch import Tensor

from regard.model.cache import DecoderCache
from regard.model.transformer import Transformer
from regard.search.greedy import greedy
from regard.search.hypothesis import Hypothesis
from tests.conftest import make_model

BOS = 1


def by_whole_passes(model: Transformer, src: Tensor, max_length: int, eos_id: int) -> list[int]:
    tokens = [BOS]
    while len(tokens) <= max_length:
        best = int(model(src[None], torch.tensor([tokens]))[0, -1].argmax())
        if best == eos_id:
            break
        tokens.append(best)
    return tokens[1:]


def ids_of(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [list(hypothesis.ids) for hypothesis in hypotheses]


def test_greedy_is_the_best_token_of_every_pass() -> None:
    torch.manual_seed(0)
    model = make_model()
    src = torch.randint(3, 23, (40, 6))
    src[::3, 4:] = 0
    max_lengths = torch.randint(1, 12, (40,)).tolist()

    def never_ending(ids: Tensor, cache: DecoderCache) -> Tensor:
        return model.step(ids, cache).index_fill(1, torch.tensor([0]), -torch.inf)

    endless = ids_of(greedy(never_ending, model.start(src), max_lengths, bos_id=BOS, eos_id=0))
    assert [len(output) for output in endless] == max_lengths
    eos_id = endless[0][-1]  # a token that does occur
    outputs = ids_of(greedy(model.step, model.start(src), max_lengths, bos_id=BOS, eos_id=eos_id))
    expected = [by_whole_passes(model, row[row != 0], limit, eos_id) for row, limit in zip(src, max_lengths, strict=True)]
    assert outputs == expected
    lengths = [len(output) for output in outputs]
    assert any(length < limit for length, limit in zip(lengths, max_lengths, strict=True)), "some must end by EOS"
    assert any(length == limit for length, limit in zip(lengths, max_lengths, strict=True)), "some must be cut"
