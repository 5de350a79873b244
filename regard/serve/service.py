"""What all forms of the API have in common: checked texts in, translations out, and refusals that say why."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import regard
from regard.inspection.look import Json
from regard.serve.batcher import Batcher, ClosedError, FullError, HopelessError, Look, Translate
from regard.serve.detection import Detector, learn
from regard.serve.languages import AUTO, plain
from regard.serve.measurements import Measurements
from regard.serve.reading import RefusalError
from regard.serve.runs import ServedRun, load_runs, run_for, sources_for
from regard.serve.settings import ServeSettings
from regard.translate.search import Search
from regard.translate.translation import Translation
from regard.translate.translator import DEFAULT_SEARCH

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Translated:
    """A text's translation; its lines are translated one by one, as `regard translate` does it."""

    text: str
    alternatives: tuple[str, ...]
    source: str  # language
    confidence: float | None  # that it is this one; None: it was told


@dataclass(frozen=True, eq=False)
class Service:
    settings: ServeSettings
    runs: tuple[ServedRun, ...]
    detector: Detector
    batcher: Batcher
    measurements: Measurements

    def run_named(self, name: str) -> ServedRun:
        for run in self.runs:
            if run.name == name:
                return run
        raise RefusalError(404, "there is no run of this name; see /runs")

    def search(self, alternatives: int, beam: int | None, alpha: float) -> Search:
        """As wide as asked, or as wide as so many alternatives need."""
        limits = self.settings.limits
        if alternatives > limits.alternatives:
            raise RefusalError(422, f"alternatives: at most {limits.alternatives} are given")
        width = beam or min(max(DEFAULT_SEARCH.beam, alternatives + 1), limits.beam)
        if width > limits.beam:
            raise RefusalError(422, f"beam: at most {limits.beam} is allowed")
        try:
            return Search(beam=width, alpha=alpha, num_best=alternatives + 1)
        except ValueError as error:
            raise RefusalError(422, "alternatives: there are fewer than the beam is wide; widen it") from error

    def require_moderate(self, texts: Sequence[str]) -> None:
        limits = self.settings.limits
        if len(texts) > limits.texts:
            raise RefusalError(422, f"at most {limits.texts} texts are taken at once")
        if any(len(text) > limits.characters for text in texts):
            raise RefusalError(422, f"a text has more than {limits.characters:,} characters; send it in parts")

    async def translate(self, texts: Sequence[str], source: str, target: str, search: Search) -> list[Translated]:
        """Each text by the run for its languages; "auto" as source is found out for each."""
        self.require_moderate(texts)
        languages = [self._source(text, source, target) for text in texts]
        runs = [self._run(code, target) for code, _ in languages]
        lines = [text.split("\n") for text in texts]
        wanted: dict[ServedRun, list[tuple[int, int]]] = {}  # text and line
        for number, run in enumerate(runs):
            places = [(number, place) for place, line in enumerate(lines[number]) if line.strip()]
            wanted.setdefault(run, []).extend(places)
        found: dict[tuple[int, int], Translation] = {}
        for places, answers in zip(wanted.values(), await self._translations(wanted, lines, search), strict=True):
            found |= zip(places, answers, strict=True)
        self.measurements.add_characters(sum(map(len, texts)))
        done = []
        for number, (_, confidence) in enumerate(languages):
            of_text = [found.get((number, place)) for place in range(len(lines[number]))]
            text = "\n".join(one.text if one else "" for one in of_text)
            first = of_text[0]
            others = tuple(one.text for one in first.alternatives) if first and len(of_text) == 1 else ()
            done.append(Translated(text, others, runs[number].src_lang, confidence))
        return done

    async def _translations(
        self, wanted: dict[ServedRun, list[tuple[int, int]]], lines: Sequence[Sequence[str]], search: Search
    ) -> list[list[Translation]]:
        """Of each run's lines. All are asked for before any is waited for."""
        futures: list[Future[list[Translation]]] = []
        try:
            for run, places in wanted.items():
                want = Translate(run.name, run.translator, search)
                of_run = [lines[number][place] for number, place in places]
                futures.append(self.batcher.translate(want, of_run, among=len(wanted)))
            return await self._in_time(futures)
        except (FullError, HopelessError, ClosedError) as error:
            raise _refusal(error) from error
        finally:
            for future in futures:
                future.cancel()  # those that are done take no notice

    async def look(self, want: Look) -> Json:
        self.require_moderate([want.question.text, want.question.target, want.question.prefix])
        try:
            [[answer]] = await self._in_time([self.batcher.look(want)])
        except (FullError, HopelessError, ClosedError) as error:
            raise _refusal(error) from error
        return answer

    async def _in_time(self, futures: Sequence["Future[Answer]"]) -> list[Answer]:
        try:
            async with asyncio.timeout(self.settings.limits.seconds):
                return [await asyncio.wrap_future(future) for future in futures]
        except TimeoutError as error:
            raise RefusalError(503, "this took too long; send less at once, or try again later", _again(5)) from error
        except ValueError as error:  # a sentence of ours: about memory, or about what was asked
            if isinstance(error.__cause__, RuntimeError | MemoryError):
                raise RefusalError(503, "there is too little memory for this at the moment", _again(5)) from error
            raise RefusalError(422, str(error)) from error

    def _source(self, text: str, source: str, target: str) -> tuple[str, float | None]:
        if plain(source) != AUTO:
            return source, None
        codes = sources_for(self.runs, target)
        if not codes:
            raise _no_such_pair()
        return next(found for found in self.detector.detect(text) if found[0] in codes)

    def _run(self, source: str, target: str) -> ServedRun:
        if run := run_for(self.runs, source, target):
            return run
        raise _no_such_pair()


def load_service(settings: ServeSettings) -> Service:
    """Everything but the web: models in memory, and a worker that waits."""
    runs = load_runs(settings.runs, settings.device)
    for run in runs:
        run.translator.translate(["1"])  # the first takes longer than any other, and tells nothing of how long they take
    detector = learn(runs)
    measurements = Measurements(regard.__version__)
    batcher = Batcher(settings.queue, runs[0].translator.batch_tokens, measurements)
    return Service(settings, runs, detector, batcher, measurements)


def _no_such_pair() -> RefusalError:
    return RefusalError(400, "no run that is served here translates between these languages; see /languages")


def too_much(retry_after: int) -> RefusalError:
    return RefusalError(429, "there is too much to do at the moment; try again", _again(retry_after))


def stopping() -> RefusalError:
    return RefusalError(503, "the server is stopping", _again(5))


def _refusal(error: FullError | HopelessError | ClosedError) -> RefusalError:
    if isinstance(error, FullError):
        return too_much(error.retry_after)
    if isinstance(error, HopelessError):
        return RefusalError(413, "this is more than can be translated in time; send less at once")
    return stopping()


def _again(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}
