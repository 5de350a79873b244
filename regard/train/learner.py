"""A model that learns: one update at a time, exactly the same however it is cut into batches and processes."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.checkpoint import on_cpu
from regard.config import ModelConfig, TrainConfig
from regard.data.batch import AnyBatch
from regard.model.kinds import Model, build
from regard.train.distributed import Processes
from regard.train.loss import Loss, paired_cross_entropy, smoothed_cross_entropy
from regard.train.metrics import Totals
from regard.train.muon import MEAN, Muon
from regard.train.schedule import rate_of

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's, of each parameter


class ModelWithLoss(nn.Module):
    """The model and its loss as one module, whose forward pass is all of a training step: what processes share."""

    def __init__(self, model: Model, *, smoothing: float, dtype: torch.dtype, compiled: bool, r_drop: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.r_drop = r_drop
        self.dtype = dtype
        # Only the model: the loss goes through the vocabulary in chunks, and is fast as it is.
        self._states = torch.compile(self.model.states, dynamic=True) if compiled else self.model.states

    def forward(self, targets: Int[Tensor, "B T"], *inputs: Int[Tensor, "B _"]) -> Loss:
        """Each kind of model has inputs of its own: those of its batches."""
        output_weight = self.model.output_weight
        if self.r_drop:  # both passes as one of twice as many rows, each of which is dropped out for itself
            inputs = tuple(torch.cat([ids, ids]) for ids in inputs)
        with self._arithmetic(targets.device):
            states = self._states(*inputs)
        if self.dtype == torch.bfloat16:
            states, output_weight = states.to(self.dtype), output_weight.to(self.dtype)
        pad_id, output_bias = self.model.config.pad_id, self.model.output_bias
        if self.r_drop:
            return paired_cross_entropy(
                states.unflatten(0, (2, -1)),
                output_weight,
                targets,
                pad_id=pad_id,
                smoothing=self.smoothing,
                r_drop=self.r_drop,
                output_bias=output_bias,
            )
        return smoothed_cross_entropy(
            states, output_weight, targets, pad_id=pad_id, smoothing=self.smoothing, output_bias=output_bias
        )

    def _arithmetic(self, device: torch.device) -> AbstractContextManager[object]:
        """bfloat16 for the arithmetic, while the weights stay float32."""
        if self.dtype == torch.bfloat16:
            return torch.autocast(device.type, dtype=torch.bfloat16)
        return nullcontext()


class Learner:
    """Weights, optimizer and the number of updates so far: what a checkpoint holds of the model."""

    def __init__(self, model_config: ModelConfig, config: TrainConfig, device: torch.device, processes: Processes) -> None:
        assert config.precision != "auto" and config.compile != "auto", "settled before a run begins"
        self.config = config
        self.device = device
        self.step = 0
        torch.manual_seed(config.seed)
        dtype = getattr(torch, config.precision)
        self.model = build(model_config).to(device, torch.float64 if dtype == torch.float64 else torch.float32)
        self._processes = processes
        self._with_loss: nn.Module = ModelWithLoss(
            self.model,
            smoothing=config.label_smoothing,
            dtype=dtype,
            compiled=config.compile == "on",
            r_drop=config.r_drop,
        )
        if processes.count > 1:
            on_gpu = [device] if device.type == "cuda" else None
            self._with_loss = DistributedDataParallel(self._with_loss, device_ids=on_gpu, gradient_as_bucket_view=True)
        self._muon = Muon(self.model, dtype) if config.optimizer == "muon" else None
        means = self._muon.means if self._muon else {}
        self._left_to_adam = {name: one for name, one in self.model.named_parameters() if name not in means}
        self._optimizer = torch.optim.Adam(
            self._left_to_adam.values(),
            lr=0.0,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=True,
        )
        self._d_model = model_config.d_model

    @property
    def learning_rate(self) -> float:
        """Of the last update."""
        return rate_of(self.config, self._d_model, self.step)  # as it is now: a run by the clock may have been planned anew

    def update(self, batches: Sequence[tuple[int, AnyBatch]], totals: Totals) -> None:
        """One step on the mean loss over the tokens of all processes' batches. `batches` are this process's, each
        with its number among all: the gradient depends neither on how many there are nor on who computes which."""
        self.model.train()
        counts = torch.tensor(sum(batch.num_tokens for _, batch in batches))
        self._processes.sum(counts)
        num_tokens = int(counts)
        self.model.zero_grad(set_to_none=True)
        for number, batch in batches:
            self._seed(number)
            with self._alone(is_last=batch is batches[-1][1]):
                loss = self.loss(batch)
                # Processes' gradients are averaged, and shall be summed.
                (loss.total * (self._processes.count / num_tokens)).backward()
            totals.add_loss(loss)
        norm = self._clipped_norm()
        self.step += 1
        self._optimizer.param_groups[0]["lr"] = self.learning_rate
        # What is not finite changes nothing, neither weights nor moments; the device decides, and nobody waits for it.
        skipped = (~norm.isfinite()).to(torch.float32)
        self._optimizer.found_inf = skipped  # type: ignore[attr-defined]
        self._optimizer.step()
        if self._muon is not None:
            self._muon.step(self.learning_rate, skipped)
        totals.add_update(norm, skipped, num_tokens)

    def loss(self, batch: AnyBatch) -> Loss:
        ids = (part.to(self.device, non_blocking=True) for part in (batch.targets, *batch.inputs))
        loss: Loss = self._with_loss(*ids)
        return loss

    def _seed(self, number: int) -> None:
        """Dropout is a function of seed, update and batch: nothing of a generator's past needs to be remembered."""
        words = np.random.SeedSequence([self.config.seed, self.step, number]).generate_state(2)
        torch.manual_seed(int(words[0]) << 31 ^ int(words[1]))

    def _alone(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Gradients are exchanged once in an update, with the last of a process's batches."""
        if isinstance(self._with_loss, DistributedDataParallel) and not is_last:
            no_sync: AbstractContextManager[object] = self._with_loss.no_sync()
            return no_sync
        return nullcontext()

    def _clipped_norm(self) -> Float[Tensor, ""]:
        """The gradient's length before clipping."""
        parameters = list(self.model.parameters())
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.config.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        return norm

    def weights(self) -> dict[str, Tensor]:
        return on_cpu(self.model.state_dict())

    def optimizer_state(self) -> dict[str, Tensor]:
        """Means of gradients by the names of parameters, and how many updates they have seen; nothing before the first."""
        state: dict[str, Tensor] = {}
        for name, parameter in self._left_to_adam.items():
            if not (of_parameter := self._optimizer.state.get(parameter)):
                return {}
            state |= {f"{moment}.{name}": of_parameter[moment] for moment in MOMENTS}
            state["step"] = of_parameter["step"]  # the same for all
        return on_cpu(state | self._means())

    def _means(self) -> dict[str, Tensor]:
        """Muon's, by the names that a checkpoint has for them."""
        return {f"{MEAN}.{name}": mean for name, mean in self._muon.means.items()} if self._muon else {}

    def restore(self, weights: dict[str, Tensor], optimizer: dict[str, Tensor], step: int) -> None:
        """Back to what was saved; an empty `optimizer` is one that has seen nothing."""
        self.model.load_state_dict(weights)
        self.model.zero_grad(set_to_none=True)
        self._optimizer.state.clear()
        if optimizer:
            for name, parameter in self._left_to_adam.items():
                self._optimizer.state[parameter] = {
                    "step": optimizer["step"].to(parameter.device, copy=True),
                    **{moment: optimizer[f"{moment}.{name}"].to(parameter.device, copy=True) for moment in MOMENTS},
                }
        for name, mean in self._means().items():
            mean.copy_(optimizer[name] if optimizer else torch.zeros(()))
        self.step = step
