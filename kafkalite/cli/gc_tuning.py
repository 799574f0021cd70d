"""The garbage collector of the daemon: no object is walked twice in long collections.

CPython's collector walks all objects of a generation in one go, on the thread that happens to allocate: the first
commits of 100,000 groups cost the loop 84 ms in one collection of generation 1, and half a second in generation 2.
It finds nothing: groups, topics and partitions are freed by their reference counts alone (a test deletes some with the
collector off). So the survivors of a long collection are frozen: later collections do not walk them.

Frozen objects are still freed by reference counts. Lost is the memory of a reference cycle that is alive at a freeze
and becomes garbage later; freezes are as rare as growth by thousands of objects. Only for a process of our own: a
program that embeds a broker has its own objects and cycles.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

COLLECT_AFTER = 20_000  # new objects: those of the requests of one loop iteration are alive together, and no garbage
MANY = 5 * COLLECT_AFTER  # so many at once are state that was loaded with the collector off
LONG_S = 0.001  # of CPU time


class GcTuning:
    """Freezes what long collections leave.

    Arguments:
        cpu_s: the CPU time of this thread, in seconds.
    """

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._cpu_s = cpu_s
        self._began_s = 0.0

    def install(self) -> None:
        """Freeze what exists, and watch all collections from now on."""
        gc.set_threshold(COLLECT_AFTER, 10, 10)
        gc.freeze()
        gc.callbacks.append(self.watch)

    def watch(self, phase: str, info: Mapping[str, Any]) -> None:
        """Called by the collector: `phase` is start or stop."""
        if phase == "start":
            if gc.get_count()[0] > MANY:
                gc.freeze()
            self._began_s = self._cpu_s()
        elif self._cpu_s() - self._began_s > LONG_S:
            gc.freeze()
