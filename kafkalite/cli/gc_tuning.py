"""Tunes the garbage collector of `serve`: no object is walked by two long collections.

CPython's collector walks all objects of a generation without a break, on the thread that allocates: the first commits
of 100,000 groups cost the loop 84 ms in one collection of generation 1, and half a second in generation 2. It finds no
garbage: groups, topics and partitions are freed by their reference counts alone (a test deletes some with the collector
off). So the survivors of a long collection are frozen: later collections do not walk them.

Frozen objects are still freed by reference counts. The memory of a reference cycle that is alive at a freeze and
becomes garbage later is lost; freezes are as rare as growth by thousands of objects. An embedded broker does not use
this: its program has its own objects and cycles.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

COLLECT_AFTER = 20_000  # new objects: all objects of the requests of one loop iteration are in use together
MANY = 5 * COLLECT_AFTER  # so many at once were loaded with the collector off
LONG_S = 0.001  # of CPU time


class GcTuning:
    """Freezes the survivors of long collections.

    Arguments:
        cpu_s: the CPU time of this thread, in seconds.
    """

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._cpu_s = cpu_s
        self._began_s = 0.0

    def install(self) -> None:
        """Freeze all existing objects, and watch all further collections."""
        gc.set_threshold(COLLECT_AFTER, 10, 10)
        gc.freeze()
        gc.callbacks.append(self.watch)

    def watch(self, phase: str, info: Mapping[str, Any]) -> None:
        """Callback of the collector: `phase` is start or stop."""
        if phase == "start":
            if gc.get_count()[0] > MANY:
                gc.freeze()
            self._began_s = self._cpu_s()
        elif self._cpu_s() - self._began_s > LONG_S:
            gc.freeze()
