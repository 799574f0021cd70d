"""Record batches beside aiokafka's compiled ones and the plain twins: `pytest perf/micro/test_records.py`.

100-byte values in batches of 16 KB and 100 KB. `test_ratios` gates: encode and decode at least 1.5 times as fast as
aiokafka in the same run, by the thread's CPU time.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.records import Batch, Builder, scan_batches, set_log_append_time, validate_batch
from tests.oracles import batch_builder
from tests.oracles import batches as plain
from tests.unit.records.clients import aiokafka_records

VALUE_BYTES = 100
TIMESTAMP = 1_700_000_000_000
COUNTS = {"16 KB": 150, "100 KB": 900}
RATIO_MIN = 1.5
ROUNDS = 15
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BY_COUNT = pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)


def values(count: int) -> list[bytes]:
    return [(b'{"row": %d, "carrier": "UA"}' % i).ljust(VALUE_BYTES, b".") for i in range(count)]


def encode(data: list[bytes], builder_class: Any = Builder, codec: int = 0) -> bytes:
    builder = builder_class()
    append = builder.append
    for value in data:
        append(TIMESTAMP, None, value)
    result: bytes = builder.build(codec)
    return result


def aiokafka_encode(data: list[bytes]) -> bytes:
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    append = builder.append
    for offset, value in enumerate(data):
        append(offset, TIMESTAMP, None, value, [])
    return bytes(builder.build())


def decode(data: bytes, batch_class: Any = Batch) -> int:
    batch = batch_class(data)
    batch.check_crc()
    return sum(1 for record in batch if record.value is not None)


def decode_at_once(data: bytes) -> int:
    batch = Batch(data)
    batch.check_crc()
    return sum(1 for record in batch.records() if record.value is not None)


def aiokafka_decode(data: bytes) -> int:
    batch = aiokafka_records.DefaultRecordBatch(data)
    assert batch.validate_crc()
    return sum(1 for record in batch if record.value is not None)


ENCODERS: dict[str, Callable[[list[bytes]], bytes]] = {
    "c": encode,
    "py": lambda data: encode(data, batch_builder.Builder),
    "aiokafka": aiokafka_encode,
}
DECODERS: dict[str, Callable[[bytes], int]] = {
    "c": decode,
    "c at once": decode_at_once,
    "py": lambda data: decode(data, plain.Batch),
    "aiokafka": aiokafka_decode,
}


def per_record_ns(benchmark: Any, count: int) -> None:
    if benchmark.stats:
        benchmark.extra_info["ns_per_record"] = round(benchmark.stats.stats.median / count * 1e9, 1)


@BY_COUNT
@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_encode(benchmark: Any, encoder: Callable[[list[bytes]], bytes], count: int) -> None:
    benchmark.group = f"encode {count} records of {VALUE_BYTES} B"
    data = values(count)
    assert benchmark(encoder, data) == encode(data)
    per_record_ns(benchmark, count)


@BY_COUNT
@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_decode(benchmark: Any, decoder: Callable[[bytes], int], count: int) -> None:
    benchmark.group = f"decode {count} records of {VALUE_BYTES} B"
    assert benchmark(decoder, encode(values(count))) == count
    per_record_ns(benchmark, count)


@BY_COUNT
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_validate(benchmark: Any, count: int, codec: int) -> None:
    """CRC, decompression and walk of one batch."""
    benchmark.group = f"inspect {count} records of {VALUE_BYTES} B"
    data = bytearray(encode(values(count), codec=codec))
    assert benchmark(validate_batch, data, compacted=False, size_max=1 << 20).error == 0
    per_record_ns(benchmark, count)


def test_inspect_one_record(benchmark: Any) -> None:
    data = bytearray(encode(values(1)))
    assert benchmark(validate_batch, data, compacted=False, size_max=1 << 20).error == 0


def test_scan_small_batches(benchmark: Any) -> None:
    data = encode(values(1)) * 10_000
    assert benchmark(scan_batches, data).count == 10_000
    per_record_ns(benchmark, 10_000)


def test_log_append_time(benchmark: Any) -> None:
    data = bytearray(encode(values(150)))
    times = iter(range(1, 1 << 40))
    assert benchmark(lambda: set_log_append_time(data, next(times)))


def cpu_ns(call: Callable[[], Any]) -> int:
    """CPU time of this thread for twenty calls."""
    begun = time.thread_time_ns()
    for _ in range(20):
        call()
    return time.thread_time_ns() - begun


@BY_COUNT
def test_ratios(count: int, record_property: Callable[[str, object], None]) -> None:
    """Interleaved, best of ROUNDS, so that what else the machine does falls on all alike."""
    data = values(count)
    batch = encode(data)
    calls: dict[str, Callable[[], Any]] = {
        "encode": lambda: encode(data),
        "aiokafka encode": lambda: aiokafka_encode(data),
        "decode": lambda: decode(batch),
        "aiokafka decode": lambda: aiokafka_decode(batch),
        "walk with CRC": lambda: validate_batch(batch, compacted=False, size_max=1 << 20),
    }
    best = dict.fromkeys(calls, 1 << 62)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], cpu_ns(call))
    encode_ratio = best["aiokafka encode"] / best["encode"]
    decode_ratio = best["aiokafka decode"] / best["decode"]
    each = ", ".join(f"{name} {ns / 20 / count:.1f}" for name, ns in best.items())
    line = f"records of {VALUE_BYTES} B, {count} a batch, ns each: {each}; x{encode_ratio:.2f}, x{decode_ratio:.2f}"
    print(line)
    record_property("summary", line)
    assert encode_ratio >= RATIO_MIN
    assert decode_ratio >= RATIO_MIN
