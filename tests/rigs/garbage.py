"""Garbage made from good files: whole, cut, flipped, with other numbers, other lines, other bytes."""

import random
import re
import struct
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes], bytes]

NUMBERS = (
    *("-1", "0", "1", "00", "+1", "1_0", " 1", "1.0", "0x10", "", "-", "٣", "²", "1e3", "99999999999"),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "9999999999999999999"),
    *("-9223372036854775808", "-9223372036854775809", "9" * 20, "9" * 5_000),
)
WORDS = ("t 0 0", "0", "2", "x", "=", "version=0", "broker.id=7", "cluster.id=", "#", "topic_id: ", "\x1b[2J", "a\tb")


def nothing(_rng: random.Random, _data: bytes) -> bytes:
    return b""


def noise(rng: random.Random, data: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 7, 8, 12, 34, 46, len(data), rng.randint(1, 300))))


def zeros(rng: random.Random, data: bytes) -> bytes:
    start = rng.randint(0, len(data))
    return data[:start] + bytes(len(data) - start)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def longer(rng: random.Random, data: bytes) -> bytes:
    return data + rng.choice((b"\n", b"\0", data, data[-12:], rng.randbytes(rng.randint(1, 40)), bytes(4_096)))


def flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def replaced(rng: random.Random, data: bytes) -> bytes:
    start = rng.randint(0, len(data))
    return data[:start] + rng.randbytes(rng.randint(1, 8)) + data[start + rng.randint(0, 8) :]


def big_number(rng: random.Random, data: bytes) -> bytes:
    """Some binary number is another one."""
    form = rng.choice((">h", ">i", ">q"))
    size = struct.calcsize(form)
    if len(data) < size:
        return data + bytes(size)
    start = rng.randrange(0, len(data) - size + 1, rng.choice((1, 2, 4)))
    top = 2 ** (8 * size - 1)
    value = rng.choice((0, 1, -1, top - 1, -top, rng.randint(-top, top - 1)))
    return data[:start] + struct.pack(form, value) + data[start + size :]


def other_number(rng: random.Random, data: bytes) -> bytes:
    """Some number in a text is another one."""
    found = list(re.finditer(rb"\d+", data))
    if not found:
        return data + rng.choice(NUMBERS).encode()
    chosen = rng.choice(found)
    return data[: chosen.start()] + rng.choice(NUMBERS).encode() + data[chosen.end() :]


def other_lines(rng: random.Random, data: bytes) -> bytes:
    """Lines go, come twice, change places, end otherwise."""
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 3)):
        position = rng.randrange(len(lines))
        change = rng.randrange(4)
        if change == 0:
            lines.insert(position, rng.choice(WORDS).encode())
        elif change == 1:
            lines.insert(position, rng.choice(lines))
        elif change == 2 and len(lines) > 1:
            del lines[position]
        else:
            rng.shuffle(lines)
    return rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\0", b" ")).join(lines)


BINARY: tuple[Mutation, ...] = (nothing, noise, zeros, cut, longer, flipped, flipped, replaced, big_number, big_number)
TEXT: tuple[Mutation, ...] = (
    *(nothing, noise, zeros, cut, longer, flipped, flipped, replaced),
    *(other_number, other_number, other_lines, other_lines),
)


def garbage(rng: random.Random, data: bytes, *, text: bool) -> bytes:
    """Something other than `data`."""
    while True:
        changed = data
        for _ in range(rng.choice((1, 1, 1, 2))):
            changed = rng.choice(TEXT if text else BINARY)(rng, changed)
        if changed != data:
            return changed
