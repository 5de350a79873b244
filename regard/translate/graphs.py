"""Steps as CUDA graphs: one launch where there were hundreds, since on a GPU launching them takes longer than they do.

Only what stands here needs CUDA. A step is run as it is the first time it comes by in some shape, which also wakes the
libraries it uses; the second time it is captured, which computes nothing; from then on it is replayed.
"""

from collections.abc import Callable, Hashable
from contextlib import suppress

import torch

MOST_GRAPHS = 64  # each takes a little memory of its own


class Graphs:
    """Of one piece of work that takes nothing and returns nothing, in several shapes. Whatever it reads and writes must stay
    where it is for as long as this is used."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # nothing can be captured on the default one
        self.pool = torch.cuda.graph_pool_handle()  # one for all: they never run at the same time
        self.warm: set[Hashable] = set()
        self.captured: dict[Hashable, torch.cuda.CUDAGraph] = {}

    def run(self, shape: Hashable, work: Callable[[], None]) -> None:
        """Does the work, which must be the same for the same shape."""
        if shape in self.warm and shape not in self.captured:
            if len(self.captured) >= MOST_GRAPHS:
                self.captured.clear()
            self.captured[shape] = self._captured(work)
        if shape in self.captured:
            self.captured[shape].replay()
        else:
            self._aside(work)
            self.warm.add(shape)

    def _captured(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()

        def capture() -> None:
            # Not `torch.cuda.graph`, which waits for the device and empties its caches. Other threads may go on using it.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):  # of a capture that is broken already; what broke it is told
                    graph.capture_end()
                raise
            graph.capture_end()

        self._aside(capture)
        return graph

    def _aside(self, work: Callable[[], None]) -> None:
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            work()
        current.wait_stream(self.stream)
