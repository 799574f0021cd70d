"""Bad frames in process: the connection is closed or waits, the memory it owns follows what arrived, others go on.

Takes a twentieth of --fuzz-inputs. Replays from KAFKALITE_SEED.
"""

import random

import pytest

from kafkalite._speedups.net.framing import Limits
from kafkalite.net.memory_transport import MemoryHub
from tests.kit.seeds import chosen_seed
from tests.oracles import framing

SEED = chosen_seed()
SHARE = 20
REQUEST_BYTES_MAX = 1 << 20
HELLOS = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /topics HTTP/1.0\r\n\r\n",
    bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(500),
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\0" * 100,
    b"\xff" * 100,
]


class Counting:
    def __init__(self):
        self.frames = []
        self.gone = 0

    def connected(self, connection):
        return True

    def disconnected(self, connection):
        self.gone += 1

    def write_pending(self):
        pass

    def request(self, reply, frame):
        self.frames.append(bytes(frame))
        reply.send(bytes(frame[:8]))


def size_bytes(size):
    return size.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize(
    "size", [-(2**31), -2, -1, *range(8), REQUEST_BYTES_MAX + 1, 2**31 - 1, 0x47455420, 0x16030102]
)
def test_a_size_out_of_bounds_closes_at_once(size):
    service = Counting()
    client = MemoryHub(service, Limits(request_bytes_max=REQUEST_BYTES_MAX)).connect()
    client.send(size_bytes(8) + b"12345678" + size_bytes(size) + b"x" * 100)
    assert client.connection.closed and service.gone == 1
    assert service.frames == [b"12345678"]
    assert f"{size} bytes" in client.connection.reason


@pytest.mark.parametrize("size", [8, 9, 10, 11, 12, 13])
def test_short_frame_is_passed_to_the_service(size):
    service = Counting()
    MemoryHub(service).connect().send(size_bytes(size) + b"x" * size)
    assert service.frames == [b"x" * size]


@pytest.mark.parametrize("hello", HELLOS, ids=lambda hello: repr(hello[:8]))
def test_other_protocols_are_closed(hello):
    service = Counting()
    client = MemoryHub(service).connect()
    client.send(hello)
    assert client.connection.closed and service.frames == []


def test_memory_grows_with_received_bytes_not_with_the_size_field():
    hub = MemoryHub(Counting())
    client = hub.connect()
    client.send(size_bytes(100_000_000) + b"only this")
    assert client.connection.kept_bytes <= 256
    for _ in range(40):
        client.send(bytes(10_000))
    assert client.connection.kept_bytes <= 4 * 400_013
    client.close()
    assert client.connection.kept_bytes == 0


def random_input(rng):
    """Frames, most of them whole, with one thing wrong in some of them."""
    stream = bytearray()
    for _ in range(rng.randrange(1, 8)):
        size = rng.choice([8, 13, 14, 40, 200, 5_000])
        stream += size_bytes(size) + rng.randbytes(size)
    wrong = rng.random()
    if wrong < 0.2:
        at = rng.randrange(len(stream))
        stream[at] ^= 1 << rng.randrange(8)
    elif wrong < 0.4:
        del stream[rng.randrange(len(stream)) :]
    elif wrong < 0.5:
        stream += rng.choice(HELLOS)
    elif wrong < 0.6:
        stream += size_bytes(rng.choice([-1, 0, 7, REQUEST_BYTES_MAX + 1, 2**31 - 1]))
    return bytes(stream)


@pytest.mark.fuzz
def test_random_damage_hurts_its_own_connection_only(fuzz_inputs):
    print(f"KAFKALITE_SEED={SEED}")
    rng = random.Random(SEED)
    count = fuzz_inputs // SHARE
    service = Counting()
    hub = MemoryHub(service, Limits(request_bytes_max=REQUEST_BYTES_MAX))
    bystander = hub.connect()
    closed = frames = 0
    for number in range(count):
        stream = random_input(rng)
        service.frames.clear()
        client = hub.connect()
        cut = rng.randrange(len(stream) + 1)
        client.send(stream[:cut])
        if not client.connection.closed:
            client.send(stream[cut:])
        expected, refused = framing.frames(stream, REQUEST_BYTES_MAX)
        assert service.frames == expected, f"KAFKALITE_SEED={SEED}, input {number}"
        assert client.connection.closed == refused, f"KAFKALITE_SEED={SEED}, input {number}"
        assert client.connection.kept_bytes <= 4 * max(256, len(stream))
        closed += refused
        frames += len(expected)
        client.close()
        if number % 100 == 0:
            service.frames.clear()
            bystander.send(size_bytes(8) + b"innocent")
            assert bystander.take_received() == size_bytes(8) + b"innocent"
    print(f"framing fuzz: {count} inputs, {frames} frames, {closed} closed")
    assert closed > count // 10 and frames > count
