"""Tests of every kernel against torch's own operations, on a GPU if there is one, and in Triton's interpreter elsewhere."""

import math
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.fast.kernels.adam import adam_
from regard.fast.kernels.attention import attention, attention_gradient
from regard.fast.kernels.cross_entropy import cross_entropy_, paired_cross_entropy_
from regard.fast.kernels.dropout import HashDropout
from regard.fast.kernels.embedding import add_embedding_gradient, embed
from regard.fast.kernels.intervals import Intervals
from regard.fast.kernels.normalisation import NormParameters, add_norm, add_norm_gradient, norm, norm_gradient
from regard.fast.kernels.sums import add_column_sums, relu_gradient
from tests.oracles import kernels as oracle

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def assert_close(actual: Tensor, expected: Tensor | None) -> None:
    """Compare float32 with float64."""
    assert expected is not None
    torch.testing.assert_close(actual.double(), expected, atol=1e-4, rtol=1e-4)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def intervals(src: Sequence[int], tgt: Sequence[int], *, causal: bool, spare: int) -> Intervals:
    """Compute the intervals one token after the other, by the definition."""
    key_first, key_end, query_first, query_end = [], [], [], []
    key, query = 0, 0
    for num_keys, num_queries in zip(src, tgt, strict=True):
        for number in range(num_queries):
            key_first.append(key)
            key_end.append(query + number + 1 if causal else key + num_keys)
        for number in range(num_keys):
            query_first.append(query + number if causal else query)
            query_end.append(query + num_queries)
        key, query = key + num_keys, query + num_queries
    columns = (key_first, key_end, query_first, query_end)
    return Intervals(*(torch.tensor(column + [0] * spare, dtype=torch.int32, device=DEVICE) for column in columns))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("spare", [0, 5, 70])  # rows of padding: part of the last block, or all of it
def test_attention_and_its_gradient_are_those_of_the_formula(causal: bool, spare: int) -> None:
    src = [3, 40, 1, 70, 17]
    tgt = src if causal else [5, 33, 2, 64, 1]
    num_heads, d_model = 2, 32
    may = intervals(src, tgt, causal=causal, spare=spare)
    q, kv = random(sum(tgt) + spare, d_model), random(sum(src) + spare, 2 * d_model)
    k, v = kv.chunk(2, dim=1)
    heads = attention(q, k, v, may, num_heads)
    exact_q, exact_kv = q.double().requires_grad_(), kv.double().requires_grad_()
    exact_k, exact_v = exact_kv.chunk(2, dim=1)
    expected = oracle.attention(exact_q, exact_k, exact_v, may, num_heads)
    assert_close(heads.values, expected)
    grad = random(*heads.values.shape)
    expected.backward(grad.double())
    dq, d_kv = torch.full_like(q, math.nan), torch.full_like(kv, math.nan)  # all of it must be written
    dk, dv = d_kv.chunk(2, dim=1)
    attention_gradient(q, k, v, heads, may, grad, (dq, dk, dv))
    assert_close(dq, exact_q.grad)
    assert_close(d_kv, exact_kv.grad)


def test_padding_does_not_make_attention_look_at_everything() -> None:
    """A padded row's empty interval lies at 0; if it counted, its block would go through all keys."""
    may = intervals([3, 90], [3, 90], causal=False, spare=40)
    q, kv = random(133, 16), random(133, 32)
    kv[:3] = math.nan  # the first sentence's keys, which no other sentence may read
    k, v = kv.chunk(2, dim=1)
    heads = attention(q, k, v, may, 1)
    assert heads.values[64:93].isfinite().all()  # the block with padding beside the second sentence
    assert (heads.values[93:] == 0).all()


def kept(dropout: HashDropout, num_rows: int, d: int) -> Tensor:
    """Return the mask by dropping elements of a matrix of ones."""
    ids = torch.zeros(num_rows, dtype=torch.int32, device=DEVICE)
    return embed(ids, ids, torch.ones(1, d, device=DEVICE), None, scale=1.0, dropout=dropout, dtype=torch.float32)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_and_depends_on_seed_and_site(p: float) -> None:
    seeds = torch.tensor([[1], [2]], dtype=torch.int32, device=DEVICE)
    masks = [kept(HashDropout(seed, site, p), 64, 256) > 0 for seed in seeds for site in (0, 1, 7)]
    expected, spread = 1 - p, math.sqrt(p * (1 - p) / masks[0].numel())
    for number, mask in enumerate(masks):
        assert abs(float(mask.float().mean()) - expected) < 5 * spread
        assert abs(float((mask[1:] & mask[:-1]).float().mean()) - expected**2) < 10 * spread  # rows are independent
        for other in masks[:number]:
            assert abs(float((mask & other).float().mean()) - expected**2) < 10 * spread
    assert torch.equal(masks[0], kept(HashDropout(seeds[0], 0, p), 64, 256) > 0)


def test_what_is_kept_is_scaled() -> None:
    mask = kept(HashDropout(torch.tensor([3], dtype=torch.int32, device=DEVICE), 2, 0.2), 8, 64)
    assert mask.unique().tolist() == pytest.approx([0.0, 1.25])


def norms(d: int) -> NormParameters:
    return NormParameters(1 + 0.3 * random(d), random(d), torch.zeros(d, device=DEVICE), torch.zeros(d, device=DEVICE), 1e-5)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("goes_on", [False, True])  # as in pre-norm, where the residual stream itself has a gradient
@pytest.mark.parametrize("d", [32, 48])
def test_residual_sum_and_norm_with_their_gradients(p: float, goes_on: bool, d: int) -> None:
    num_rows = 37
    by, dropout = norms(d), HashDropout(torch.tensor([5], dtype=torch.int32, device=DEVICE), 4, p)
    x, y, bias = random(num_rows, d), random(num_rows, d), random(d)
    summed = add_norm(x, y, bias, by, dropout)
    exact = [tensor.double().requires_grad_() for tensor in (x, y, bias, by.gamma, by.beta)]
    keep = kept(dropout, num_rows, d).double()
    stream, normed = oracle.add_norm(exact, keep=keep, epsilon=by.epsilon)
    assert_close(summed.stream, stream)
    assert_close(summed.normed, normed)
    grad, stream_grad = random(num_rows, d), random(num_rows, d)
    (normed * grad.double()).sum().backward(retain_graph=True)
    if goes_on:
        (stream * stream_grad.double()).sum().backward()
    bias_grad = torch.zeros(d, device=DEVICE)
    dx, dy = add_norm_gradient(summed, grad, stream_grad if goes_on else None, by, bias_grad, dropout)
    found = (dx, dy, bias_grad, by.gamma_grad, by.beta_grad)
    for actual, expected in zip(found, exact, strict=True):
        assert_close(actual, expected.grad)


def test_norm_alone() -> None:
    by, x, grad = norms(64), random(21, 64), random(21, 64)
    summed = norm(x, by, torch.float32)
    exact = x.double().requires_grad_()
    normed = F.layer_norm(exact, (64,), by.gamma.double(), by.beta.double(), by.epsilon)
    assert_close(summed.normed, normed)
    normed.backward(grad.double())
    assert_close(norm_gradient(summed, grad, by), exact.grad)


@pytest.mark.parametrize(("num_rows", "num_columns"), [(1, 8), (300, 130), (1000, 32)])
def test_column_sums_are_added_to_what_is_there(num_rows: int, num_columns: int) -> None:
    grad, into = random(num_rows, num_columns), random(num_columns)
    expected = into.double() + grad.double().sum(0)
    add_column_sums(grad, into)
    assert_close(into, expected)


def test_the_gradient_of_relu_and_its_bias() -> None:
    before, bias, grad = random(90, 40), random(40), random(90, 40)
    exact = [tensor.double().requires_grad_() for tensor in (before, bias)]
    F.relu(exact[0] + exact[1]).backward(grad.double())
    bias_grad = torch.zeros(40, device=DEVICE)
    relu_gradient(grad, F.relu(before + bias), bias_grad)
    assert_close(grad, exact[0].grad)
    assert_close(bias_grad, exact[1].grad)


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_embeddings_with_positions_and_the_gradient_of_their_matrix(p: float) -> None:
    vocab_size, d, num_real = 11, 24, 30
    weight, table = random(vocab_size, d), random(9, d)
    ids = torch.randint(0, vocab_size - 1, (num_real + 3,), dtype=torch.int32, device=DEVICE)  # the last id does not occur
    positions = torch.randint(0, 9, (num_real + 3,), dtype=torch.int32, device=DEVICE)
    dropout = HashDropout(torch.tensor([8], dtype=torch.int32, device=DEVICE), 1, p)
    exact = weight.double().requires_grad_()
    expected = (exact[ids.long()] * 3.0 + table.double()[positions.long()]) * kept(dropout, len(ids), d).double()
    x = embed(ids, positions, weight, table, scale=3.0, dropout=dropout, dtype=torch.float32)
    assert_close(x, expected)
    grad = random(len(ids), d)
    (expected[:num_real] * grad[:num_real].double()).sum().backward()  # the remaining rows are padding
    order = ids[:num_real].argsort(stable=True).int()
    counts = torch.bincount(ids[:num_real].long(), minlength=vocab_size).cumsum(0)
    starts = torch.cat([counts.new_zeros(1), counts]).int()
    into = torch.ones_like(weight)
    add_embedding_gradient(grad, order, starts, into, scale=3.0, dropout=dropout)
    assert_close(into - 1.0, exact.grad)


@pytest.mark.parametrize("vocab_size", [17, 5000])  # one block, and two
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_become_the_gradient_of_the_smoothed_loss(vocab_size: int, smoothing: float) -> None:
    logits = 3 * random(6, vocab_size)
    targets = torch.tensor([4, 0, 1, 16, 0, 2], dtype=torch.int32, device=DEVICE)
    exact = logits.double().requires_grad_()
    losses = oracle.smoothed_loss(exact, targets, pad_id=0, smoothing=smoothing)
    (0.25 * losses.sum()).backward()
    total, nll = cross_entropy_(logits, targets, torch.tensor([0.25], device=DEVICE), pad_id=0, smoothing=smoothing)
    assert_close(total, losses)
    plain = oracle.smoothed_loss(exact, targets, pad_id=0, smoothing=0.0)
    assert_close(nll, plain)
    assert_close(logits, exact.grad)


@pytest.mark.parametrize("vocab_size", [17, 5000])  # one block, and three
@pytest.mark.parametrize(("smoothing", "r_drop"), [(0.0, 5.0), (0.1, 1.0), (0.1, 0.0)])
def test_logits_of_two_passes_become_the_gradient_of_r_drop(vocab_size: int, smoothing: float, r_drop: float) -> None:
    first = 3 * random(6, vocab_size)
    logits = torch.stack([first, first + random(6, vocab_size)])
    targets = torch.tensor([4, 0, 1, 16, 0, 2], dtype=torch.int32, device=DEVICE)
    exact = logits.double().requires_grad_()
    losses = oracle.r_drop_loss(exact, targets, pad_id=0, smoothing=smoothing, r_drop=r_drop)
    (0.25 * losses.sum()).backward()
    total, nll = paired_cross_entropy_(
        logits, targets, torch.tensor([0.25], device=DEVICE), pad_id=0, smoothing=smoothing, r_drop=r_drop
    )
    assert_close(total, losses)
    assert_close(nll, oracle.r_drop_loss(exact, targets, pad_id=0, smoothing=0.0, r_drop=0.0))
    assert_close(logits, exact.grad)
    assert (logits[:, targets == 0] == 0).all()


def test_extreme_logits_of_two_passes_stay_finite() -> None:
    logits = 1e4 * random(2, 3, 17)
    targets = torch.tensor([4, 1, 16], dtype=torch.int32, device=DEVICE)
    losses = oracle.r_drop_loss(logits.double(), targets, pad_id=0, smoothing=0.1, r_drop=2.0)
    total, _ = paired_cross_entropy_(logits, targets, torch.ones(1, device=DEVICE), pad_id=0, smoothing=0.1, r_drop=2.0)
    torch.testing.assert_close(total.double(), losses, rtol=1e-4, atol=0)
    assert logits.isfinite().all()


def test_adam_is_torchs() -> None:
    values, steps = random(3000), 4
    theirs = torch.nn.Parameter(values.clone())
    optimizer = torch.optim.Adam([theirs], lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    first, second = torch.zeros(2, 3000, device=DEVICE)
    copy = torch.empty(3000, device=DEVICE)
    for step in range(1, steps + 1):
        grads = random(3000)
        theirs.grad = grads * 0.5
        optimizer.step()
        control = torch.tensor([1e-2 / (1 - 0.9**step), 0.5, math.sqrt(1 - 0.98**step), 0.0], device=DEVICE)
        adam_(values, grads, first, second, copy, control, beta1=0.9, beta2=0.98, epsilon=1e-9)
        assert (grads == 0).all()
    torch.testing.assert_close(values, theirs.detach(), atol=1e-6, rtol=1e-6)
    assert torch.equal(copy, values)


def test_adam_can_be_told_to_change_nothing() -> None:
    values, grads = random(100), torch.full((100,), math.nan, device=DEVICE)
    before = values.clone()
    first, second = torch.ones(2, 100, device=DEVICE)
    control = torch.tensor([1.0, math.nan, 1.0, 1.0], device=DEVICE)
    adam_(values, grads, first, second, before.clone(), control, beta1=0.9, beta2=0.98, epsilon=1e-9)
    assert torch.equal(values, before) and (first == 1).all() and (second == 1).all() and (grads == 0).all()
