"""Steps as CUDA graphs: one launch instead of hundreds, because launching kernels takes longer than running them.

Only this module needs CUDA. The first time that a step has a given shape, it runs without a graph, which also initialises
the libraries that it uses; the second time, it is captured (which computes nothing) and replayed; then it is only replayed.
"""

from collections.abc import Callable, Hashable
from contextlib import suppress

import torch

MOST_GRAPHS = 64  # each takes a little memory of its own


class Graphs:
    """The graphs of one function, without arguments or results, in several shapes. The tensors that it reads and writes must
    stay at their addresses for as long as the graphs are used."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # because the default stream cannot be captured
        self.pool = torch.cuda.graph_pool_handle()  # one for all graphs, which never run at the same time
        self.warm: set[Hashable] = set()
        self.captured: dict[Hashable, torch.cuda.CUDAGraph] = {}

    def run(self, shape: Hashable, work: Callable[[], None]) -> None:
        """Run the work, which must be the same for the same shape."""
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
            # `torch.cuda.graph` would sync with the device and empty its caches. Other threads may go on using CUDA.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):  # raised for the broken capture; the first exception is re-raised
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
