"""Training a Transformer on one GPU as fast as it goes: packed batches, our own kernels, and no launching.

A batch's forward and backward pass is recorded once as a CUDA graph and repeated for every batch, since all of them have the
same number of rows; the update is another graph. The host only copies one array a batch. Without a GPU the same passes run
one kernel after the other, which is how they are tested.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.checkpoint import on_cpu
from regard.config import ModelConfig, TrainConfig
from regard.data.batch import PackedBatch
from regard.kernels.adam import adam_
from regard.kernels.cross_entropy import cross_entropy_, paired_cross_entropy_
from regard.model.packed import PackedTransformer, add_product
from regard.model.packing import Ints, Room, empty_array
from regard.model.parameters import FlatParameters
from regard.model.transformer import Transformer
from regard.train.loss import Loss
from regard.train.metrics import Totals
from regard.train.muon import MEAN, maps_of, muon_
from regard.train.schedule import rate_of

CHUNK = 2**28  # logits made at a time: 512 MiB in bfloat16
STAGES = 4  # arrays that may be on their way to the GPU at once


class FusedLearner:
    """What `Learner` is, by other means: weights, optimizer and the number of updates so far."""

    def __init__(self, model_config: ModelConfig, config: TrainConfig, device: torch.device, room: Room) -> None:
        self.config = config
        self.device = device
        self.step = 0
        assert room.copies == (2 if config.r_drop else 1)
        self.room = room
        torch.manual_seed(config.seed)
        self.model = Transformer(model_config).to(device)
        shapes = maps_of(self.model) if config.optimizer == "muon" else {}
        self._by_muon = sorted(shapes, key=lambda name: shapes[name])  # those of one shape behind each other
        self._flat = FlatParameters(self.model, getattr(torch, config.precision), last=self._by_muon)
        self._by_adam = [name for name in self._flat.names if name not in shapes]
        # A sentence may be as long as there is room.
        self._packed = PackedTransformer(self.model, self._flat, num_positions=max(room.src, room.tgt))
        self._array = empty_array(room, device)
        self._packing = room.parts(self._array)
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
        self._stages = _Stages(room, device)
        self._accumulate: Callable[[], None] = self._pass
        self._apply: Callable[[], None] = self._update
        if device.type == "cuda":
            self._accumulate, self._apply = _recorded(self._pass), _recorded(self._update)
            for tensor in (self._first, self._second, self._means, self._count):  # which recording has touched
                tensor.zero_()

    @property
    def learning_rate(self) -> float:
        """Of the last update."""
        return rate_of(self.config, self.model.config.d_model, self.step)

    def update(self, batches: Sequence[tuple[int, PackedBatch]], totals: Totals) -> None:
        """One step on the mean loss over the tokens of all batches, each of which has a number."""
        num_tokens = sum(batch.num_tokens for _, batch in batches)
        self._scale.fill_(1.0 / num_tokens)
        self._num_tokens.fill_(num_tokens)
        for number, batch in batches:
            seeds = np.random.SeedSequence([self.config.seed, self.step, number]).generate_state(len(batch.arrays))
            for array, seed in zip(batch.arrays, seeds, strict=True):
                self.room.set_seed(array, int(seed))
                self._stages.send(array, self._array)
                self._accumulate()
                totals.add_loss(Loss(self._losses[0], self._losses[1], self._num_tokens))
        self.step += 1
        self._rate.fill_(self.learning_rate)
        self._apply()
        totals.add_update(self._norm, self._skipped, num_tokens)

    @torch.no_grad()
    def _pass(self) -> None:
        """Forward and backward, once. Gradients are added to those of the update's other batches."""
        states, tape = self._packed.forward(self._packing)
        self._losses.zero_()
        d_states = self._learn_to_agree(states) if self.config.r_drop else self._learn_output(states)
        self._packed.backward(d_states, tape)

    def _learn_output(self, states: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """The loss, the gradient of the output's matrix, which is added, and that of the states."""
        weight = self.model.output_weight
        matrix, matrix_grad = self._flat.copy_of(weight), self._flat.grad_of(weight)
        d_states = torch.empty_like(states)
        chunk = max(1, CHUNK // len(matrix))
        for rows in (slice(start, start + chunk) for start in range(0, len(states), chunk)):
            logits = states[rows] @ matrix.t()
            losses = cross_entropy_(
                logits,
                self._packing.targets[rows],
                self._scale,
                pad_id=self.room.pad_id,
                smoothing=self.config.label_smoothing,
            )
            self._losses += torch.stack([part.sum() for part in losses])
            torch.mm(logits, matrix, out=d_states[rows])
            add_product(matrix_grad, logits.t(), states[rows])
        return d_states

    def _learn_to_agree(self, states: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """The same of both copies, by R-Drop: a chunk has the rows of one and then those of the other."""
        weight = self.model.output_weight
        matrix, matrix_grad = self._flat.copy_of(weight), self._flat.grad_of(weight)
        pairs = states.unflatten(0, (2, -1))  # (2, T, D)
        d_pairs = torch.empty_like(pairs)
        chunk = max(1, CHUNK // (2 * len(matrix)))
        for rows in (slice(start, start + chunk) for start in range(0, self.room.tgt, chunk)):
            x = pairs[:, rows].flatten(0, 1)
            logits = x @ matrix.t()
            losses = paired_cross_entropy_(
                logits.unflatten(0, (2, -1)),
                self._packing.targets[rows],
                self._scale,
                pad_id=self.room.pad_id,
                smoothing=self.config.label_smoothing,
                r_drop=self.config.r_drop,
            )
            self._losses += torch.stack([part.sum() for part in losses])
            d_pairs[:, rows] = (logits @ matrix).unflatten(0, (2, -1))
            add_product(matrix_grad, logits.t(), x)
        return d_pairs.flatten(0, 1)

    @torch.no_grad()
    def _update(self) -> None:
        """What is not finite changes nothing, neither weights nor means; the device decides, and nobody waits for it."""
        config = self.config
        self._norm.copy_(torch.linalg.vector_norm(self._flat.grads))
        self._skipped.copy_(~self._norm.isfinite())
        self._count += 1.0 - self._skipped
        clipped = (
            (config.clip_norm / (self._norm + 1e-6)).clamp(max=1.0) if config.clip_norm else torch.ones_like(self._norm)
        )
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
        """As `Learner` has it: either continues what the other began."""
        if not self.step:
            return {}
        state = {"step": self._count.float()}
        return on_cpu(state | self._moments())

    def _moments(self) -> dict[str, Tensor]:
        """And Muon's means, by the names that a checkpoint has for them."""
        kinds = {"exp_avg": (self._first, self._by_adam), "exp_avg_sq": (self._second, self._by_adam)}
        kinds |= {MEAN: (self._means, self._by_muon)} if self._by_muon else {}
        return {
            f"{kind}.{name}": tensor
            for kind, (flat, names) in kinds.items()
            for name, tensor in self._flat.by_name(flat, names).items()
        }

    @torch.no_grad()
    def restore(self, weights: dict[str, Tensor], optimizer: dict[str, Tensor], step: int) -> None:
        """Back to what was saved; an empty `optimizer` is one that has seen nothing."""
        self.model.load_state_dict(weights)
        self._flat.refresh()
        self._flat.grads.zero_()
        self._count.copy_(optimizer["step"] if optimizer else torch.zeros(()))
        for name, tensor in self._moments().items():
            tensor.copy_(optimizer[name] if optimizer else torch.zeros(()))
        self.step = step


class _Stages:
    """Pinned memory in turn, from which copies to the GPU need not be waited for."""

    def __init__(self, room: Room, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._arrays = [torch.zeros(room.size, dtype=torch.int32, pin_memory=on_gpu) for _ in range(STAGES)]
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


def _recorded(work: Callable[[], None]) -> Callable[[], None]:
    """The same as a CUDA graph. It is done twice on the way: compiled and tuned first, then recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
