"""Ways to damage encoded bytes, from a flipped bit to a length that promises gigabytes."""

import random

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xfe", b"\x7f\xff")
VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80", b"\x80\x00")
TAGS = (b"\x01\x00\x00", b"\x02\x01\x00\x01\x00", b"\x02\x05\x00\x01\x00", b"\x01\x00\x7f", b"\x01\x00\x03\x01\x02\x03")
EDGES = (*HUGE, *VARINTS, *TAGS, b"\x00", b"\xff", b"\x01", b"\x80", b"\xc3\x28")


def damaged(rng: random.Random, data: bytes) -> bytes:
    """A copy of `data` with one to three wounds, mostly behind its first bytes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = _wound(rng, data)
    return data


def _wound(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    way = rng.randrange(8)
    if way == 0:
        return data[:at]
    if way == 1:
        return data[:at] + rng.choice(EDGES) + data[at:]
    if way == 2:
        edge = rng.choice(EDGES)
        return data[:at] + edge + data[at + len(edge) :]
    if way == 3:
        return data[:at] + data[at + rng.randrange(1, 9) :]
    if way == 4:
        return data + rng.randbytes(rng.randrange(1, 9))
    if way == 5:
        return data[:-1] + rng.choice(TAGS)  # where a flexible message has its tag section
    if way == 6:
        return data[:-2] + rng.choice(EDGES)[:1] + data[-1:]  # where an optional struct at the end has its marker
    changed = bytearray(data or b"\x00")
    changed[at % len(changed)] ^= 1 << rng.randrange(8)
    return bytes(changed)
