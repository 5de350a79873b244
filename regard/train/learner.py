"""Updates of a model, with the same result however they are split into batches and among processes."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.config import ModelConfig, TrainConfig
from regard.data.batch import AnyBatch
from regard.machine.processes import Processes
from regard.model.kinds import build
from regard.model.sequence import SequenceModel
from regard.run.checkpoint import on_cpu
from regard.train.loss import Loss, smoothed_cross_entropy
from regard.train.muon import MEAN, Muon
from regard.train.schedule import rate_of
from regard.train.totals import Totals

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's, of each parameter


class ModelWithLoss(nn.Module):
    """A model and its loss as one module, as `DistributedDataParallel` wants them."""

    def __init__(self, model: SequenceModel, config: TrainConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        # Compile only the model: the loss is computed in chunks, and is fast as it is.
        self._states = torch.compile(model.states, dynamic=True) if config.compile == "on" else model.states

    def forward(self, targets: Int[Tensor, "B T"], *inputs: Int[Tensor, "B _"]) -> Loss:
        """The loss of a batch, whose inputs depend on the kind of model. In bfloat16, the weights stay float32."""
        output_weight = self.model.output_weight
        r_drop = self.config.r_drop
        if r_drop:  # two passes as one of twice as many rows, each with dropout of its own
            inputs = tuple(torch.cat([ids, ids]) for ids in inputs)
        is_short = self.config.precision == "bfloat16"
        with torch.autocast(targets.device.type, dtype=torch.bfloat16) if is_short else nullcontext():
            states = self._states(*inputs)
        if is_short:
            states, output_weight = states.bfloat16(), output_weight.bfloat16()
        return smoothed_cross_entropy(
            states.unflatten(0, (2, -1)) if r_drop else states,
            output_weight,
            targets,
            pad_id=self.model.config.pad_id,
            smoothing=self.config.label_smoothing,
            r_drop=r_drop,
            output_bias=self.model.output_bias,
        )


class Learner:
    """A model, its optimizer and the number of updates so far."""

    def __init__(self, model_config: ModelConfig, config: TrainConfig, device: torch.device, processes: Processes) -> None:
        assert config.precision != "auto" and config.compile != "auto", "these are settled before a run begins"
        self.config = config
        self.device = device
        self.step = 0
        torch.manual_seed(config.seed)
        dtype = getattr(torch, config.precision)
        self.model = build(model_config).to(device, torch.float64 if dtype == torch.float64 else torch.float32)
        self._processes = processes
        self._with_loss: nn.Module = ModelWithLoss(self.model, config)
        if processes.count > 1:
            on_gpu = [device] if device.type == "cuda" else None
            self._with_loss = DistributedDataParallel(self._with_loss, device_ids=on_gpu, gradient_as_bucket_view=True)
        self._muon = Muon(self.model, dtype) if config.optimizer == "muon" else None
        means = self._muon.means if self._muon else {}
        self._left_to_adam = {name: one for name, one in self.model.named_parameters() if name not in means}
        betas, parameters = (config.adam_beta1, config.adam_beta2), self._left_to_adam.values()
        self._optimizer = torch.optim.Adam(parameters, lr=0.0, betas=betas, eps=config.adam_epsilon, fused=True)
        self._d_model = model_config.d_model

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last update, by the plan as it is now."""
        return rate_of(self.config, self._d_model, self.step)

    def update(self, batches: Sequence[tuple[int, AnyBatch]], totals: Totals) -> None:
        """Take one step on the mean loss over the tokens of all processes' batches. `batches` are those of this process,
        each with its number among all, so that the gradient does not depend on how they are shared."""
        self.model.train()
        counts = torch.tensor(sum(batch.num_tokens for _, batch in batches))
        self._processes.sum(counts)
        num_tokens = int(counts)
        self.model.zero_grad(set_to_none=True)
        for number, batch in batches:
            self._seed(number)
            with self._exchange(is_last=batch is batches[-1][1]):
                loss = self.loss(batch)
                # DistributedDataParallel averages the gradients of processes; this makes it their sum.
                (loss.total * (self._processes.count / num_tokens)).backward()
            totals.add_loss(loss)
        norm = self._clipped_norm()
        self.step += 1
        self._optimizer.param_groups[0]["lr"] = self.learning_rate
        # Skip the update if the gradient norm is not finite, without a host sync.
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
        """Seed dropout from the run's seed, the update and the batch, so that no generator's state needs to be saved."""
        words = np.random.SeedSequence([self.config.seed, self.step, number]).generate_state(2)
        torch.manual_seed(int(words[0]) << 31 ^ int(words[1]))

    def _exchange(self, *, is_last: bool) -> Any:
        """Exchange gradients only once per update, with the last of a process's batches."""
        if isinstance(self._with_loss, DistributedDataParallel) and not is_last:
            return self._with_loss.no_sync()
        return nullcontext()

    def _clipped_norm(self) -> Float[Tensor, ""]:
        """Clip the gradient, and return its norm before that."""
        parameters = list(self.model.parameters())
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.config.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        return norm

    def weights(self) -> dict[str, Tensor]:
        return on_cpu(self.model.state_dict())

    def optimizer_state(self) -> dict[str, Tensor]:
        """Moments of gradients by the names of parameters, and the number of updates; empty before the first."""
        state: dict[str, Tensor] = {}
        for name, parameter in self._left_to_adam.items():
            if not (of_parameter := self._optimizer.state.get(parameter)):
                return {}
            state |= {f"{moment}.{name}": of_parameter[moment] for moment in MOMENTS}
            state["step"] = of_parameter["step"]  # the same for all
        return on_cpu(state | self._means())

    def _means(self) -> dict[str, Tensor]:
        """Muon's means, by their names in a checkpoint."""
        return {f"{MEAN}.{name}": mean for name, mean in self._muon.means.items()} if self._muon else {}

    def restore(self, weights: dict[str, Tensor], optimizer: dict[str, Tensor], step: int) -> None:
        """Return to a saved state; an empty `optimizer` is that of a beginning."""
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
