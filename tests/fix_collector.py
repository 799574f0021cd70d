"""Restores the garbage collector after a test that runs `serve` in this process.

`serve` freezes what exists and watches collections. Hypothesis asks for the referrers of an object, which are not found
among frozen ones, so a later test would fail.
"""

import gc
from collections.abc import Iterator

import pytest

from kafkalite.gc_pause import PAUSE


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
