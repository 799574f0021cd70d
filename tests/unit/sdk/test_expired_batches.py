"""A batch whose delivery timeout passes while its request is open keeps its bytes until the request has ended.

CVE-2026-35554: Kafka's producer reused the memory of such a batch, and sent the records of one topic to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from kafkalite_sdk._speedups.sender_core import ProduceCall
from kafkalite_sdk.producer.sender import Sender

import kafkalite.records  # noqa: F401 - registers the codecs
from kafkalite._speedups.records.batches import Batch
from tests.unit.sdk.senders import Producer

TIMES = {"delivery_timeout_s": 5.0, "max_in_flight": 5}


def contents(call: ProduceCall) -> dict[int, list[bytes | None]]:
    """The values that a socket would send for a request now, by partition."""
    (topic,) = call.request(-1, 1000).topic_data
    return {each.index: [record.value for record in Batch(bytes(each.records or b""))] for each in topic.partition_data}


async def send_while_an_expired_request_is_open() -> None:
    """The socket has not sent the first request when its batch expires and further batches leave."""
    producer = Producer(partitions=2, **TIMES)
    (late,) = producer.send(partition=0)
    (first,) = producer.requests()
    sent = contents(first)
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert late.exception() is not None
    producer.buffer.send("t", b"of another partition", partition=1)
    producer.buffer.close_batches(inf)
    (other,) = producer.requests()
    assert contents(first) == sent == {0: [b"0"]}
    assert contents(other) == {1: [b"of another partition"]}


async def test_expired_batch_of_an_open_request_keeps_its_bytes_cve_2026_35554() -> None:
    await send_while_an_expired_request_is_open()


class Pool:
    """A planted copy of the defect: batches are in buffers of a pool, which gets them back when they expire."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._used: list[bytearray] = []

    def fill(self, data: Any) -> bytearray:
        buffer = self._free.pop() if self._free else bytearray()
        buffer[:] = data
        self._used.append(buffer)
        return buffer

    def give_back(self) -> None:
        self._free, self._used = self._used, []


async def test_planted_pool_of_buffers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, requests, expire = Pool(), Sender.requests, Sender.expire

    def pooled(self: Sender, now: float) -> Iterator[ProduceCall]:
        for call in requests(self, now):
            for parts in call.topics.values():
                for part in parts:
                    part.records = pool.fill(part.records)
            yield call

    def expired(self: Sender, now: float) -> None:
        expire(self, now)
        pool.give_back()

    monkeypatch.setattr(Sender, "requests", pooled, raising=False)
    monkeypatch.setattr(Sender, "expire", expired)
    with pytest.raises(AssertionError):
        await send_while_an_expired_request_is_open()
