"""The loads of quotas: the request that sets them, and the rate of clients that are throttled."""

import socket
import threading
from contextlib import closing, nullcontext, suppress
from unittest import mock

import pytest

from kafkalite._speedups.codec import decode, read_request_header
from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from perf.loads import quotas
from perf.wire import CLIENT, Pipe, api_versions


def test_request_sets_the_quotas_of_the_client_id() -> None:
    header = read_request_header(quotas.alter_quotas({"producer_byte_rate": 10.0, "request_percentage": 0.5})[4:])
    (entry,) = decode(AlterClientQuotasRequest, header.api_version, header.body).entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("client-id", CLIENT.decode())]
    assert [(op.key, op.value, op.remove) for op in entry.ops] == [
        ("producer_byte_rate", 10.0, False),
        ("request_percentage", 0.5, False),
    ]


def test_rate_is_that_of_the_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(quotas.time, "monotonic", lambda: now)

    def step() -> int:
        nonlocal now
        now += 0.25 if now < 10.0 else 0.5
        return 5

    assert quotas.rate(step, 10.0) == 10.0


def test_core_beside_a_client_is_its_part_of_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent, meter = 0.0, [7], mock.MagicMock()
    meter.__enter__.return_value.seconds = 8.0
    monkeypatch.setattr(quotas.time, "monotonic", lambda: now)
    monkeypatch.setattr(quotas, "CpuMeter", lambda _: meter)
    monkeypatch.setattr(quotas, "others", lambda _: nullcontext(sent))

    def step() -> int:
        nonlocal now
        now += 1.0
        sent[0] += 3
        return 1

    core = quotas.core_beside(mock.Mock(), step, 10.0)
    assert core == 8.0 / 10 / 4 and quotas.deviation(core) == 100


def test_each_response_is_followed_by_a_request() -> None:
    ours, theirs = socket.socketpair()
    response = (8).to_bytes(4, "big") + bytes(8)

    def answer() -> None:
        with theirs, theirs.makefile("rb") as stream, suppress(ConnectionResetError):
            while size := stream.read(4):
                stream.read(int.from_bytes(size, "big"))
                with suppress(OSError):  # the last response has no reader
                    theirs.sendall(response)

    thread = threading.Thread(target=answer)
    thread.start()
    with closing(ours):
        pipe = Pipe("", 0, [api_versions(1)], -4, ours)
        pipe.send(1)
        answered = quotas.served([pipe], 0.05)
    thread.join()
    assert answered == pipe.answered - 1 == pipe.sent - 2 > 0
