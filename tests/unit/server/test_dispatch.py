"""Tests what the dispatcher rejects before a handler is called."""

import logging
from copy import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite._speedups.codec import encode_request
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.requests.api import ROWS, Row
from kafkalite.server.requests.dispatch import Dispatcher
from kafkalite.slicing import Slicer
from kafkalite.testing.virtual_clock import VirtualClock

FetchTopic = FetchRequest.FetchTopic


class FakeReply:
    """Keeps why the connection was closed."""

    def __init__(self) -> None:
        self.connection = SimpleNamespace(peer_host="127.0.0.1", peer_port=1)
        self.reason = ""

    def close(self, reason: str) -> None:
        self.reason = reason

    def pause(self) -> None:
        """Requests behind this one would wait."""

    def resume(self, pinned: bool) -> None:
        """They are served."""


def serve(request: Any, version: int) -> tuple[list[Any], str]:
    """(requests that reached the handler, why the connection was closed)."""
    served: list[Any] = []
    row = copy(row_of(request).load())
    row.handler = lambda _call, request: served.append(request)
    return served, dispatch(row, request, version)


def row_of(request: Any) -> Row:
    return next(row for row in ROWS if row.api_key == request.api_key)


def dispatch(row: Row, request: Any, version: int) -> str:
    """Dispatch a request; returns why the connection was closed."""
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    log = RateLimitedLog(logging.getLogger("kafkalite.test"), cast(Any, clock))
    reply = FakeReply()
    frame = memoryview(encode_request(request, version, 1, None))
    broker = SimpleNamespace(
        authorizer=None,
        slicer=Slicer(VirtualClock(), lambda _call, error: pytest.fail(repr(error))),
        replicas=SimpleNamespace(write_pending=lambda: None),
    )
    Dispatcher(cast(Any, broker), (row,), log).request(cast(Any, reply), frame)
    return reply.reason


def test_failed_import_of_a_handler_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    request = MetadataRequest(topics=[])
    row = copy(row_of(request))
    row.module, row.loaded = "missing", False
    assert dispatch(row, request, 4) == "internal error"
    assert "Metadata cannot be served" in caplog.text


def test_fetch_of_many_topics_with_one_partition_is_served() -> None:
    topic = FetchTopic(topic="t", partitions=[FetchTopic.FetchPartition()])
    served, reason = serve(FetchRequest(topics=[topic] * 100_000), 4)
    assert reason == ""
    assert len(served[0].topics) == 100_000


def test_flood_of_empty_names_is_rejected_before_decoding() -> None:
    flood = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="")] * 1_000_000)
    served, reason = serve(flood, 1)
    assert served == []
    assert "more array elements than allowed" in reason
