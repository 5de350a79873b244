"""`torch.compile` takes the whole model as one graph.

In processes of their own: the shape-checking hook of this one would be compiled, too.
"""

import os
import shutil
import subprocess
import sys

import pytest

PREAMBLE = """
import torch
from tests.conftest import make_model
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
def ids(*shape): return torch.randint(1, 23, shape).to(device)
model = make_model(torch.float32, norm=NORM).to(device)
src, tgt_in = ids(3, 6), ids(3, 5)
src[1, 3:] = 0
def close(a, b): torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
"""

FORWARD_AND_GRADIENTS = """
compiled = torch.compile(model, fullgraph=True, dynamic=DYNAMIC, backend=BACKEND)
close(compiled(src, tgt_in), model(src, tgt_in))
compiled(src, tgt_in).square().mean().backward()
ours = {name: p.grad.clone() for name, p in model.named_parameters()}
model.zero_grad()
model(src, tgt_in).square().mean().backward()
for name, p in model.named_parameters():
    close(ours[name], p.grad)
close(compiled(src[:, :4], tgt_in[:, :2]), model(src[:, :4], tgt_in[:, :2]))
"""

LONGER_THAN_THE_TABLE = """
long = ids(1, 600)
compiled = torch.compile(model, fullgraph=True, backend=BACKEND)
once = compiled(long, tgt_in[:1])
close(once, model(long, tgt_in[:1]))
close(compiled(long, tgt_in[:1]), once)
"""

TRAINING_STEP = """
from regard.train.loss import smoothed_cross_entropy
from tests.conftest import make_model
model = make_model(torch.float32, norm=NORM, dropout=0.1, embedding_dropout=0.1).to(device).train()
def states(src, tgt_in):
    return model.decode(tgt_in, model.encode(src), model.padding_mask(src))
compiled = torch.compile(states, fullgraph=True, dynamic=True, backend=BACKEND)
with torch._dynamo.config.patch(recompile_limit=4):
    for length in (3, 4, 5, 6, 5, 4):
        for p in model.parameters():
            p.grad = None
        targets = tgt_in[:, :length]
        output = compiled(src[:, :length], targets)
        value = smoothed_cross_entropy(output, model.output_weight, targets, pad_id=0, smoothing=0.1)
        value.total.backward()
        assert value.total.isfinite()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
"""

STEPS = """
cache, again = (model.start(src, width=2) for _ in range(2))
step = torch.compile(model.step, fullgraph=True, dynamic=True, backend=BACKEND)
for t in range(5):
    tokens = ids(6)
    close(step(tokens, cache), model.step(tokens, again))
"""

LANGUAGE = """
from regard.model.language import LanguageModel
from tests.conftest import tiny_config
model = LanguageModel(tiny_config(kind="language", key_value_heads=2)).to(device).eval()
states = torch.compile(model.states, fullgraph=True, dynamic=True, backend=BACKEND)
for length in (3, 6, 5):
    close(states(tgt_in[:, :length]), model.states(tgt_in[:, :length]))
    model.zero_grad()
    states(src[:, :length]).square().mean().backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.states(src[:, :length]).square().mean().backward()
    for name, p in model.named_parameters():
        close(ours[name], p.grad)
cache, again = (model.start(src[:, :2]) for _ in range(2))
step = torch.compile(model.step, fullgraph=True, dynamic=True, backend=BACKEND)
for t in range(5):
    tokens = ids(3)
    close(step(tokens, cache), model.step(tokens, again))
"""


def run(code: str, *, norm: str, backend: str, dynamic: bool = False) -> None:
    settings = f"NORM, BACKEND, DYNAMIC = {norm!r}, {backend!r}, {dynamic!r}\n"
    result = subprocess.run(
        [sys.executable, "-c", settings + PREAMBLE + code], capture_output=True, text=True, timeout=1800, check=False
    )
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize(
    ("code", "norm"),
    [
        pytest.param(FORWARD_AND_GRADIENTS, "post", marks=pytest.mark.slow),
        pytest.param(FORWARD_AND_GRADIENTS, "pre", marks=pytest.mark.slow),
        pytest.param(LONGER_THAN_THE_TABLE, "pre", marks=pytest.mark.slow),
        (TRAINING_STEP, "pre"),
        (STEPS, "post"),
        pytest.param(LANGUAGE, "pre", marks=pytest.mark.slow),
    ],
    ids=["post", "pre", "longer than the table", "training step", "incremental steps", "language"],
)
def test_one_graph_without_breaks(code: str, norm: str) -> None:
    """`aot_eager` captures and differentiates as the real compiler does, and skips only the code generation."""
    run(code, norm=norm, backend="aot_eager", dynamic=True)


@pytest.mark.slow
@pytest.mark.parametrize("code", [FORWARD_AND_GRADIENTS, TRAINING_STEP, STEPS], ids=["forward", "training", "steps"])
def test_compiled_code_computes_the_same(code: str) -> None:
    if shutil.which("g++") is None and "CI" not in os.environ:
        pytest.skip("torch.compile on a CPU needs g++")
    run(code, norm="post", backend="inductor")
