"""Accumulators for unit tests, on a clock that the test sets."""

import asyncio
import random

from kafkalite_sdk._speedups.accumulator import RecordAccumulator

from kafkalite._speedups.records.batches import Batch

RECORD = b"v" * 100


class Clock:
    """A clock that a test sets, in seconds."""

    now = 0.0

    def __call__(self):
        return self.now


def misuse():
    raise RuntimeError("misuse")


def accumulator(clock=None, seed=1, **options):
    options = {
        "batch_size": 1000,
        "buffer_memory": 1 << 20,
        "wake": lambda: None,
        "refuse": misuse,
        "wait": misuse,
        **options,
    }
    return RecordAccumulator(
        asyncio.get_running_loop(),
        monotonic_s=clock or Clock(),
        choose=random.Random(seed).randrange,
        wall_ms=lambda: 1234,
        **options,
    )


def values(batch):
    return [record.value for record in Batch(batch.builder.build())]


def waiting(queue):
    """The values of all unsent records of a queue, in order."""
    batches = [*queue.full, *([queue.open] if queue.open is not None else [])]
    return [value for batch in batches for value in values(batch)]
