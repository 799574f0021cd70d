"""The record functions in Cython (C) and in pure Python (PY) under the same names, and batches to test them with."""

import random
import struct
from types import SimpleNamespace
from typing import Any

from crc32c import crc32c

import kafkalite.records
from tests.kit.seeds import chosen_seed
from tests.oracles import batch_builder, batch_patches, batch_scan, batches, validator

SIZE_MAX = 1 << 20
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FORMATS = {  # where a header field is, and how it is packed
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">B"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "records_count": (57, ">i"),
}
C = SimpleNamespace(**{name: getattr(kafkalite.records, name) for name in kafkalite.records.__all__})
TWINS = (batch_builder, batch_patches, batch_scan, batches, validator)
PY = SimpleNamespace(
    **{name: getattr(twin, name) for twin in TWINS for name in kafkalite.records.__all__ if hasattr(twin, name)}
)


def seed() -> int:
    """The seed of this run; printed, so that a failing test shows it."""
    chosen = chosen_seed()
    print(f"KAFKALITE_SEED={chosen}")
    return chosen


def build(*records: tuple[Any, ...], codec: int = 0, **fields: Any) -> bytes:
    """A batch by the engine; a record is (timestamp, key, value[, headers])."""
    builder = C.Builder()
    for record in records:
        builder.append(*record)
    result: bytes = builder.build(codec, **fields)
    return result


def sealed(data: bytes) -> bytes:
    """The batch with the CRC its bytes deserve."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def with_fields(data: bytes, **fields: int) -> bytes:
    """The batch with header fields overwritten; the CRC follows unless it is given."""
    out = bytearray(data)
    for name, value in fields.items():
        at, form = FORMATS[name]
        struct.pack_into(form, out, at, value)
    return bytes(out) if "crc" in fields else sealed(bytes(out))


def with_records(records: bytes, count: int, **fields: int) -> bytes:
    """A batch around raw record bytes."""
    header = build((1, None, b""))[:61]
    batch = header + records
    lengths = {"batch_length": len(batch) - 12, "records_count": count, "last_offset_delta": count - 1}
    return with_fields(batch, **{**lengths, **fields})


def random_records(rng: random.Random, count: int, large: int = 9000) -> list[tuple[Any, ...]]:
    """Records of all shapes: nulls, empties, headers, timestamps in any order."""

    def some_bytes() -> bytes | None:
        size = rng.choice((0, 1, 10, 63, 64, 200, large))
        return rng.choice((None, b"", rng.randbytes(size), b"x" * size))

    def headers() -> list[tuple[str, bytes | None]]:
        return [("ä" * rng.randrange(40), some_bytes()) for _ in range(rng.choice((0, 0, 0, 1, 3, large // 128)))]

    start = rng.choice((0, 1_700_000_000_000))
    return [(start + rng.choice((0, 1, -1, 5000)) * i, some_bytes(), some_bytes(), headers()) for i in range(count)]


def random_batch(rng: random.Random) -> bytes:
    return build(*random_records(rng, rng.choice((1, 2, 5, 130))), codec=rng.choice((0, 0, 1, 2, 3, 4)))


def small_batch(rng: random.Random) -> bytes:
    """Small enough that a byte changed at random is likely to matter."""
    codec = rng.choice((0, 0, 0, 0, 1, 2, 3, 4))
    return build(*random_records(rng, rng.choice((1, 2, 5, 20)), large=300), codec=codec)


def damaged(rng: random.Random, good: bytes) -> bytes:
    """The batch with a few bytes changed, lost or added; most often with length, counts and CRC that fit again."""
    data = bytearray(good)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        data = data or bytearray(1)
        at = rng.randrange(len(data)) if rng.random() < 0.6 else min(rng.randrange(8, 90), len(data) - 1)
        kind = rng.random()
        if kind < 0.6:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        elif kind < 0.8:
            del data[at : at + rng.choice((1, 2, 50))]
        else:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 50)))
    if rng.random() < 0.85 and len(data) >= 61:
        return mended(rng, data, good)
    return bytes(data)


def mended(rng: random.Random, data: bytearray, good: bytes) -> bytes:
    """Length and CRC put right; most often the rest of the header is as it was, sometimes with other counts."""
    if rng.random() < 0.8:
        data[:61] = good[:61]
        if rng.random() < 0.2:
            (count,) = struct.unpack_from(">i", good, 57)
            count += rng.choice((-1, 1))
            struct.pack_into(">i", data, 57, count)
            struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 8, len(data) - 12)
    return sealed(bytes(data))
