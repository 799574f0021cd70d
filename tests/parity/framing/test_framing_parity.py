"""The pipeline against its oracle, on random frames in random pieces with replies completed in random order."""

import random

import pytest

from kafkalite._speedups.net.framing import Limits
from kafkalite.net.memory_transport import MemoryHub
from tests.kit.seeds import chosen_seed
from tests.oracles import framing

SEED = chosen_seed()
REQUEST_BYTES_MAX = 1_000_000
TAILS = [b"", b"\0", b"\0\0\0\x64abc", b"GET / HTTP/1.1\r\n", b"\xff\xff\xff\xff", b"\x16\x03\x01\x02\x00"]


def chance(number=0):
    """Chance of its own for each round; printed, and replayed from KAFKALITE_SEED."""
    print(f"KAFKALITE_SEED={SEED}")
    return random.Random(SEED + number)


def uneven_clock(rng):
    """A clock by which now and then the time of a connection is used up, and now and then that of an iteration."""
    now_ns = 0

    def read():
        nonlocal now_ns
        now_ns += rng.choice([0, 0, 100_000, 1_000_000, 5_000_000])
        return now_ns

    return read


class Recorder:
    """Keeps a copy of every frame and answers some at once, some later, some never (acks=0)."""

    def __init__(self, rng):
        self.rng = rng
        self.frames = []
        self.bodies = []
        self.open = []

    def connected(self, connection):
        return True

    def disconnected(self, connection):
        pass

    def write_pending(self):
        pass

    def request(self, reply, frame):
        frame = bytes(frame)
        self.frames.append(frame)
        choice = self.rng.random()
        if choice < 0.1:
            self.bodies.append(None)
            reply.skip()
            return
        body = frame[:40] + len(frame).to_bytes(4, "big")
        self.bodies.append(body)
        if choice < 0.6:
            reply.send([body[:10], body[10:]])
        else:
            self.open.append((reply, body))

    def complete_all(self):
        self.rng.shuffle(self.open)
        for reply, body in self.open:
            reply.send(body)
        self.open.clear()


def random_stream(rng):
    sizes = [8, 9, 13, 14, 100, 4091, 4096, 4097, 32_000, 65_536, 262_140, 262_144, 300_000, REQUEST_BYTES_MAX]
    stream = bytearray()
    for _ in range(rng.randrange(1, 60)):
        size = rng.choice(sizes[:7]) if rng.random() < 0.9 else rng.choice(sizes)
        stream += size.to_bytes(4, "big") + rng.randbytes(size)
    return bytes(stream + rng.choice(TAILS))


@pytest.mark.parametrize("repetition", range(60))
def test_random_fragments_give_the_frames_of_the_twin(repetition):
    rng = chance(repetition)
    stream = random_stream(rng)
    service = Recorder(rng)
    client = MemoryHub(service, Limits(request_bytes_max=REQUEST_BYTES_MAX), uneven_clock(rng)).connect()
    received = bytearray()
    at = 0
    while at < len(stream):
        n = rng.choice([1, 3, 4, 5, 100, 5_000, 70_000, 400_000])
        client.send(stream[at : at + n])
        at += n
        if rng.random() < 0.3:
            service.complete_all()
            client.hub.pump()
        received += client.take_received()
    closed = client.connection.closed
    service.complete_all()
    client.hub.pump()
    received += client.take_received()
    expected, refused = framing.frames(stream, REQUEST_BYTES_MAX)
    assert service.frames == expected
    assert closed == refused
    answers = framing.answers(service.bodies)
    assert answers.startswith(bytes(received)) if refused else bytes(received) == answers


@pytest.mark.parametrize("repetition", range(20))
def test_open_requests_stall_as_in_the_twin(repetition):
    rng = chance(repetition)
    sent = [rng.randbytes(rng.choice([8, 100, 4_097, 65_536, 300_000])) for _ in range(60)]
    limit = rng.choice([1, 500, 70_000, 500_000, 100_000_000])
    service = Recorder(rng)
    service.request = lambda reply, frame: service.open.append((reply, bytes(frame)))
    client = MemoryHub(service, Limits(requests_bytes_max=limit), uneven_clock(rng)).connect()
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in sent)
    while stream:
        n = rng.choice([5, 5_000, 70_000, 400_000])
        client.send(stream[:n])
        stream = stream[n:]
    waiting, received = list(sent), bytearray()
    while waiting:
        count = framing.served(waiting, limit)
        assert [body for _, body in service.open] == waiting[:count]
        del waiting[:count]
        service.complete_all()
        client.hub.pump()
        received += client.take_received()
    assert bytes(received) == framing.answers(sent)
    assert client.connection.requests_bytes == 0 and not client.connection.stalled


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_single_bytes_give_the_same_frames_as_one_chunk(size):
    rng = chance()
    stream = b"".join(n.to_bytes(4, "big") + rng.randbytes(n) for n in (8, 20, 5000, 9, 8, 4096))
    whole, pieces = Recorder(random.Random(1)), Recorder(random.Random(1))
    MemoryHub(whole).connect().send(stream)
    client = MemoryHub(pieces).connect()
    for at in range(0, len(stream), size):
        client.send(stream[at : at + size])
    assert len(whole.frames) == 6
    assert pieces.frames == whole.frames
