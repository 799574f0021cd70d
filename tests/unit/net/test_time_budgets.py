"""How long one connection, and all of them together, may keep a loop iteration busy."""

import asyncio

import pytest

from kafkalite._speedups.net.framing import Limits
from kafkalite.net.memory_transport import MemoryHub
from tests.unit.net.rig import Echo, Rig, both_loops, frame, read_frame, round_trip

MS = 1_000_000


class Dear(Echo):
    """Every request takes a millisecond of a clock of its own."""

    def __init__(self):
        super().__init__()
        self.now_ns = 0
        self.answer = self.work

    def work(self, body):
        self.now_ns += MS
        return bytes(body)


@pytest.fixture
def service():
    return Dear()


@pytest.fixture
def hub(service):
    return MemoryHub(service, Limits(connection_budget_ns=2 * MS, iteration_budget_ns=6 * MS), lambda: service.now_ns)


def arrive(client, data):
    """`data` is in the socket, and no iteration has begun."""
    client.connection.inbox += data
    client.connection.touch()


def iterations(hub):
    """Run the iterations one by one; how long each was, in ms of the service's clock."""
    while hub.wanted:
        hub.wanted = False
        before = hub.service.now_ns
        hub.run()
        yield (hub.service.now_ns - before) // MS


def numbered(count, first=0):
    return b"".join(frame(b"request-" + str(number).encode()) for number in range(first, first + count))


def test_connection_budget_per_iteration_keeps_request_order(hub):
    client = hub.connect()
    arrive(client, numbered(21))
    assert list(iterations(hub)) == [2] * 10 + [1]
    assert bytes(client.connection.sent) == numbered(21)


def test_all_connections_share_the_time_budget_of_an_iteration(hub, service):
    clients = [hub.connect() for _ in range(10)]
    for client in clients:
        arrive(client, numbered(20))
    behind = []
    for used in iterations(hub):
        assert used <= 6 + 1
        served = [bytes(client.connection.sent).count(b"request-") for client in clients]
        behind.append(max(served) - min(served))
    assert service.frames == 200 and max(behind) <= 4
    assert all(bytes(client.connection.sent) == numbered(20) for client in clients)


def test_new_request_is_not_delayed_by_a_pipelined_backlog(hub, service):
    hog, client = hub.connect(), hub.connect()
    arrive(hog, numbered(1000))
    steps = iterations(hub)
    next(steps)
    arrive(client, frame(b"in a hurry"))
    next(steps)
    assert bytes(client.connection.sent) == frame(b"in a hurry")
    assert service.frames == 5
    assert sum(steps) == 996
    assert bytes(hog.connection.sent) == numbered(1000)


def test_response_is_not_delayed_by_many_backlogs(hub, service):
    hogs, client = [hub.connect() for _ in range(40)], hub.connect()
    for hog in hogs:
        arrive(hog, numbered(20))
    steps = iterations(hub)
    while any(not hog.connection.sent for hog in hogs):
        next(steps)
    arrive(client, frame(b"in a hurry"))
    next(steps)
    next(steps)
    assert bytes(client.connection.sent) == frame(b"in a hurry")
    assert sum(steps) > 600
    assert all(bytes(hog.connection.sent) == numbered(20) for hog in hogs)


def test_request_above_the_time_budget_is_served(hub, service):
    service.answer = lambda body: [service.work(body) for _ in range(50)].pop()
    client = hub.connect()
    arrive(client, numbered(3))
    assert [used for used in iterations(hub) if used] == [50, 50, 50]
    assert bytes(client.connection.sent) == numbered(3)


def test_half_closed_client_receives_all_responses_over_iterations(hub):
    client = hub.connect()
    arrive(client, numbered(9))
    client.connection.finished = True
    client.connection.hang_up()
    assert sum(iterations(hub)) == 9
    assert bytes(client.connection.sent) == numbered(9)
    assert client.connection.closed and client.connection.reason == "end of stream"


def test_exception_in_flush_closes_deferred_connections(hub, service):
    client = hub.connect()
    arrive(client, numbered(9))

    def fail():
        service.at_flush = lambda: None
        raise OSError("planted")

    service.at_flush = fail
    assert sum(iterations(hub)) <= 2
    assert client.connection.reason == "internal error"


@both_loops
async def test_deep_pipeline_does_not_delay_another_client():
    async with Rig(connection_budget_ns=1) as rig:  # one request per visit
        hog = await rig.open()
        hog[1].write(numbered(3000))
        assert await read_frame(hog[0]) == b"request-0"
        (await round_trip(rig)).close()
        assert rig.echo.frames < 1500
        received = [await read_frame(hog[0]) for _ in range(2999)]
        assert b"".join(map(frame, received)) == numbered(2999, first=1)
        hog[1].close()


@both_loops
async def test_many_pipelines_with_the_smallest_budget_keep_request_order():
    async with Rig(connection_budget_ns=1, iteration_budget_ns=1) as rig:
        clients = [await rig.open() for _ in range(100)]
        for _, writer in clients:
            writer.write(numbered(20))

        async def read(reader):
            return b"".join([frame(await read_frame(reader)) for _ in range(20)])

        assert await asyncio.gather(*(read(reader) for reader, _ in clients)) == [numbered(20)] * 100
        for _, writer in clients:
            writer.close()
