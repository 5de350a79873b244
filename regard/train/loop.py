"""Training: updates, and between them metrics, validation and checkpoints, until the last step, Ctrl-C or a full disk.

Everything an update depends on is either in the checkpoint (weights, moments, the place in the data, sums of metrics)
or a pure function of the configuration and the step (order, segmentation, dropout). So a run that is killed and continued
is, on one machine, bit for bit the run that was not.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import FrameType
from typing import Any

import torch

import regard
from regard.checkpoint import Checkpoint, Run, Weights
from regard.config import RunConfig
from regard.data.batch import padded
from regard.data.loader import Loader, begun
from regard.data.stream import BatchStream, Place
from regard.data.windows import TextStream
from regard.text.tokenizer import Tokenizer
from regard.train.batches import BatchMaker, num_workers
from regard.train.device import advice_on_memory, synchronize
from regard.train.distributed import Processes
from regard.train.health import attention_health, complaints
from regard.train.keeping import Writer, publish_average, publish_weights, steps_to_average
from regard.train.learner import Learner
from regard.train.metrics import Totals, append_line, cut_back, line_of, size_on_disk
from regard.train.page import write_page
from regard.train.plan import learner_for, open_training_text, room_for, steps_by_the_clock, with_steps
from regard.train.progress import Display, memory_bytes
from regard.train.tensorboard import EventFiles
from regard.train.validation import Validation, ValidationText, open_validation

MOST_LOST = 10  # updates in a row that may have no finite gradient


class StopRequest:
    """SIGINT and SIGTERM, remembered until an update is done. A second one waits for nothing but a checkpoint that is being
    written."""

    def __init__(self) -> None:
        self.signum = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {signum: signal.signal(signum, self._remember) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _remember(self, signum: int, _frame: FrameType | None) -> None:
        if self.signum:
            raise SystemExit(128 + signum)
        self.signum = signum
        sys.stderr.write("\nstopping when this step is done and saved; once more stops at once\n")


@dataclass(frozen=True)
class Best:
    """The checkpoint that validated best, and how many validations ago that was."""

    step: int
    validation: Validation
    age: int = 0


class Training:
    """A run under way. Every process has one; the main one also writes and talks."""

    def __init__(self, run: Run, config: RunConfig, device: torch.device, processes: Processes) -> None:
        torch.set_num_threads(config.train.threads)
        self.run = run
        self.config = config
        self.device = device
        self.processes = processes
        folder = run.data_folder(config)
        tokenizer = Tokenizer.load(run.folder)
        if not tokenizer.is_in(folder):
            raise ValueError(f"{folder} is not the text this run was begun with: its subwords are others")
        self.stream = open_training_text(folder, config.model, config.train, tokenizer)
        self.valid = open_validation(config, folder, tokenizer, batch_tokens=max(2048, self.stream.batch_tokens))
        room = room_for(config.model, config.train, device, processes, self.stream)
        self._make = BatchMaker(self.stream, config.train.accumulation, processes, room)
        opened = partial(BatchMaker.opened, run.folder, folder, config, processes, room)
        workers = begun(opened, num_workers(config.train, device, processes))  # they open theirs while the learner is made
        self._loader, self._num_lost = Loader(self._make, workers), 0
        # On a CPU, which has no workers but in tests, whoever makes batches ahead takes time from who learns.
        self._is_ahead = device.type == "cuda" or bool(workers)
        with self.advice_on_memory():
            self.learner = learner_for(config.model, config.train, device, processes, room)
        self._writer = Writer(beside=device.type == "cuda")  # a CPU's weights change in place, and its cores are busy
        self.totals = Totals(device)
        self.place = Place(0, 0)
        self.best: Best | None = None
        self._began = self._interval_began = time.perf_counter()
        self._seconds_before = self._validation_seconds = 0.0
        self._lost_in_a_row = 0
        self._require_positions()

    def _require_positions(self) -> None:
        """Learned positions end; to find that out when validating would be late."""
        model = self.config.model
        if model.kind != "transformer" or model.positions != "learned":
            return
        assert isinstance(self.stream, BatchStream) and isinstance(self.valid, ValidationText)
        for name, store in (("training", self.stream.store), ("validation", self.valid.store)):
            longest = int(max(store.src.lengths.max(), store.tgt.lengths.max())) + 1
            if longest > model.max_positions:
                raise ValueError(
                    f"the longest {name} text has {longest} tokens, but there are {model.max_positions} learned positions; "
                    "set model.max_positions, or data.cleaning.max_tokens"
                )

    def close(self) -> None:
        """Ends those who make batches."""
        self._loader.close()

    def continue_from(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        self.learner.restore(checkpoint.weights, checkpoint.optimizer, state["step"])
        self.place = Place(*state["place"])
        self._seconds_before = state.get("seconds", 0.0)
        self.totals.restore(state["totals"])
        if self.processes.is_main:
            cut_back(self.run.metrics_path, state["metrics_bytes"], is_needed=True)
            cut_back(self.run.timing_path, state["timing_bytes"], is_needed=False)
        else:
            self.totals.sums[:2] = 0.0  # the main process has those of all
        if (best := state["best"]) is not None:
            self.best = Best(best["step"], Validation(**best["validation"]), best["age"])

    def complaint_about(self, checkpoint: Checkpoint) -> str | None:
        """Why it cannot be continued bit for bit. Other text is an error: the checkpoint's place would be another."""
        if checkpoint.state["data"] != self.stream.sizes():
            raise ValueError(f"{self.run.data_folder(self.config)} is not the text this run was begun with")
        saved_by = checkpoint.state["torch"]
        if saved_by == torch.__version__:
            return None
        return f"this run was saved by torch {saved_by} and goes on with {torch.__version__}: not bit for bit the same"

    def try_largest_batches(self) -> None:
        """So that too little memory is found out now. To our own kernels all batches are alike, and they have tried one; but
        what they use stays theirs, so that validation needs memory of its own."""
        if not isinstance(self.learner, Learner):
            with self.advice_on_memory():
                self.valid.rehearse(self.learner.model.eval())
            return
        with self.advice_on_memory():
            (following, *_), _ = self.stream.following(self.place, 1)
            for place in self.stream.largest(following.epoch):
                self.learner.loss(padded(self.stream.batch(place))).total.backward()
            synchronize(self.device)
        self.learner.model.zero_grad(set_to_none=True)

    def advice_on_memory(self) -> AbstractContextManager[None]:
        train, context = self.config.train, self.config.model.context
        if isinstance(self.stream, TextStream) and self.stream.batch_tokens < 2 * context:
            return advice_on_memory(f"try --set model.context={context // 2}: a batch is one window already")
        return advice_on_memory(
            f"try --batch-tokens {train.batch_tokens // 2}, or --set train.accumulation={2 * train.accumulation}, which "
            "cuts an update into smaller batches and learns the same"
        )

    def steps_within(self, minutes: float) -> tuple[int, int]:
        """How many updates that time has room for, and how often to validate on the way, which shall take no more than a
        sixth of it. Measured, and then everything put back."""
        weights = {name: tensor.clone() for name, tensor in self.learner.weights().items()}
        seconds: list[float] = []
        place, enough = Place(0, 0), max(2.0, min(10.0, 1.5 * minutes))
        # Asked of the main process: clocks differ, and all must do as many.
        while self.processes.from_main(len(seconds) < 4 or (len(seconds) < 50 and sum(seconds[1:]) < enough)):
            began = time.perf_counter()
            place = self._update(place)
            synchronize(self.device)
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        if self.processes.is_main:
            self.valid.rehearse(self.learner.model.eval())
        validation = time.perf_counter() - began
        self._loader.pause()
        self.learner.restore(weights, {}, 0)
        self.totals.clear()
        times = min(10, max(1, int(10 * minutes / validation) - 1))  # and once more in the end, of the average
        budget = max(60 * minutes - (times + 1) * validation, 30 * minutes)
        per_update = sum(seconds[2:]) / len(seconds[2:])  # the first ones also warm up
        steps = self.processes.from_main(max(1, round(budget / per_update)))
        return steps, self.processes.from_main(-(-steps // times))

    def _update(self, place: Place) -> Place:
        batches = self._loader.take(place) if self._is_ahead else self._make(place)
        self.learner.update(batches, self.totals)
        return self._make.after(place)

    def go(self, display: Display, stop: StopRequest, events: EventFiles) -> None:
        """Until the last step, or until it stops early."""
        self._began = self._interval_began = time.perf_counter()
        try:
            self._go(display, stop, events)
        finally:
            self._writer.wait()

    def _go(self, display: Display, stop: StopRequest, events: EventFiles) -> None:
        while self.learner.step < self.config.train.steps and not self._has_lost_patience():
            train = self.config.train
            self.place = self._update(self.place)
            self._writer.raise_error()  # now, not when the next checkpoint is due
            step = self.learner.step
            display.step(step)
            is_last = step == train.steps
            if step % train.log_every == 0 or is_last:
                self._log(display, events)
            pause_began = time.perf_counter()
            if step % train.valid_every == 0 or is_last:
                display.doing("validating")
                self._validate(display, events)
                self._validation_seconds = self._note("validation_seconds", pause_began)
            is_scheduled = self._is_saved_at(step)
            if is_scheduled:
                save_began = time.perf_counter()
                self._begin_to_save(scheduled=True)
                self._publish()
                self._note("saving_seconds", save_began)
                self._plan_anew(display)
            self._interval_began += time.perf_counter() - pause_began
            if signum := self.processes.largest(stop.signum):
                if not is_scheduled:
                    self.save(scheduled=False)
                self._writer.wait()
                display.say(f"stopped after step {step:,}, which is saved; the same command continues from there")
                raise SystemExit(128 + signum)

    def _plan_anew(self, display: Display) -> None:
        """Where a run goes by the clock. Only after a checkpoint, which then belongs to the new plan: what continues from it
        does as the run did."""
        steps = steps_by_the_clock(
            self.config, step=self.learner.step, seconds=self._seconds(), reserve=self._validation_seconds
        )
        steps = self.processes.from_main(steps)
        if steps == self.config.train.steps:
            return
        self.config = with_steps(self.config, steps)
        self.learner.config = self.config.train
        display.plan(steps)
        if self.processes.is_main:
            config = self.config
            self._writer.do(lambda: self.run.write_config(config, self.run.read_weights(), regard.__version__))

    def _seconds(self) -> float:
        """Spent on this run so far, by all who worked on it."""
        return self._seconds_before + time.perf_counter() - self._began

    def _note(self, what: str, began: float) -> float:
        """How long it took, which is also written down."""
        seconds = time.perf_counter() - began
        if self.processes.is_main:
            append_line(self.run.timing_path, {"step": self.learner.step, what: seconds})
        return seconds

    def _is_saved_at(self, step: int) -> bool:
        """Whether a checkpoint belongs to this step, by the plan as it is now."""
        train = self.config.train
        return step % train.save_every == 0 or step % train.valid_every == 0 or step == train.steps

    def _has_lost_patience(self) -> bool:
        patience = self.config.train.patience
        return bool(patience) and self.best is not None and self.best.age >= patience

    def _log(self, display: Display, events: EventFiles) -> None:
        self.processes.sum(self.totals.sums[:2])  # losses; the rest is the same for all
        totals = self.totals.to_list()
        self.totals.clear()
        seconds = time.perf_counter() - self._interval_began
        self._interval_began = time.perf_counter()
        line = {"step": self.learner.step, "epoch": self.place.epoch, **line_of(totals)}
        line["learning_rate"] = self.learner.learning_rate
        timing = {
            "step": self.learner.step,
            "seconds": seconds,
            "tokens_per_second": line["tokens"] / seconds,
            "memory_bytes": memory_bytes(),
        }
        if self.processes.is_main:
            append_line(self.run.metrics_path, line)
            append_line(self.run.timing_path, timing)
            events.add(line | {"tokens_per_second": timing["tokens_per_second"]})
        display.line(
            self.learner.step,
            nll=line["nll"],
            learning_rate=line["learning_rate"],
            tokens_per_second=timing["tokens_per_second"],
        )
        if line["skipped"]:
            display.warn(f"{line['skipped']} of the last updates had no finite gradient and changed nothing")
        if self._loader.num_lost > self._num_lost:
            self._num_lost = self._loader.num_lost
            display.warn(f"{self._num_lost} of the processes that make batches are gone; is memory short? The others go on")
        self._lost_in_a_row = 0 if line["tokens"] else self._lost_in_a_row + line["skipped"]
        if self._lost_in_a_row >= MOST_LOST:
            raise ValueError(
                f"no gradient was finite in the {self._lost_in_a_row} updates before step {self.learner.step:,}; the last "
                "checkpoint is from before that. Try a lower train.learning_rate, a longer train.warmup or train.clip_norm=1"
            )

    def _validate(self, display: Display, events: EventFiles) -> None:
        """On the main process; the others wait for it at their next exchange."""
        if not self.processes.is_main:
            return
        step = self.learner.step
        validation = self.valid.validate(self.learner.model)
        is_best = self.best is None or validation.is_better_than(self.best.validation)
        if self.best is None or is_best:
            self.best = Best(step, validation)
        else:
            self.best = replace(self.best, age=self.best.age + 1)
        layers = attention_health(self.learner.model, self.valid.sample())
        line: dict[str, Any] = {"step": step, "valid_nll": validation.nll, "valid_perplexity": validation.perplexity}
        line |= {} if validation.bleu is None else {"valid_bleu": validation.bleu}
        line["attention"] = [layer._asdict() for layer in layers]
        append_line(self.run.metrics_path, line)
        events.add({key: value for key, value in line.items() if key != "attention"})
        display.validation(step, validation, is_best=is_best)
        for complaint in complaints(layers, warmed_up=step > max(1000, self.config.train.warmup)):
            display.warn(complaint)

    def save(self, *, scheduled: bool = True) -> None:
        """On the disk when this returns."""
        self._begin_to_save(scheduled=scheduled)
        self._writer.wait()

    def _begin_to_save(self, *, scheduled: bool) -> None:
        """Shared: the others may have to wait, or to stop early. What is saved because of a signal is not `scheduled`, and
        never averaged: a run that was stopped ends like one that was not."""
        best = self.best
        age = self.processes.from_main(best.age if best else 0)
        if not self.processes.is_main:
            self.best = Best(0, Validation(0.0, None), age)
        self.processes.sum(self.totals.sums[:2])
        if not self.processes.is_main:
            self.totals.sums[:2] = 0.0
            return
        state = {
            "step": self.learner.step,
            "place": list(self.place),
            "seconds": self._seconds(),
            "scheduled": scheduled,
            "totals": self.totals.to_list(),
            "best": None if best is None else asdict(best),
            "metrics_bytes": size_on_disk(self.run.metrics_path),
            "timing_bytes": size_on_disk(self.run.timing_path),
            "data": self.stream.sizes(),
            "torch": torch.__version__,
        }
        self._writer.wait()  # there is memory for one checkpoint beside the model, not for more
        checkpoint = Checkpoint(self.learner.weights(), self.learner.optimizer_state(), state)
        self._writer.do(partial(self.run.save_checkpoint, self.learner.step, checkpoint))

    def _publish(self) -> None:
        """When the checkpoint is there, what translates follows."""
        if self.processes.is_main:
            best = self.best.step if self.best else 0
            self._writer.do(partial(publish_average, self.run, self.config, step=self.learner.step, best=best))

    def finish(self, display: Display) -> None:
        """Chooses the weights that translate: the average of the last checkpoints, or the best one if that validates
        better."""
        if not self.processes.is_main:
            return
        display.doing("validating the average")
        display.say("validating the average of the last checkpoints")
        tensors, steps = self.run.averaged_weights(steps_to_average(self.run, self.config, self.learner.step))
        self.learner.model.load_state_dict(tensors)
        average = self.valid.validate(self.learner.model)
        line: dict[str, Any] = {"step": self.learner.step, "averaged": list(steps), "average_nll": average.nll}
        line |= {} if average.bleu is None else {"average_bleu": average.bleu}
        append_line(self.run.metrics_path, line)
        weights, score = Weights("average", steps, self.learner.step, final=True), average
        best = self.best
        if best is not None and best.validation.is_better_than(average) and self.run.has_weights(best.step):
            weights, score = weights._replace(what="best", steps=(best.step,)), best.validation
            tensors, _ = self.run.averaged_weights([best.step])
        publish_weights(self.run, self.config, tensors, weights)
        write_page(self.run, self.config)
        does = "generates" if self.config.model.kind == "language" else "translates"
        display.say(f"what {does} is {weights.described}: {score.described}")
        display.say(f"it is in {self.run.model_path}; the curves are in {self.run.folder / 'training.html'}")
