"""The part that all APIs share: check texts, translate them, and refuse requests with a reason."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import regard
from regard.errors import UserError
from regard.serve.batcher import Batcher, Look, Translate
from regard.serve.detection import Detector, learn
from regard.serve.languages import AUTO, plain
from regard.serve.measurements import Measurements
from regard.serve.request_parsing import RefusalError
from regard.serve.runs import ServedRun, load_runs, run_for, sources_for
from regard.serve.settings import ServeSettings
from regard.settings import Json
from regard.text.corpus import lines_of
from regard.translate.search import Search
from regard.translate.translation import Translation
from regard.translate.translator import DEFAULT_SEARCH

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Translated:
    """A text's translation; its lines are translated one by one, as `regard translate` does."""

    text: str
    alternatives: tuple[str, ...]
    source: str  # language
    confidence: float | None  # of the detected language; None if the request names it


@dataclass(frozen=True, eq=False)
class Service:
    """Served runs, with their queue and their measurements."""

    settings: ServeSettings
    runs: tuple[ServedRun, ...]
    detector: Detector
    batcher: Batcher
    measurements: Measurements

    def run_named(self, name: str) -> ServedRun:
        if run := next((run for run in self.runs if run.name == name), None):
            return run
        raise RefusalError(404, "there is no run of this name; see /runs")

    def search(self, alternatives: int, beam: int | None, alpha: float) -> Search:
        """Return a search of the requested width, or wide enough for so many alternatives."""
        limits = self.settings.limits
        if alternatives > limits.alternatives:
            raise RefusalError(422, f"alternatives: at most {limits.alternatives} are given")
        width = beam or min(max(DEFAULT_SEARCH.beam, alternatives + 1), limits.beam)
        self.require_beam(width)
        try:
            return Search(beam=width, alpha=alpha, num_best=alternatives + 1)
        except UserError as error:
            raise RefusalError(422, "alternatives: give fewer than the beam width, or a wider beam") from error

    def require_beam(self, beam: int) -> None:
        if beam > self.settings.limits.beam:
            raise RefusalError(422, f"beam: at most {self.settings.limits.beam} is allowed")

    def require_moderate(self, texts: Sequence[str]) -> None:
        limits = self.settings.limits
        if len(texts) > limits.texts:
            raise RefusalError(422, f"at most {limits.texts} texts are taken at once")
        if any(len(text) > limits.characters for text in texts):
            raise RefusalError(422, f"a text has more than {limits.characters:,} characters; send it in parts")

    async def translate(self, texts: Sequence[str], source: str, target: str, search: Search) -> list[Translated]:
        """Translate each text with the run for its languages; if `source` is "auto", detect it for each."""
        self.require_moderate(texts)
        runs = [self._run(text, source, target) for text in texts]
        lines = [lines_of(text) for text in texts]
        wanted: dict[ServedRun, list[tuple[int, int]]] = {}  # indices of texts and lines
        for number, (run, _) in enumerate(runs):
            places = [(number, place) for place, line in enumerate(lines[number]) if line.strip()]
            wanted.setdefault(run, []).extend(places)
        found: dict[tuple[int, int], Translation] = {}
        for places, answers in zip(wanted.values(), await self._translations(wanted, lines, search), strict=True):
            found |= zip(places, answers, strict=True)
        self.measurements.add_characters(sum(map(len, texts)))
        done = []
        for number, (run, confidence) in enumerate(runs):
            of_text = [found.get((number, place)) for place in range(len(lines[number]))]
            text = "\n".join(one.text if one else "" for one in of_text)
            first = of_text[0]
            others = tuple(one.text for one in first.alternatives) if first and len(of_text) == 1 else ()
            done.append(Translated(text, others, run.src_lang, confidence))
        return done

    async def _translations(
        self, wanted: dict[ServedRun, list[tuple[int, int]]], lines: Sequence[Sequence[str]], search: Search
    ) -> list[list[Translation]]:
        """Translate the lines of each run. Encode them in another thread, so as not to block the event loop, and submit all
        before waiting for any."""
        futures: list[Future[list[Translation]]] = []
        try:
            for run, places in wanted.items():
                want = Translate(run.name, run.translator, search)
                of_run = [lines[number][place] for number, place in places]
                sources = await asyncio.to_thread(run.translator.encode, of_run)
                futures.append(self.batcher.translate(want, sources, among=len(wanted)))
            return await self._in_time(futures)
        finally:
            for future in futures:
                future.cancel()  # without effect on those that are done

    async def look(self, want: Look) -> Json:
        """Inspect a sentence."""
        self.require_moderate([want.question.text, want.question.target, want.question.prefix])
        [[answer]] = await self._in_time([self.batcher.look(want)])
        return answer

    async def _in_time(self, futures: Sequence["Future[Answer]"]) -> list[Answer]:
        later = {"Retry-After": "5"}
        try:
            async with asyncio.timeout(self.settings.limits.seconds):
                return [await asyncio.wrap_future(future) for future in futures]
        except TimeoutError as error:
            raise RefusalError(503, "this took too long; send less at once, or try again later", later) from error
        except UserError as error:  # on memory, or on the request
            if isinstance(error.__cause__, RuntimeError | MemoryError):
                raise RefusalError(503, "there is too little memory for this at the moment", later) from error
            raise RefusalError(422, str(error)) from error

    def _run(self, text: str, source: str, target: str) -> tuple[ServedRun, float | None]:
        """Return the run for a text, with the confidence in its language if that was detected."""
        confidence = None
        if plain(source) == AUTO:
            codes = sources_for(self.runs, target)
            detected = (one for one in self.detector.detect(text) if one[0] in codes)
            source, confidence = next(detected, (source, None))
        if run := run_for(self.runs, source, target):
            return run, confidence
        raise RefusalError(400, "no run that is served here translates between these languages; see /languages")


def load_service(settings: ServeSettings) -> Service:
    """Load the models and start the worker."""
    runs = load_runs(settings.runs, settings.device)
    for run in runs:
        run.translator.translate(["1"])  # the first call is slower and would mislead the measurement of speed
    detector = learn(runs)
    measurements = Measurements(regard.__version__)
    batcher = Batcher(settings.queue, runs[0].translator.batch_tokens, measurements)
    return Service(settings, runs, detector, batcher, measurements)
