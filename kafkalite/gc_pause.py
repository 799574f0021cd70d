"""Pauses the garbage collector of the daemon while state is loaded: logs at a start, groups by their coordinator.

A collection walks all objects that were loaded so far, and finds no garbage: half of the CPU time of a start with 5,000
partitions, and 117 ms behind a load of a million offsets.

The collector belongs to the process, so pauses have no effect unless `serve` enables them: a program that embeds a
broker has its own objects and cycles.
"""

import gc


class GcPause:
    """Nested pauses of the collector, all on the loop's thread; the end of the last pause restores the collector.

    Attributes:
        enabled: pauses switch the collector off, and their end freezes all objects. Only `serve` sets it.
    """

    def __init__(self) -> None:
        self.enabled = False
        self._pauses = 0
        self._was_on = False

    def begin(self) -> None:
        """Switch the collector off, if pauses are enabled."""
        if not self._pauses and self.enabled:
            self._was_on = gc.isenabled()
            gc.disable()
        self._pauses += 1

    def end(self) -> None:
        """End a pause; the end of the last one freezes all objects and restores the collector."""
        self._pauses -= 1
        if self._pauses or not self.enabled:
            return
        gc.freeze()
        if self._was_on:
            gc.enable()


PAUSE = GcPause()
