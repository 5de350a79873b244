"""Training: updates, and between them metrics, validation and checkpoints, until the last step, Ctrl-C or a full disk.

Everything that an update depends on is either in the checkpoint (weights, moments, the place in the data, sums of metrics)
or a function of the configuration and the step (order, segmentation, dropout). On one machine, a run that was killed and
continued therefore equals, bit for bit, one that was never killed.
"""

import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from types import FrameType
from typing import Any

import torch

import regard
from regard.config import RunConfig
from regard.data.batch import padded
from regard.data.loader import Loader, begun
from regard.data.stream import Place
from regard.data.windows import TextStream
from regard.errors import UserError
from regard.machine.device import advice_on_memory, synchronize
from regard.machine.load import OtherPrograms
from regard.machine.processes import Processes
from regard.run.checkpoint import Checkpoint, DamagedError, Run, Weights
from regard.run.metrics import append_line, cut_back, size_on_disk
from regard.settings import read_table
from regard.train.batches import BatchMaker, num_workers
from regard.train.health import attention_health, complaints
from regard.train.learner import Learner
from regard.train.page import write_page
from regard.train.plan import FIRST_PLAN_SECONDS, Pace, open_training_text, steps_by_the_clock, subwords_of, with_steps
from regard.train.progress import Display, memory_bytes
from regard.train.road import layout_for, learner_for
from regard.train.saving import Best, TrainingState, Writer, publish_average, publish_weights, steps_to_average
from regard.train.tensorboard import EventFiles
from regard.train.totals import Totals, line_of
from regard.train.validation import Validation, open_validation

MOST_SKIPPED = 10  # updates in a row that may have no finite gradient


class StopRequest:
    """SIGINT and SIGTERM, remembered until an update is done. A second signal waits only for a checkpoint that is being
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


class Training:
    """A training in progress. Every process has one; that of the main process also writes and reports."""

    def __init__(self, run: Run, config: RunConfig, device: torch.device, processes: Processes) -> None:
        torch.set_num_threads(config.train.threads)
        self.run = run
        self.config = config
        self.device = device
        self.processes = processes
        folder, tokenizer = run.data_folder(config), subwords_of(run, config)
        self.stream = open_training_text(folder, config.model, config.train, tokenizer)
        self.valid = open_validation(config, folder, tokenizer, batch_tokens=max(2048, self.stream.batch_tokens))
        self._layout = layout_for(config.model, config.train, device, processes, self.stream)
        self._make = BatchMaker(self.stream, config.train.accumulation, processes, self._layout)
        opened = partial(BatchMaker.opened, run.folder, folder, config, processes, self._layout)
        workers = begun(opened, num_workers(config.train, device, processes))  # begin before the learner is made
        self._loader, self._num_lost = Loader(self._make, workers), 0
        # On a CPU, making batches ahead would take time from the updates.
        self._is_ahead = device.type == "cuda" or bool(workers)
        with self.advice_on_memory():
            self.learner = learner_for(config.model, config.train, device, processes, self._layout)
        self._writer = Writer(beside=device.type == "cuda")  # on a CPU, weights change in place
        self.totals = Totals(device)
        self.place = Place(0, 0)
        self.best: Best | None = None
        self._began = self._interval_began = time.perf_counter()
        self._seconds_before = self._validation_seconds = 0.0
        self._skipped_in_a_row = 0
        self._others: OtherPrograms | None = OtherPrograms()  # None once they were reported

    def close(self) -> None:
        """Stop the processes that make batches."""
        self._loader.close()

    def continue_from(self, checkpoint: Checkpoint, display: Display) -> None:
        """Restore a checkpoint, with a warning if it cannot be continued bit for bit."""
        state = read_table(TrainingState, checkpoint.state, "state.json")
        if list(state.data) != self.stream.sizes():
            raise UserError(f"{self.run.data_folder(self.config)} is not the text this run was begun with")
        if state.torch != torch.__version__:
            display.warn(
                f"this run was saved by torch {state.torch} and goes on with {torch.__version__}: not bit for bit the same"
            )
        self.learner.restore(checkpoint.weights, checkpoint.optimizer, state.step)
        self.place, self.best = Place(*state.place), state.best
        self._seconds_before = state.seconds
        self.totals.restore(state.totals)
        if self.processes.is_main:
            cut_back(self.run.metrics_path, state.metrics_bytes, is_needed=True)
            cut_back(self.run.timing_path, state.timing_bytes, is_needed=False)
        else:
            self.totals.sums[:2] = 0.0  # the main process has the losses of all

    def try_largest_batches(self) -> None:
        """Find out now whether memory is too small. The GPU's kernels have tried a batch, and all of theirs are of one size;
        but they keep their memory, so that validation needs more."""
        with self.advice_on_memory():
            if self._layout is not None:
                self.valid.rehearse(self.learner.model.eval())
                return
            assert isinstance(self.learner, Learner)
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
        """The number of updates for which there is time, and how often to validate, which may take at most a sixth of it.
        Both are measured, and then the run returns to its beginning."""
        weights = {name: tensor.clone() for name, tensor in self.learner.weights().items()}
        seconds: list[float] = []
        place, enough = Place(0, 0), max(2.0, min(10.0, 1.5 * minutes))
        # The main process decides, because clocks differ.
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
        times = min(10, max(1, int(10 * minutes / validation) - 1))  # and once more at the end
        budget = max(60 * minutes - (times + 1) * validation, 30 * minutes)
        per_update = sum(seconds[2:]) / len(seconds[2:])  # without the first two, which include the warm-up
        steps = self.processes.from_main(max(1, round(budget / per_update)))
        return steps, self.processes.from_main(-(-steps // times))

    def _update(self, place: Place) -> Place:
        batches = self._loader.take(place) if self._is_ahead else self._make(place)
        self.learner.update(batches, self.totals)
        return self._make.after(place)

    def go(self, display: Display, stop: StopRequest, events: EventFiles) -> None:
        """Train until the last step, or until validation has not improved for long enough."""
        self._began = self._interval_began = time.perf_counter()
        self._paces = deque([Pace(self.learner.step, self._seconds_before)], maxlen=2)
        try:
            while self.learner.step < self.config.train.steps:
                if self.best is not None and 0 < self.config.train.patience <= self.best.age:
                    break
                self._step(display, stop, events)
        finally:
            self._writer.wait()

    def _step(self, display: Display, stop: StopRequest, events: EventFiles) -> None:
        """Make one update, then write metrics, validate and save if that is due."""
        train = self.config.train
        self.place = self._update(self.place)
        self._writer.raise_error()
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
        is_scheduled = step % train.save_every == 0 or step % train.valid_every == 0 or is_last
        if is_scheduled:
            save_began = time.perf_counter()
            self._begin_to_save(scheduled=True)
            if self.processes.is_main:
                best = self.best.step if self.best else 0
                self._writer.do(partial(publish_average, self.run, self.config, step=step, best=best))
            self._note("saving_seconds", save_began)
            self._plan_again(display)
        self._interval_began += time.perf_counter() - pause_began
        if signum := self.processes.largest(stop.signum):
            if not is_scheduled:
                self.save(scheduled=False)
            self._writer.wait()
            display.say(f"stopped after step {step:,}, which is saved; the same command continues from there")
            raise SystemExit(128 + signum)

    def go_by(self, config: RunConfig) -> None:
        """Follow another plan, with another number of steps, from the next update on."""
        self.config = config
        self.learner.config = config.train

    def _plan_again(self, display: Display) -> None:
        """Adjust the number of steps of a run by the clock. This happens only after a checkpoint, which belongs to the new
        plan, so that a run that continues from it does as this one."""
        config, done = self.config, Pace(self.learner.step, self._seconds())
        recent = done - self._paces[0]  # since the plan before the last, or since this process began
        steps = steps_by_the_clock(config, done=done, recent=recent, reserve=self._validation_seconds)
        steps = self.processes.from_main(steps)
        if recent.seconds >= FIRST_PLAN_SECONDS:
            self._paces.append(done)
        if steps == config.train.steps:
            return
        config = with_steps(config, steps)
        self.go_by(config)
        display.plan(steps)
        if self.processes.is_main:
            self._writer.do(lambda: self.run.write_config(config, self.run.read_weights(), regard.__version__))

    def _seconds(self) -> float:
        """The time spent on training this run, before it was continued as well."""
        return self._seconds_before + time.perf_counter() - self._began

    def _note(self, what: str, began: float) -> float:
        """Return the time since `began`, and add it to the log."""
        seconds = time.perf_counter() - began
        if self.processes.is_main:
            append_line(self.run.timing_path, {"step": self.learner.step, what: seconds})
        return seconds

    def _log(self, display: Display, events: EventFiles) -> None:
        self.processes.sum(self.totals.sums[:2])  # losses; the rest is the same for all
        totals = self.totals.to_list()
        self.totals.clear()
        seconds = time.perf_counter() - self._interval_began
        self._interval_began = time.perf_counter()
        step = self.learner.step
        line = {"step": step, "epoch": self.place.epoch, **line_of(totals), "learning_rate": self.learner.learning_rate}
        speed = line["tokens"] / seconds
        if self.processes.is_main:
            append_line(self.run.metrics_path, line)
            timing = {"step": step, "seconds": seconds, "tokens_per_second": speed, "memory_bytes": memory_bytes()}
            append_line(self.run.timing_path, timing)
            events.add(line | {"tokens_per_second": speed})
        display.line(line, speed)
        self._report_others(display)
        if line["skipped"]:
            display.warn(f"{line['skipped']} of the last updates had no finite gradient and changed nothing")
        if self._loader.num_lost > self._num_lost:
            self._num_lost = self._loader.num_lost
            display.warn(f"{self._num_lost} of the processes that make batches ended; is memory short? The others go on")
        self._skipped_in_a_row = 0 if line["tokens"] else self._skipped_in_a_row + line["skipped"]
        if self._skipped_in_a_row >= MOST_SKIPPED:
            raise UserError(
                f"no gradient was finite in the {self._skipped_in_a_row} updates before step {step:,}; the last "
                "checkpoint is from before that. Try a lower train.learning_rate, a longer train.warmup or train.clip_norm=1"
            )

    def _report_others(self, display: Display) -> None:
        """Warn once if other programs use the cores of a CPU that trains. Of several processes, none can tell them apart."""
        if self._others is None or self.device.type != "cpu" or self.processes.count > 1:
            return
        if complaint := self._others.complaint(self.config.train.threads):
            display.warn(f"{complaint}; training is slower than on an idle machine, and ends the same")
            self._others = None

    def _validate(self, display: Display, events: EventFiles) -> None:
        """Validate on the main process; the others wait for it at their next exchange."""
        if not self.processes.is_main:
            return
        step, best = self.learner.step, self.best
        validation = self.valid.validate(self.learner.model)
        is_best = best is None or validation.is_better_than(best.validation)
        self.best = Best(step, validation) if best is None or is_best else replace(best, age=best.age + 1)
        layers = attention_health(self.learner.model, self.valid.sample())
        line: dict[str, Any] = {"step": step, "valid_nll": validation.nll, "valid_perplexity": validation.perplexity}
        line |= {} if validation.bleu is None else {"valid_bleu": validation.bleu}
        append_line(self.run.metrics_path, line | {"attention": [layer._asdict() for layer in layers]})
        events.add(line)
        display.validation(step, validation, is_best=is_best)
        for complaint in complaints(layers, warmed_up=step > max(1000, self.config.train.warmup)):
            display.warn(complaint)

    def save(self, *, scheduled: bool = True) -> None:
        """Save a checkpoint, and wait until it is on the disk."""
        self._begin_to_save(scheduled=scheduled)
        self._writer.wait()

    def _begin_to_save(self, *, scheduled: bool) -> None:
        """Take the state of all processes, and begin to write it. A checkpoint that is not `scheduled`, but due to a signal,
        is never averaged, so that a run that was stopped ends like one that was not."""
        age = self.processes.from_main(self.best.age if self.best else 0)
        self.processes.sum(self.totals.sums[:2])
        if not self.processes.is_main:
            self.best = Best(0, Validation(0.0, None), age)  # only its age matters here
            self.totals.sums[:2] = 0.0
            return
        state = TrainingState(
            step=self.learner.step,
            place=self.place,
            seconds=self._seconds(),
            scheduled=scheduled,
            totals=tuple(self.totals.to_list()),
            best=self.best,
            metrics_bytes=size_on_disk(self.run.metrics_path),
            timing_bytes=size_on_disk(self.run.timing_path),
            data=tuple(self.stream.sizes()),
            torch=torch.__version__,
        )
        self._writer.wait()  # memory need only hold one checkpoint beside the model
        checkpoint = Checkpoint(self.learner.weights(), self.learner.optimizer_state(), asdict(state))
        self._writer.do(partial(self.run.save_checkpoint, state.step, checkpoint))

    def finish(self, display: Display) -> None:
        """Choose the weights that translate: the average of the last checkpoints, or the best one if it validates better."""
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
        if best is not None and best.validation.is_better_than(average):
            with suppress(DamagedError):
                tensors, _ = self.run.averaged_weights([best.step])
                weights, score = weights._replace(what="best", steps=(best.step,)), best.validation
        publish_weights(self.run, self.config, tensors, weights)
        write_page(self.run, self.config)
        does = "generates" if self.config.model.kind == "language" else "translates"
        display.say(f"what {does} is {weights.described}: {score.described}")
        display.say(f"it is in {self.run.model_path}; the curves are in {self.run.folder / 'training.html'}")
