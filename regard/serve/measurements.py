"""What a server has done so far, in the text format that Prometheus reads."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

Labels = tuple[tuple[str, str], ...]
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)

FORGETTING = 0.9  # of what the last batches were, with every new one


class Histogram:
    """How many values were at most so large, their number and their sum."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> list[str]:
        below, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*found, f"{name}_sum {self.total:.6f}", f"{name}_count {below}"]


class Measurements:
    """Counted from two threads, so under a lock."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self._texts: Counter[Labels] = Counter()
        self._looks: Counter[Labels] = Counter()
        self._seconds = Histogram(SECONDS)
        self._batches = Histogram(TEXTS)
        self._batch_seconds = 0.0
        self._tokens = 0
        self._lately = (0.0, 0.0)  # tokens and seconds of the last batches
        self._characters = 0

    def add_request(self, path: str, status: int, seconds: float) -> None:
        """`path` is one of the API's own, or the labels would be as many as what people type."""
        with self._lock:
            self._requests[("path", path), ("status", str(status))] += 1
            self._seconds.add(seconds)

    def add_batch(self, run: str, num_texts: int, num_tokens: int, cost: float, seconds: float) -> None:
        """`cost`: tokens, weighted by how they were searched."""
        with self._lock:
            self._batches.add(float(num_texts))
            self._texts[(("run", run),)] += num_texts
            self._tokens += num_tokens
            self._batch_seconds += seconds
            self._remember(cost, seconds)

    def add_look(self, run: str, cost: float, seconds: float) -> None:
        with self._lock:
            self._looks[(("run", run),)] += 1
            self._remember(cost, seconds)

    def _remember(self, cost: float, seconds: float) -> None:
        self._lately = (self._lately[0] * FORGETTING + cost, self._lately[1] * FORGETTING + seconds)

    def add_characters(self, count: int) -> None:
        with self._lock:
            self._characters += count

    @property
    def characters(self) -> int:
        return self._characters

    @property
    def tokens_per_second(self) -> float:
        """Lately, while it translates; 0 before the first batch."""
        with self._lock:
            tokens, seconds = self._lately
            return tokens / seconds if seconds else 0.0

    def text(self, waiting: Mapping[str, float]) -> str:
        """All of it; `waiting` is what there is at the moment, by name."""
        with self._lock:
            lines = [
                *_head("regard_info", "gauge", "the version that is running"),
                f"regard_info{_labels((('version', self.version),))} 1",
                *_head("regard_requests_total", "counter", "requests answered, by path and status"),
                *(f"regard_requests_total{_labels(labels)} {count}" for labels, count in sorted(self._requests.items())),
                *_head("regard_request_seconds", "histogram", "from a request's head to its answer"),
                *self._seconds.lines("regard_request_seconds"),
                *_head("regard_batch_texts", "histogram", "texts translated together"),
                *self._batches.lines("regard_batch_texts"),
                *_head("regard_texts_total", "counter", "texts translated, by run; a line of a text counts as one"),
                *(f"regard_texts_total{_labels(labels)} {count}" for labels, count in sorted(self._texts.items())),
                *_head("regard_looks_total", "counter", "looks into a model, by run"),
                *(f"regard_looks_total{_labels(labels)} {count}" for labels, count in sorted(self._looks.items())),
                *_head("regard_source_tokens_total", "counter", "source subwords translated"),
                f"regard_source_tokens_total {self._tokens}",
                *_head("regard_characters_total", "counter", "characters of the texts translated"),
                f"regard_characters_total {self._characters}",
                *_head("regard_batch_seconds_total", "counter", "time spent translating"),
                f"regard_batch_seconds_total {self._batch_seconds:.6f}",
            ]
        for name, value in waiting.items():
            lines += [*_head(f"regard_{name}", "gauge", name.replace("_", " ") + ", now"), f"regard_{name} {value:g}"]
        if memory := resident_bytes():
            lines += [*_head("process_resident_memory_bytes", "gauge", "memory in use")]
            lines += [f"process_resident_memory_bytes {memory}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _labels(labels: Labels) -> str:
    escaped = [(key, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for key, value in labels]
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}"


def resident_bytes() -> int:
    """Of this process, where the system says so; else 0."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    for line in status.read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
