"""Objects that hold a memoryview in a cycle of garbage are collected, and release it."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from kafkalite._speedups.codec.incremental_decoder import IncrementalDecoder
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.records import Batch, Builder


class Cycle:
    """An object that is garbage only for the collector."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.itself = self


def batch() -> bytes:
    builder = Builder()
    builder.append(1000, b"key", b"value", [])
    return builder.build()


HOLDERS: dict[str, Callable[[memoryview], object]] = {
    "Batch": Batch,
    "FetchedRecords": lambda data: FetchedRecords(RecordDecoder(), "orders", 0, data, 0),
    "IncrementalDecoder": lambda data: IncrementalDecoder(MetadataRequest, 12, data, False, 10),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_memoryview_in_a_cycle_of_garbage_is_released(name: str) -> None:
    data: Any = bytearray(batch())
    view = memoryview(data)[:]  # older than its holder, so the collector clears it first
    gc.disable()
    try:
        cycle = Cycle(HOLDERS[name](view))
        del view, cycle
        gc.collect()
    finally:
        gc.enable()
    data += b"more"  # a BufferError if it is still exported
