"""Training a Transformer on one GPU by packed batches, our own kernels and CUDA graphs.

The forward and backward pass of a batch is captured once as a CUDA graph and replayed for every batch, because all have the
same number of rows; the update is another graph. The host copies one array for each batch. Without a GPU, the same passes
run kernel by kernel, for tests.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import ModelConfig, TrainConfig
from regard.fast.kernels.adam import adam_
from regard.fast.kernels.cross_entropy import cross_entropy_, paired_cross_entropy_
from regard.fast.training.layout import Ints, PackedBatch, PackLayout, empty_array
from regard.fast.training.parameters import FlatParameters
from regard.fast.training.transformer import PackedTransformer, add_product
from regard.model.kinds import build_encoder_decoder
from regard.model.transformer import Transformer
from regard.run.checkpoint import on_cpu
from regard.train.loss import Loss
from regard.train.muon import MEAN, maps_of, muon_
from regard.train.schedule import rate_of
from regard.train.totals import Totals

CHUNK = 2**28  # logits computed at a time: 512 MiB in bfloat16
STAGES = 4  # arrays that may be copied to the GPU at once


class FusedLearner:
    """Weights, optimizer and the number of updates so far, as in `Learner`."""

    def __init__(self, model_config: ModelConfig, config: TrainConfig, device: torch.device, layout: PackLayout) -> None:
        self.config = config
        self.device = device
        self.step = 0
        assert layout.copies == (2 if config.r_drop else 1)
        self.layout = layout
        torch.manual_seed(config.seed)
        model = build_encoder_decoder(model_config).to(device)
        assert isinstance(model, Transformer)
        self.model = model
        shapes = maps_of(self.model) if config.optimizer == "muon" else {}
        self._by_muon = sorted(shapes, key=lambda name: shapes[name])  # those of one shape next to each other
        self._flat = FlatParameters(self.model, getattr(torch, config.precision), last=self._by_muon)
        self._by_adam = [name for name in self._flat.names if name not in shapes]
        # A sentence may be as long as the layout.
        self._packed = PackedTransformer(self.model, self._flat, num_positions=max(layout.src, layout.tgt))
        self._array = empty_array(layout, device)
        self._packing = layout.parts(self._array)
        self._scale, self._rate = torch.zeros(2, 1, device=device)
        self._losses = torch.zeros(2, device=device)  # smoothed and plain, of one batch
        num_left = self._flat.span(self._by_muon).start if shapes else len(self._flat.values)
        self._first, self._second = torch.zeros(2, num_left, device=device)
        self._means = torch.zeros(len(self._flat.values) - num_left, device=device)
        self._maps = [
            (shape, self._flat.span([name for name in self._by_muon if shapes[name] == shape]))
            for shape in sorted(set(shapes.values()))
        ]
        self._count = torch.zeros((), dtype=torch.float64, device=device)  # updates that were not skipped
        self._norm, self._skipped = torch.zeros(2, device=device)
        self._num_tokens = torch.zeros((), dtype=torch.long, device=device)
        self._stages = _Stages(layout, device)
        self._accumulate: Callable[[], None] = self._pass
        self._apply: Callable[[], None] = self._update
        if device.type == "cuda":
            self._accumulate, self._apply = _captured(self._pass), _captured(self._update)
            for tensor in (self._first, self._second, self._means, self._count):  # changed by the run before the capture
                tensor.zero_()

    @property
    def learning_rate(self) -> float:
        """The rate of the last update."""
        return rate_of(self.config, self.model.config.d_model, self.step)

    def update(self, batches: Sequence[tuple[int, PackedBatch]], totals: Totals) -> None:
        """Make one update on the mean loss over the tokens of all batches, each of which has a number."""
        num_tokens = sum(batch.num_tokens for _, batch in batches)
        self._scale.fill_(1.0 / num_tokens)
        self._num_tokens.fill_(num_tokens)
        for number, batch in batches:
            seeds = np.random.SeedSequence([self.config.seed, self.step, number]).generate_state(len(batch.arrays))
            for array, seed in zip(batch.arrays, seeds, strict=True):
                self.layout.set_seed(array, int(seed))
                self._stages.send(array, self._array)
                self._accumulate()
                totals.add_loss(Loss(self._losses[0], self._losses[1], self._num_tokens))
        self.step += 1
        self._rate.fill_(self.learning_rate)
        self._apply()
        totals.add_update(self._norm, self._skipped, num_tokens)

    @torch.no_grad()
    def _pass(self) -> None:
        """Run forward and backward pass. Gradients are added to those of the update's other batches."""
        states, tape = self._packed.forward(self._packing)
        self._losses.zero_()
        self._packed.backward(self._learn_output(states), tape)

    def _learn_output(self, states: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Add the loss and the gradient of the output's matrix, and return the gradient of the states. With R-Drop, a chunk
        has rows of one copy, then the same rows of the other."""
        weight = self.model.output_weight
        matrix, matrix_grad = self._flat.copy_of(weight), self._flat.grad_of(weight)
        config, pad_id, copies = self.config, self.layout.pad_id, self.layout.copies
        by_copy = states.unflatten(0, (copies, -1))  # (C, T, D)
        d_by_copy = torch.empty_like(by_copy)
        chunk = max(1, CHUNK // (copies * len(matrix)))
        for rows in (slice(start, start + chunk) for start in range(0, self.layout.tgt, chunk)):
            x = by_copy[:, rows].flatten(0, 1)
            logits = x @ matrix.t()
            targets, smoothing = self._packing.targets[rows], config.label_smoothing
            if copies == 1:
                losses = cross_entropy_(logits, targets, self._scale, pad_id=pad_id, smoothing=smoothing)
                torch.mm(logits, matrix, out=d_by_copy[0, rows])
            else:
                pairs = logits.unflatten(0, (copies, -1))
                losses = paired_cross_entropy_(
                    pairs, targets, self._scale, pad_id=pad_id, smoothing=smoothing, r_drop=config.r_drop
                )
                d_by_copy[:, rows] = (logits @ matrix).unflatten(0, (copies, -1))
            self._losses += torch.stack([part.sum() for part in losses])
            add_product(matrix_grad, logits.t(), x)
        return d_by_copy.flatten(0, 1)

    @torch.no_grad()
    def _update(self) -> None:
        """Update the weights. Skip the update if the gradient norm is not finite, without a host sync."""
        config = self.config
        self._norm.copy_(torch.linalg.vector_norm(self._flat.grads))
        self._skipped.copy_(~self._norm.isfinite())
        self._count += 1.0 - self._skipped
        clipped = torch.ones_like(self._norm)
        if config.clip_norm:
            clipped = (config.clip_norm / (self._norm + 1e-6)).clamp(max=1.0)
        control = torch.stack(
            [
                (self._rate[0] / (1.0 - config.adam_beta1**self._count)).float(),
                clipped,
                (1.0 - config.adam_beta2**self._count).sqrt().float(),
                self._skipped,
            ]
        )
        flat, num_left = self._flat, len(self._first)
        adam_(
            flat.values[:num_left],
            flat.grads[:num_left],
            self._first,
            self._second,
            flat.copy[:num_left],
            control,
            beta1=config.adam_beta1,
            beta2=config.adam_beta2,
            epsilon=config.adam_epsilon,
        )
        for shape, span in self._maps:
            values, grads = (part[span].view(-1, *shape) for part in (flat.values, flat.grads))
            means = self._means[span.start - num_left : span.stop - num_left].view(-1, *shape)
            grads.mul_(clipped)
            muon_(values, grads, means, rate=self._rate[0], skipped=self._skipped, dtype=flat.copy.dtype)
        flat.copy[num_left:].copy_(flat.values[num_left:])
        flat.grads[num_left:].zero_()

    def weights(self) -> dict[str, Tensor]:
        return on_cpu(self.model.state_dict())

    def optimizer_state(self) -> dict[str, Tensor]:
        """Return the state in `Learner`'s format, so that either learner continues what the other began."""
        return on_cpu({"step": self._count.float()} | self._moments()) if self.step else {}

    def _moments(self) -> dict[str, Tensor]:
        """Return Adam's moments and Muon's means by their names in a checkpoint."""
        kinds = {"exp_avg": (self._first, self._by_adam), "exp_avg_sq": (self._second, self._by_adam)}
        kinds |= {MEAN: (self._means, self._by_muon)} if self._by_muon else {}
        return {
            f"{kind}.{name}": tensor
            for kind, (flat, names) in kinds.items()
            for name, tensor in self._flat.by_name(flat, names).items()
        }

    @torch.no_grad()
    def restore(self, weights: dict[str, Tensor], optimizer: dict[str, Tensor], step: int) -> None:
        """Restore a saved state. An empty `optimizer` stands for the state before the first update."""
        self.model.load_state_dict(weights)
        self._flat.refresh()
        self._flat.grads.zero_()
        self._count.copy_(optimizer["step"] if optimizer else torch.zeros(()))
        for name, tensor in self._moments().items():
            tensor.copy_(optimizer[name] if optimizer else torch.zeros(()))
        self.step = step


class _Stages:
    """Buffers of pinned memory, used in turn, so that copies to the GPU are asynchronous."""

    def __init__(self, layout: PackLayout, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._arrays = [torch.zeros(layout.size, dtype=torch.int32, pin_memory=on_gpu) for _ in range(STAGES)]
        self._events = [torch.cuda.Event() for _ in range(STAGES)] if on_gpu else []
        self._turn = 0

    def send(self, array: Ints, to: Tensor) -> None:
        turn = self._turn = (self._turn + 1) % STAGES
        if self._events:
            self._events[turn].synchronize()
        self._arrays[turn].copy_(torch.from_numpy(array))
        to.copy_(self._arrays[turn], non_blocking=True)
        if self._events:
            self._events[turn].record()


def _captured(work: Callable[[], None]) -> Callable[[], None]:
    """Return a function that replays the work as a CUDA graph. The work runs once, to be compiled, and is then captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
