"""The garbage collector of test processes: rarer collections, and none while tests are collected.

With Python's threshold of 700 objects, a simulated cluster spends 8 % of its time in collections.

`collector_restored` restores the collector after a test that runs `serve` in this process. `serve` freezes what exists
and watches collections. Hypothesis asks for the referrers of an object, which are not found among frozen ones, so a
later test would fail.
"""

import gc
from collections.abc import Generator, Iterator

import pytest

from kafkalite.gc_pause import PAUSE

COLLECT_AFTER = 20_000  # new objects, as in `serve`


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Set the collector; what is created while tests are collected stays until the end of the run."""
    gc.set_threshold(COLLECT_AFTER, 10, 10)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture
def collector_restored() -> Iterator[None]:
    """The collector of the test process is afterwards as it was.

    Pauses of simulated brokers that were killed during a load, earlier in this process, have no end.
    """
    PAUSE._pauses = 0
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    PAUSE.enabled = False
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.enable()
