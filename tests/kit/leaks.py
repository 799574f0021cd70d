"""Does work leave memory behind? For code that refuses bad input and must forget it."""

import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perf.process import memory

GROWTH_KIB_MAX = 64 << 10
# AddressSanitizer keeps so much freed memory.
QUARANTINE_KIB = (256 << 10) if os.environ.get("KAFKALITE_ENGINE") == "asan" else 0


def heap_grown(work: Callable[[], object]) -> int:
    """How many bytes of Python's heap `work` leaves behind; it runs twice, as the first time fills caches."""
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@contextmanager
def bounded_memory() -> Iterator[None]:
    """The memory of this process grows by `GROWTH_KIB_MAX` at most, whatever the number of bad inputs."""
    before = memory(os.getpid()).resident
    yield
    grown_kib = (memory(os.getpid()).resident - before) >> 10
    assert grown_kib < GROWTH_KIB_MAX + QUARANTINE_KIB, f"{grown_kib} KiB more"
