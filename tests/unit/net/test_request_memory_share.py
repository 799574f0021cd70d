"""The share of a principal in the request memory: its connections wait when it is full, and no others."""

from random import Random

import pytest

from kafkalite._speedups.net.framing import Limits
from kafkalite._speedups.net.request_memory import RequestMemoryShare
from kafkalite.net.memory_transport import MemoryHub
from tests.kit.seeds import chosen_seed
from tests.unit.net.rig import Echo, Rig, both_loops, frame, read_frame, round_trip, until

SHARE = 20_000
SMALL = 4 * 1024  # each connection may hold this much
BODY = b"x" * 5_000
LARGE = b"y" * 700_000


class SharedEcho(Echo):
    """Adds the connections of the listeners or drivers to the share."""

    def __init__(self, limit=SHARE):
        super().__init__()
        self.full = 0
        self.share = RequestMemoryShare(limit, self.count_full)
        self.later = lambda frame: True

    def count_full(self):
        self.full += 1

    def connected(self, connection):
        if connection.listener == "shared":
            self.share.add(connection)
        return super().connected(connection)

    def answer_one(self):
        reply, body = self.open.pop(0)
        reply.send(body)


def answer_all(echo, *hubs):
    while echo.open:
        echo.answer_one()
        for hub in hubs:
            hub.pump()


def test_full_share_stops_reading_of_its_connections_alone():
    echo = SharedEcho()
    hub = MemoryHub(echo)
    first, second, other = hub.connect("shared"), hub.connect("shared"), hub.connect()
    first.send(frame(BODY) * 10)
    assert first.connection.denied and SHARE <= echo.share.held_bytes <= SHARE + len(BODY)
    second.send(frame(BODY) * 10)
    assert second.connection.denied and echo.share.held_bytes <= SHARE + len(BODY) + SMALL
    assert (echo.full, echo.share.waiting_count) == (1, 2)
    served = echo.frames
    other.send(frame(BODY) * 10)
    assert echo.frames == served + 10 and not other.connection.denied
    answer_all(echo, hub)
    for client in (first, second, other):
        assert client.take_received() == frame(BODY) * 10
    assert (echo.share.held_bytes, echo.share.waiting_count, hub.memory.held_bytes) == (0, 0, 0)


def test_small_requests_are_served_while_the_share_is_full():
    echo = SharedEcho()
    hub = MemoryHub(echo)
    hog, client = hub.connect("shared"), hub.connect("shared")
    hog.send(frame(BODY) * 10)
    echo.later = lambda body: body[:1] == b"x"
    for _ in range(10):
        client.send(frame(b"heartbeat"))
        assert client.take_received() == frame(b"heartbeat")


def test_requests_larger_than_the_share_are_received_one_by_one():
    echo = SharedEcho()
    hub = MemoryHub(echo)
    clients = [hub.connect("shared") for _ in range(4)]
    for client in clients:
        client.send(frame(LARGE))
    assert echo.frames == 1, "the others wait until it is answered"
    assert echo.share.held_bytes <= len(LARGE) + 4 * SMALL
    answer_all(echo, hub)
    assert [client.take_received() for client in clients] == [frame(LARGE)] * 4
    assert (echo.share.held_bytes, echo.share.waiting_count) == (0, 0)


def test_memory_that_is_free_again_is_for_as_many_connections_as_it_has_space_for():
    echo = SharedEcho(400_000)
    hub = MemoryHub(echo)
    hog = hub.connect("shared")
    hog.send(frame(b"x" * 200_000) * 2)
    clients = [hub.connect("shared") for _ in range(40)]
    for client in clients:
        client.send(frame(b"y" * 20_000))
    assert echo.share.waiting_count == 40 and echo.frames == 2
    echo.answer_one()
    hub.pump()
    assert 30 <= echo.share.waiting_count <= 37, "those that wait longest"
    answer_all(echo, hub)
    assert [client.take_received() for client in clients] == [frame(b"y" * 20_000)] * 40


def test_closed_connections_free_their_share():
    echo = SharedEcho()
    hub = MemoryHub(echo)
    hog, waiting, leaving = [hub.connect("shared") for _ in range(3)]
    hog.send(frame(BODY) * 10)
    for client in (leaving, waiting):
        client.send(frame(BODY) * 2)
    assert echo.share.waiting_count == 3 and echo.share.connections_count == 3
    before = echo.frames
    leaving.close()
    hog.close()
    assert echo.frames == before + 2, "those of the connection that is left"
    waiting.close()
    assert (echo.share.held_bytes, echo.share.waiting_count, echo.share.connections_count) == (0, 0, 0)


def test_connections_of_all_drivers_have_one_share():
    echo = SharedEcho()
    hubs = MemoryHub(echo), MemoryHub(echo)
    first, second = (hub.connect("shared") for hub in hubs)
    first.send(frame(BODY) * 5)
    second.send(frame(BODY) * 2)
    assert second.connection.denied
    answer_all(echo, *hubs)
    assert second.take_received() == frame(BODY) * 2 and not echo.share.held_bytes


def test_connection_that_holds_bytes_when_it_is_added_is_counted():
    echo = SharedEcho()
    hub = MemoryHub(echo)
    client = hub.connect()
    client.send(frame(BODY))
    echo.share.add(client.connection)
    echo.share.add(client.connection)
    assert (echo.share.held_bytes, echo.share.connections_count) == (len(BODY), 1)
    answer_all(echo, hub)
    assert echo.share.held_bytes == 0


def test_client_that_does_not_complete_its_frame_is_closed_while_its_share_is_awaited():
    echo = SharedEcho()
    hub = MemoryHub(echo)
    slow, waiting = hub.connect("shared"), hub.connect("shared")
    slow.send(frame(LARGE)[:-1])
    assert slow.connection.overdue(0, -1, 30, False) is None
    assert slow.connection.overdue(60, -1, 30, False) is None, "no other one waits"
    waiting.send(frame(BODY))
    assert waiting.connection.denied
    assert "while other connections waited for memory" in slow.connection.overdue(120, -1, 30, False)
    assert waiting.connection.overdue(120, -1, 30, False) is None
    slow.close()
    assert echo.frames == 1


@pytest.mark.parametrize("case", range(20))
def test_random_requests_of_shares_in_a_small_memory_are_all_served(case):
    """Neither the memory nor the shares may wait for each other."""
    seed = chosen_seed() + case
    print(f"KAFKALITE_SEED={seed}")
    random = Random(seed)
    echo = SharedEcho()
    shares = [echo.share, RequestMemoryShare(random.randrange(1, 50_000), lambda: None)]
    limits = Limits(
        all_requests_bytes_max=random.randrange(50_000, 200_000), guaranteed_bytes=random.randrange(1, 10_000)
    )
    hubs = [MemoryHub(echo, limits) for _ in range(2)]
    clients = [random.choice(hubs).connect() for _ in range(12)]
    for client in clients:
        random.choice(shares).add(client.connection)
    wanted = [b"".join(frame(random.randbytes(random.randrange(8, 60_000))) for _ in range(5)) for _ in clients]
    unsent = dict(enumerate(wanted))
    received = [b""] * len(clients)
    while unsent or echo.open:
        if unsent and (random.random() < 0.7 or not echo.open):
            at = random.choice(list(unsent))
            size = random.choice((1, 100, 5_000, 100_000))
            clients[at].send(unsent[at][:size])
            unsent[at] = unsent[at][size:]
            if not unsent[at]:
                del unsent[at]
        else:
            reply, body = echo.open.pop(random.randrange(len(echo.open)))
            reply.send(body)
        while any(hub.wanted for hub in hubs):
            for hub in hubs:
                hub.pump()
    for at, client in enumerate(clients):
        while more := client.take_received():
            received[at] += more
        client.close()
    assert received == wanted
    assert [(each.held_bytes, each.waiting_count, each.connections_count) for each in shares] == [(0, 0, 0)] * 2


@both_loops
@pytest.mark.parametrize("encrypted", [False, True])
async def test_paused_connections_over_sockets_continue(encrypted, contexts):
    served, trusted = contexts if encrypted else (None, None)
    async with Rig(served) as rig:
        echo = rig.echo
        share = RequestMemoryShare(SHARE, lambda: None)
        opened = [await rig.open(trusted) for _ in range(6)]
        await until(lambda: len(echo.connections) == 6)
        for connection in echo.connections:
            share.add(connection)
        echo.later = lambda body: body[:1] == b"x"
        for _, writer in opened:
            writer.write(frame(BODY) * 8)
        await until(lambda: share.waiting_count)
        (await round_trip(rig, b"not limited", trusted)).close()
        answered = 0
        while answered < 6 * 8:
            await until(lambda: echo.open)
            reply, body = echo.open.pop(0)
            reply.send(body)
            answered += 1
        for reader, writer in opened:
            for _ in range(8):
                assert await read_frame(reader) == BODY
            writer.close()
        await until(lambda: not share.connections_count)
        assert (share.held_bytes, share.waiting_count) == (0, 0)
