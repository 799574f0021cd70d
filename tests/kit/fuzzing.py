"""Bad input on a socket: a blocking client that sends any bytes, and requests of which one piece is corrupted.

A request is encoded here a second time, field by field, because a fuzzer has to know where each length, count, number
and tag stands. Values lean towards what the broker knows (topics, partitions), so that most requests get past the
checks of names and reach the rooms behind.
"""

import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite._speedups import codec
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.schema import Layout, Request, Slot, Wire
from tests.kit.message_versions import RESPONSES
from tests.kit.record_engines import build, damaged, sealed, small_batch, with_fields
from tests.oracles.codec import STRUCTS, layout_of, uvarint

ANSWER_S = 120.0
PATHS = (
    *(
        "..",
        ".",
        "/",
        "../../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a\0b",
        "a\nb",
        "~",
        "",
        "x" * 249,
        "x" * 250,
    ),
    *("__consumer_offsets", "__transaction_state", "a.b", "a_b", "%s%n", "Zürich", "y" * 32_767, ".kafkalite-format"),
)
TOPICS = ("fuzz", "fuzz", "fuzz", "fuzz-compact", "fuzz-other", "never-made")
CONFIG_KEYS = (
    "retention.bytes",
    "cleanup.policy",
    "max.message.bytes",
    "segment.bytes",
    "no.such.key",
    "num.partitions",
)
CONFIG_VALUES = ("", "-1", "0", "1048588", "compact", "delete", "9" * 40, "nan")
SIZES_HURT = (-2, 0, 1, 2**31 - 1, 2**31 - 2, 100_000_000, 65_536, -(2**31))
VARINTS_HURT = (b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x00", b"\x80\x00", b"\x80")
BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
PING_ID = 0x50494E47


# ---- the client -----------------------------------------------------------------------------------------------------


class BlockingClient:
    """One connection that can send any bytes; a broker that sends nothing for 30 seconds is a failure."""

    def __init__(self, port: int, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> bool:
        """Whether the broker was still there to take it."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def end(self) -> None:
        """Say that nothing more comes."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            if not isinstance(error, ConnectionError) and error.errno != 107:  # ENOTCONN: closed meanwhile
                raise

    def receive(self) -> bytes | None:
        """The next answer without its size, or None when the connection was closed."""
        head = self.receive_all(4)
        return None if head is None else self.receive_all(int.from_bytes(head, "big"))

    def receive_all(self, count: int) -> bytes | None:
        """That many bytes, or None when the connection was closed before."""
        parts = []
        while count:
            try:
                part = self.socket.recv(count)
            except ConnectionResetError:
                return None
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def ask(self, request: Request, version: int) -> Any:
        """Send a good request and return its decoded answer; AssertionError if the connection is closed instead."""
        assert self.send(framed(codec.encode_request(request, version, 7, "good")))
        answer = self.receive()
        assert answer is not None, f"{type(request).__name__} v{version}: closed instead of answered"
        return read_answer(type(request), version, 7, answer)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def framed(frame: bytes) -> bytes:
    """A frame behind its size."""
    return struct.pack(">i", len(frame)) + frame


def read_answer(request: type[Request], version: int, correlation_id: int, answer: bytes) -> Any:
    """Decode an answer to its last byte; AssertionError when it belongs to another request."""
    response = RESPONSES[request.api_key]
    received, body = codec.read_response_header(response, version, answer)
    assert received == correlation_id, f"answer to {received}, not to {correlation_id}"
    return codec.decode(response, version, body)


PING = framed(codec.encode_request(ApiVersionsRequest(), 0, PING_ID, "ping"))


def is_ping(answer: bytes) -> bool:
    """Whether this answers PING."""
    return answer[:4] == struct.pack(">i", PING_ID)


# ---- the process ----------------------------------------------------------------------------------------------------


def memory_peak_kib(pid: int) -> int:
    """VmHWM: the most memory the process ever held, in KiB."""
    return _status_kib(pid, "VmHWM")


def memory_kib(pid: int) -> int:
    """VmRSS: the memory that the process holds, in KiB."""
    return _status_kib(pid, "VmRSS")


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no {name}")


def open_files(pid: int) -> int:
    """How many descriptors the process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def complaints(log: str) -> list[str]:
    """The lines of a broker's log that report a bug or an unforeseen exception."""
    wrong = ("Traceback", "ERROR", "CRITICAL", "AddressSanitizer", "runtime error:", "never awaited")
    return [line for line in log.splitlines() if any(word in line for word in wrong)]


# ---- values ---------------------------------------------------------------------------------------------------------


def random_records(rng: random.Random) -> bytes:
    """A good batch in most cases, else one with a single lie."""
    if rng.random() < 0.4:
        return build(*((1_700_000_000_000 + i, b"k%d" % i, rng.randbytes(20)) for i in range(rng.choice((1, 3)))))
    return hurt_batch(rng)


def hurt_batch(rng: random.Random) -> bytes:
    """A batch with a wrong CRC, magic, codec, count, length, producer, or bytes changed anywhere."""
    good = small_batch(rng)
    way = rng.randrange(9)
    if way == 0:
        return with_fields(good, crc=rng.getrandbits(32))
    if way == 1:
        return with_fields(good, magic=rng.choice((0, 1, 3, 255)))
    if way == 2:
        return with_fields(good, attributes=rng.choice((5, 6, 7, 0x10, 0x20, 0x08, 0x40, -1)))
    if way == 3:
        return with_fields(good, last_offset_delta=rng.choice((-1, 0, 1000, 2**31 - 1)))
    if way == 4:
        return with_fields(good, records_count=rng.choice((-1, 0, 1000, 2**31 - 1)))
    if way == 5:
        return with_fields(good, batch_length=rng.choice((-1, 0, 48, 49, len(good), 2**31 - 1)))
    if way == 6:
        return with_fields(
            good, producer_id=rng.choice((-2, 0, 5)), producer_epoch=rng.choice((-1, 0)), base_sequence=0
        )
    if way == 7:
        return sealed(good + good) if rng.random() < 0.5 else good + good
    return damaged(rng, good)


class Vocabulary:
    """Draws values by the name of their field; `topic_ids` are those of topics that exist."""

    def __init__(self, rng: random.Random, topic_ids: list[bytes]) -> None:
        self.rng = rng
        self.topic_ids = topic_ids

    def draw(self, name: str, kind: str) -> Any:
        rng = self.rng
        if kind == "records":
            return random_records(rng)
        if kind == "uuid":
            return rng.choice((*self.topic_ids, bytes(16), rng.randbytes(16)))
        if kind == "string":
            return self._text(name)
        if kind == "binary":
            return rng.randbytes(rng.choice((0, 1, 100)))
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "float64":
            return 0.5
        return self._number(name, kind)

    def _text(self, name: str) -> str:
        if name == "value":
            return self.rng.choice(CONFIG_VALUES)
        if name in ("config_names", "configs") or (name == "name" and self.rng.random() < 0.3):
            return self.rng.choice(CONFIG_KEYS)
        return self.rng.choice(TOPICS) if self.rng.random() < 0.9 else self.rng.choice(PATHS)

    def _number(self, name: str, kind: str) -> int:
        rng = self.rng
        if name in ("max_wait_ms", "timeout_ms"):
            return rng.choice((0, 1, 5))
        if name in ("num_partitions", "count"):
            return rng.choice((-1, 0, 1, 2, 3))
        if name.endswith("epoch"):
            return rng.choice((-1, -1, 0, 1))
        if name == "acks":
            return rng.choice((-1, 1, -1, 1, -1, 1, 0, 2))
        if name in ("max_bytes", "partition_max_bytes", "fetch_offset", "offset", "min_bytes"):
            return rng.choice((0, 1, 100, 1 << 16))
        return rng.choice((0, 0, 0, 1, 2, -1)) if kind != "uint32" and kind != "uint16" else rng.choice((0, 1))


# ---- requests in pieces ---------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A few bytes of a request and what they are: a type of the wire, "size", "count", "tag" or "presence"."""

    kind: str
    data: bytes
    flexible: bool = False
    number: int = 0  # of a size


class Pieces:
    """Writes a random request as a list of pieces."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.rng = vocabulary.rng

    def request(self, cls: type[Request], version: int, correlation_id: int) -> list[Piece]:
        """The frame, header included, without its size."""
        flexible = version >= cls.flexible
        name = b"fuzz"
        head = [
            Piece("int16", struct.pack(">h", cls.api_key)),
            Piece("int16", struct.pack(">h", version)),
            Piece("correlation", struct.pack(">i", correlation_id)),
            Piece("size", struct.pack(">h", len(name)), False, len(name)),
            Piece("text", name),
        ]
        layout = layout_of(cls, version)
        assert layout is not None
        tags = [Piece("count", b"\0", True)] if flexible else []
        return head + tags + self._struct(layout)

    def _struct(self, layout: Layout) -> list[Piece]:
        out = [piece for slot in layout.fields for piece in self._slot(slot, layout.flexible)]
        if not layout.flexible:
            return out
        sent = [slot for slot in layout.tagged if self.rng.random() < 0.3]
        out.append(Piece("count", uvarint(len(sent)), True))
        for slot in sent:
            inner = self._slot(slot, True)
            size = sum(len(piece.data) for piece in inner)
            out += [Piece("tag", uvarint(slot.tag), True), Piece("size", uvarint(size), True, size), *inner]
        return out

    def _slot(self, slot: Slot, flexible: bool) -> list[Piece]:
        kind = slot.wire.kind
        if slot.nullable and self.rng.random() < (0.95 if slot.name == "transactional_id" else 0.15):
            return [Piece("presence", b"\xff")] if kind == "struct" else [self._size(kind, -1, flexible)]
        if slot.wire.element is not None:
            count = self.rng.choice((0, 1, 1, 1, 2))
            items = [piece for _ in range(count) for piece in self._value(slot, slot.wire.element, flexible)]
            return [self._size("array", count, flexible), *items]
        present = [Piece("presence", b"\x01")] if kind == "struct" and slot.nullable else []
        return present + self._value(slot, slot.wire, flexible)

    def _value(self, slot: Slot, wire: Wire, flexible: bool) -> list[Piece]:
        if wire.kind == "struct":
            assert slot.struct is not None
            return self._struct(slot.struct)
        value = self.vocabulary.draw(slot.name, wire.kind)
        if slot.name in ("num_partitions", "count"):
            return [Piece("partitions", STRUCTS[wire.kind].pack(value))]
        if wire.kind in STRUCTS:
            return [Piece(wire.kind, STRUCTS[wire.kind].pack(value))]
        if wire.kind in ("uuid", "boolean"):
            return [Piece(wire.kind, bytes([value]) if wire.kind == "boolean" else value)]
        content = value.encode() if wire.kind == "string" else value
        return [self._size(wire.kind, len(content), flexible), Piece("text", content)]

    def _size(self, kind: str, number: int, flexible: bool) -> Piece:
        if flexible:
            return Piece("size", uvarint(number + 1), True, number)
        return Piece("size", STRUCTS["int16" if kind == "string" else "int32"].pack(number), False, number)


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def hurt(rng: random.Random, pieces: list[Piece]) -> bytes:
    """The request with one piece changed; its kind decides how. In some cases bytes are cut or added at the end."""
    way = rng.random()
    whole = joined(pieces)
    if way < 0.04:
        return whole[: rng.randrange(len(whole))]
    if way < 0.07:
        return whole + rng.randbytes(rng.choice((1, 8, 200)))
    first = 0 if way < 0.2 else 5  # mostly behind the header
    at = rng.randrange(min(first, len(pieces) - 1), len(pieces))
    changed = [*pieces]
    changed[at] = piece = Piece(pieces[at].kind, hurt_piece(rng, pieces[at]))
    if piece.kind == "text" and pieces[at - 1].kind == "size" and rng.random() < 0.9:
        changed[at - 1] = Piece("size", resized(pieces[at - 1], len(piece.data)))
    return joined(changed)


def resized(size: Piece, number: int) -> bytes:
    """A size that fits a changed content, as far as its type can hold it."""
    if size.flexible:
        return uvarint(number + 1)
    limit = (1 << 8 * len(size.data) - 1) - 1
    return min(number, limit).to_bytes(len(size.data), "big")


def hurt_piece(rng: random.Random, piece: Piece) -> bytes:
    """Other bytes for one piece."""
    return HURT.get(piece.kind, _hurt_number)(rng, piece)


def _hurt_size(rng: random.Random, piece: Piece) -> bytes:
    number = rng.choice((-1, piece.number + 1, piece.number - 1, *SIZES_HURT))
    if piece.flexible:
        return rng.choice((uvarint(max(0, number + 1)), rng.choice(VARINTS_HURT)))
    bits = 8 * len(piece.data)
    return (number & (1 << bits) - 1).to_bytes(len(piece.data), "big")


def _hurt_count(rng: random.Random, piece: Piece) -> bytes:
    unknown = b"\x01" + uvarint(rng.choice((0, 1, 9, 1000))) + b"\x01\x00"
    twice = b"\x02\x05\x01\x00\x05\x01\x00"
    promised = b"\x01\x03" + uvarint(rng.choice((1, 127, 2**31, 2**32 - 1)))
    return rng.choice((*VARINTS_HURT, unknown, twice, promised, b"\x01", b"\x7f"))


def _hurt_text(rng: random.Random, piece: Piece) -> bytes:
    if len(piece.data) >= 61:  # records
        return hurt_batch(rng)
    return rng.choice((*(name.encode() for name in PATHS), b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", rng.randbytes(9)))


def _hurt_number(rng: random.Random, piece: Piece) -> bytes:
    bits = BITS.get(piece.kind, 8 * len(piece.data))
    top = (1 << bits) - 1
    edges = (0, 1, top, top >> 1, (top >> 1) + 1, 2, 1000, 0x7FFF, 1 << 16, 1 << 20, rng.getrandbits(bits))
    return (rng.choice(edges) & top).to_bytes(bits // 8, "big")


def _hurt_partitions(rng: random.Random, piece: Piece) -> bytes:
    """Numbers that are refused, and small ones: thousands of partitions are a wish that may be granted."""
    return struct.pack(">i", rng.choice((-(2**31), -2, 0, 4, 100_001, 2**31 - 1)))


def _hurt_flag(rng: random.Random, piece: Piece) -> bytes:
    return bytes([rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))])


HURT: dict[str, Callable[[random.Random, Piece], bytes]] = {
    "size": _hurt_size,
    "count": _hurt_count,
    "tag": _hurt_count,
    "text": _hurt_text,
    "partitions": _hurt_partitions,
    "presence": _hurt_flag,
    "boolean": _hurt_flag,
}
