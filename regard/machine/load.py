"""The load on the CPU: what other programs take of it, and how long threads that wait for each other may spin.

Nothing here imports torch, whose threads read their settings from the environment when it is imported.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

# Waiting threads of libgomp spin this many times, about a tenth of a millisecond, before they sleep. By default it is
# 300,000: a thread that waits for one which another program keeps off its core would spin for that program's whole turn.
SPINS = "10000"
CPU_COLUMNS = (0, 1, 2, 5, 6, 7)  # of /proc/stat: all but idling and waiting for disks
TAKEN = 0.25  # of the cores that this process wants: the share which is worth a warning if others have it
SHORTEST = 0.3  # seconds, below which times in hundredths of a second say little


def bound_spinning() -> None:
    """Let threads that wait for each other sleep early, unless the environment says how they should wait. It has an effect
    before torch is imported, and on programs that this one starts."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@dataclass(frozen=True)
class CpuTimes:
    """A moment, and the CPU seconds that this machine and this process had used until then."""

    moment: float
    of_the_machine: float
    of_this_process: float

    @classmethod
    def now(cls) -> "CpuTimes | None":
        """Read the clocks; None where there is no /proc/stat."""
        try:
            fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        except OSError:
            return None
        ticks = sum(int(fields[column]) for column in CPU_COLUMNS if column < len(fields))
        own = os.times()
        seconds = own.user + own.system + own.children_user + own.children_system
        return cls(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), seconds)


def cores_of_others(before: CpuTimes, after: CpuTimes) -> float:
    """Return how many cores other programs kept busy between two moments."""
    of_all = after.of_the_machine - before.of_the_machine
    own = after.of_this_process - before.of_this_process
    return max(0.0, (of_all - own) / (after.moment - before.moment))


class OtherPrograms:
    """Watches what other programs take of the CPU, from one question to the next."""

    def __init__(self) -> None:
        self._before = CpuTimes.now()

    def complaint(self, threads: int) -> str:
        """Return a sentence if other programs have used the cores that so many threads want since the last question; empty
        if they have not, or if nothing is known."""
        before, after = self._before, CpuTimes.now()
        if before is None or after is None or after.moment - before.moment < SHORTEST:
            return ""
        self._before = after
        return overload(cores_of_others(before, after), threads, os.cpu_count() or 1)


def overload(taken: float, threads: int, cores: int) -> str:
    """Return a sentence if other programs take cores that so many threads want; empty if they do not."""
    wanted = min(threads, cores)
    if wanted - (cores - taken) <= TAKEN * wanted:
        return ""
    return f"this machine is overloaded: other programs use {taken:.1f} of its {cores} cores, where regard wants {wanted}"
