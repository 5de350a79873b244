"""Counters of the server, in the text format of Prometheus."""

import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

Labels = tuple[tuple[str, str], ...]
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
FORGETTING = 0.9  # decay per batch of the recent tokens and seconds


class Histogram:
    """Numbers of values up to each bound, and the sum of all."""

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
    """Counters of requests, texts, tokens and faults, which several threads may change."""

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
        self._lately = (0.0, 0.0)  # tokens and seconds of recent batches
        self.characters = 0
        self._faults = 0

    def add_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` must be a route, because clients could make up any number of paths."""
        with self._lock:
            self._requests[("path", path), ("status", str(status))] += 1
            self._seconds.add(seconds)

    def add_batch(self, run: str, num_texts: int, num_tokens: int, cost: float, seconds: float) -> None:
        """Count a batch. `cost` is its tokens, weighted by the cost of the search."""
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
            self.characters += count

    def add_fault(self) -> None:
        with self._lock:
            self._faults += 1

    @property
    def tokens_per_second(self) -> float:
        """The speed of recent batches; 0 before the first."""
        with self._lock:
            tokens, seconds = self._lately
            return tokens / seconds if seconds else 0.0

    def text(self, waiting: Mapping[str, float]) -> str:
        """Return all metrics; `waiting` has further gauges by name."""
        with self._lock:
            lines = [
                *_metric("regard_info", "gauge", "the version that is running", {(("version", self.version),): 1}),
                *_metric("regard_requests_total", "counter", "requests answered, by path and status", self._requests),
                *_metric("regard_faults_total", "counter", "faults of regard; the log has their tracebacks", self._faults),
                *_metric("regard_request_seconds", "histogram", "time from a request's head to its answer", self._seconds),
                *_metric("regard_batch_texts", "histogram", "texts translated together", self._batches),
                *_metric("regard_texts_total", "counter", "texts translated, by run; lines count as texts", self._texts),
                *_metric("regard_looks_total", "counter", "inspections of a model, by run", self._looks),
                *_metric("regard_source_tokens_total", "counter", "source subwords translated", self._tokens),
                *_metric("regard_characters_total", "counter", "characters of the texts translated", self.characters),
                *_metric("regard_batch_seconds_total", "counter", "time spent translating", f"{self._batch_seconds:.6f}"),
            ]
        for name, value in waiting.items():
            lines += _metric(f"regard_{name}", "gauge", f"{name.replace('_', ' ')}, now", f"{value:g}")
        if memory := resident_bytes():
            lines += _metric("process_resident_memory_bytes", "gauge", "memory in use", memory)
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, meaning: str, value: Histogram | Mapping[Labels, int] | int | str) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    if isinstance(value, Histogram):
        return lines + value.lines(name)
    if isinstance(value, Mapping):
        return lines + [f"{name}{_labels(labels)} {count}" for labels, count in sorted(value.items())]
    return [*lines, f"{name} {value}"]


def _labels(labels: Labels) -> str:
    escaped = [(key, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for key, value in labels]
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}"


def resident_bytes() -> int:
    """Return the resident memory of this process, or 0 if the system does not say."""
    status = Path("/proc/self/status")
    found = re.search(r"^VmRSS:\s*(\d+)", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1]) * 1024 if found else 0
