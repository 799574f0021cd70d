"""The garbage collector of test processes: rarer collections, and none of what the collection of tests leaves.

With Python's threshold of 700 objects, a simulated cluster spends 8 % of its time in collections. The modules and items
of all tests stay until the end of the run: they are frozen, so that neither the collector nor a test that calls it
walks them.

Some tests ignore warnings of what is left unclosed: foreign clients forget sockets, exceptions are raised in a close.
It is collected with them, so that no later test has the warning.

`collector_restored` restores the collector after a test that runs `serve` in this process: `serve` watches collections,
and switches the collector off while state is loaded.
"""

import gc
from collections.abc import Generator, Iterator

import hypothesis
import pytest
from hypothesis import strategies

from kafkalite.gc_pause import PAUSE

COLLECT_AFTER = 200_000  # new objects


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Set the collector, and freeze what exists when the tests are collected."""
    gc.set_threshold(COLLECT_AFTER, 10, 10)
    gc.disable()
    try:
        collected = yield
        any_property()
        gc.freeze()
        return collected
    finally:
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter free all objects at its end: compiled libraries report those that are left."""
    gc.unfreeze()


@hypothesis.settings(max_examples=1, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(strategies.none())
def any_property(_: None) -> None:
    """Let hypothesis look up the referrers of its generator: it would not find those that are frozen."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    ignored = (each.args[0] for each in item.iter_markers("filterwarnings"))
    if any(each.startswith("ignore:unclosed") for each in ignored):
        gc.collect()


@pytest.fixture
def collector_restored() -> Iterator[None]:
    """The collector of the test process is afterwards as it was.

    Pauses of simulated brokers that were killed during a load, earlier in this process, have no end.
    """
    PAUSE._pauses = 0
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    PAUSE.enabled = False
    gc.collect(1)  # what the test leaves; what it has unfrozen is in the oldest generation
    gc.freeze()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.enable()
