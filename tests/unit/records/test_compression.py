"""Every codec: what is compressed is decompressed again, with every framing; no input makes the broker grow."""

import gzip
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from kafkalite._speedups.wire.concat import gathered
from kafkalite.records import BatchError, ValidationResult, validate_batch
from kafkalite.records import compression as codecs
from kafkalite.records.batch_header import HEADER_SIZE
from kafkalite.records.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    compress,
    decompress,
    decompress_appended,
)
from tests.kit.record_engines import build, with_records

IDS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
EACH = pytest.mark.parametrize("codec", IDS.values(), ids=IDS)
INVALID_RECORD, MESSAGE_TOO_LARGE = 87, 10
PLAIN = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(5000))
SIZES = (0, 1, 100, 32 * 1024, 32 * 1024 + 1, 100_000, len(PLAIN))


def code_of(codec: int, data: bytes, size_max: int = 1 << 24) -> int:
    with pytest.raises(BatchError) as raised:
        decompress(codec, data, size_max)
    return raised.value.code


@EACH
def test_compression_round_trip(codec: int) -> None:
    for size in SIZES:
        for data in (PLAIN[:size], bytearray(PLAIN[:size]), memoryview(PLAIN)[:size]):
            assert decompress(codec, compress(codec, data), size) == PLAIN[:size]
            assert decompress(codec, memoryview(compress(codec, data)), size) == PLAIN[:size]


def test_gathered_accepts_bytes_like_objects() -> None:
    whole = PLAIN * 2  # both sides of the size from which on the lock is given away
    for size in (0, 1, 1000, len(whole)):
        for step in (1 << 30, 100_000, 7_777):
            cuts = [whole[:size][at : at + step] for at in range(0, size, step)]
            for kind in (bytes, bytearray, memoryview, cramjam.Buffer):
                assert gathered([kind(cut) for cut in cuts]) == whole[:size]
    assert gathered([whole]) is whole
    assert gathered([b"", bytearray(b"a"), memoryview(b"b"), b""]) == b"ab"
    for wrong in (["text"], [b"a", None], [b"ab", memoryview(b"abcd")[::2]]):
        with pytest.raises((TypeError, BufferError)):
            gathered(wrong)  # type: ignore[arg-type]


@EACH
def test_decompression_limit_is_exact(codec: int) -> None:
    packed = compress(codec, PLAIN)
    assert len(decompress(codec, packed, len(PLAIN))) == len(PLAIN)
    assert code_of(codec, packed, len(PLAIN) - 1) == MESSAGE_TOO_LARGE
    assert code_of(codec, packed, 0) == MESSAGE_TOO_LARGE


@EACH
def test_truncated_compressed_data_raises(codec: int) -> None:
    packed = compress(codec, PLAIN[:2000])
    for size in range(len(packed)):
        if codec == SNAPPY and size <= len(XERIAL_HEADER):
            continue
        assert code_of(codec, packed[:size]) == INVALID_RECORD, size


@EACH
def test_random_bytes_raise_invalid_record(codec: int) -> None:
    for data in (b"", b"\x05", b"\xff" * 100, b"rubbish" * 10, PLAIN):
        assert code_of(codec, data) == INVALID_RECORD


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])
def test_concatenated_frames_are_decompressed(codec: int) -> None:
    one, two = compress(codec, PLAIN[:1000]), compress(codec, PLAIN[1000:])
    assert decompress(codec, one + two, len(PLAIN)) == PLAIN
    assert code_of(codec, one + two, len(PLAIN) - 1) == MESSAGE_TOO_LARGE
    assert code_of(codec, one + b"rubbish") == INVALID_RECORD
    empty = compress(codec, b"")
    assert decompress(codec, empty * 3 + one + empty, 1000) == PLAIN[:1000]
    assert code_of(codec, empty * (codecs.FRAMES_MAX + 1)) == INVALID_RECORD


def test_streamed_frames_are_decompressed() -> None:
    """No content size in front, as writers that do not know it leave it out."""
    writer = zstd.ZstdCompressor()
    streamed = writer.compress(PLAIN[:5000]) + writer.compress(PLAIN[5000:]) + writer.flush()
    assert decompress(ZSTD, streamed, len(PLAIN)) == PLAIN
    for linked in (True, False):
        for checksum in (True, False):
            framed = lz4.frame.compress(PLAIN, block_linked=linked, content_checksum=checksum, store_size=True)
            assert decompress(LZ4, framed, len(PLAIN)) == PLAIN
    assert decompress(GZIP, gzip.compress(PLAIN), len(PLAIN)) == PLAIN


RECORDS_COUNT = 5000
RECORDS = build(*((at, None, b"a value that repeats itself") for at in range(RECORDS_COUNT)))[HEADER_SIZE:]
ONE_FRAME = compress(LZ4, RECORDS)
ACCEPTED_LZ4 = {
    "independent blocks": ONE_FRAME,
    "checksums": lz4.frame.compress(RECORDS, block_linked=False, content_checksum=True, block_checksum=True),
    "no content size": lz4.frame.compress(RECORDS, block_linked=False, store_size=False),
    "blocks of 4 MiB": lz4.frame.compress(RECORDS, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
}
REJECTED_LZ4 = {
    "linked blocks": lz4.frame.compress(RECORDS, block_linked=True),
    "two frames": compress(LZ4, RECORDS[:1000]) + compress(LZ4, RECORDS[1000:]),
    "a skippable frame first": struct.pack("<II", 0x184D2A50, 4) + b"skip" + ONE_FRAME,
    "an empty frame first": compress(LZ4, b"") + ONE_FRAME,
    "bytes behind the frame": ONE_FRAME + bytes(4),
    "a reserved flag": ONE_FRAME[:4] + bytes([ONE_FRAME[4] | 2]) + ONE_FRAME[5:],
    "no frame": ONE_FRAME[:4],
    "nothing": b"",
}


def validated(data: bytes) -> ValidationResult:
    """The validation of a batch of these compressed records."""
    batch = with_records(data, RECORDS_COUNT, attributes=LZ4)
    return validate_batch(batch, compacted=False, size_max=1 << 20)


@pytest.mark.parametrize("data", ACCEPTED_LZ4.values(), ids=ACCEPTED_LZ4)
def test_lz4_that_all_clients_read_is_appended(data: bytes) -> None:
    assert decompress_appended(LZ4, data, len(RECORDS)) == RECORDS
    assert validated(data).error == 0


@pytest.mark.parametrize("data", REJECTED_LZ4.values(), ids=REJECTED_LZ4)
def test_lz4_that_only_some_clients_read_is_not_appended(data: bytes) -> None:
    with pytest.raises(BatchError) as raised:
        decompress_appended(LZ4, data, len(RECORDS))
    found = validated(data)
    assert (found.error, found.message) == (raised.value.code, str(raised.value))
    assert found.error == INVALID_RECORD


@pytest.mark.parametrize("size", [1, 16, 512])
def test_zero_bytes_behind_gzip_data_are_padding(size: int) -> None:
    packed = gzip.compress(PLAIN[:1000]) + gzip.compress(PLAIN[1000:])
    for read in (decompress, decompress_appended):
        assert read(GZIP, packed + bytes(size), len(PLAIN)) == PLAIN
    assert code_of(GZIP, packed + bytes(size) + b"x") == INVALID_RECORD


@pytest.mark.parametrize("codec", [SNAPPY, ZSTD], ids=["snappy", "zstd"])
def test_several_frames_of_other_codecs_are_appended(codec: int) -> None:
    assert decompress_appended(codec, compress(codec, PLAIN[:1000]) + compress(codec, PLAIN[1000:]), 1 << 20) == PLAIN


def test_lz4_frame_descriptor_is_that_of_kafka() -> None:
    """KafkaLZ4BlockInputStream takes independent blocks only, and Java writes blocks of 64 KB."""
    packed = compress(LZ4, PLAIN)
    info = lz4.frame.get_frame_info(packed)
    assert (info["block_linked"], info["block_size"], info["content_checksum"]) == (False, 65536, False)


def test_snappy_in_raw_and_xerial_framing() -> None:
    raw = bytes(cramjam.snappy.compress_raw(PLAIN))
    assert decompress(SNAPPY, raw, len(PLAIN)) == PLAIN
    written = compress(SNAPPY, PLAIN)
    assert written.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(SNAPPY, written + written, 2 * len(PLAIN)) == PLAIN * 2
    assert decompress(SNAPPY, written + written[len(XERIAL_HEADER) :], 2 * len(PLAIN)) == PLAIN * 2
    assert compress(SNAPPY, b"") == XERIAL_HEADER
    assert decompress(SNAPPY, XERIAL_HEADER, 0) == b""


BLOCK = bytes(cramjam.snappy.compress_raw(b"block"))
BAD_XERIAL = {
    "header cut off": XERIAL_HEADER[:12],
    "length cut off": XERIAL_HEADER + b"\x00\x00",
    "negative length": XERIAL_HEADER + struct.pack(">i", -1) + BLOCK,
    "length zero": XERIAL_HEADER + struct.pack(">i", 0) + BLOCK,
    "length past the end": XERIAL_HEADER + struct.pack(">i", len(BLOCK) + 1) + BLOCK,
    "huge length": XERIAL_HEADER + struct.pack(">i", 2**31 - 1) + BLOCK,
    "not snappy": XERIAL_HEADER + struct.pack(">i", 7) + b"rubbish",
}


@pytest.mark.parametrize("data", BAD_XERIAL.values(), ids=BAD_XERIAL)
def test_malformed_xerial_framing_raises(data: bytes) -> None:
    assert code_of(SNAPPY, data) == INVALID_RECORD


def test_claimed_length_allocates_no_memory() -> None:
    """Raw snappy begins with the length of what comes out: 2^32 - 1 here, of eleven bytes."""
    tracemalloc.start()
    try:
        assert code_of(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"rubbish", 2**40) == INVALID_RECORD
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_zstd_window_above_the_limit_raises() -> None:
    """A frame header that asks for a window of 2^31 bytes; the limit is the library's answer, not ours."""
    window_log_31 = (31 - 10) << 3
    frame = b"\x28\xb5\x2f\xfd" + bytes([0, window_log_31]) + b"\x01\x00\x00"  # one empty last block
    assert decompress(ZSTD, frame[:5] + bytes([(27 - 10) << 3]) + frame[6:], 0) == b""
    assert code_of(ZSTD, frame) == INVALID_RECORD


@pytest.mark.parametrize("codec", [0, 5, 8, -1])
def test_unknown_compression_types_raise(codec: int) -> None:
    for call in (lambda: decompress(codec, b"", 10), lambda: compress(codec, b"")):
        with pytest.raises(BatchError) as raised:
            call()
        assert raised.value.code == 76


def zstd_bomb(size: int) -> bytes:
    """Blocks that repeat one byte 128 KiB times, in four bytes each."""
    repeat = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\x00"
    count = size >> 17
    last = struct.pack("<I", (128 << 10) << 3 | 1 << 1 | 1)[:3] + b"\x00"
    return b"\x28\xb5\x2f\xfd" + bytes([0, (23 - 10) << 3]) + repeat * (count - 1) + last


def repeated_gzip(size: int) -> bytes:
    """Members of 64 MiB each, compressed once."""
    return gzip.compress(bytes(64 << 20), 9) * (size >> 26)


def lz4_bomb(size: int) -> bytes:
    piece: bytes = lz4.frame.compress(bytes(64 << 20), block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return piece * (size >> 26)


def snappy_bomb(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * (size >> 20)


BOMBS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "gzip": (GZIP, repeated_gzip),
    "snappy": (SNAPPY, snappy_bomb),
    "lz4": (LZ4, lz4_bomb),
    "zstd": (ZSTD, zstd_bomb),
}


class Counting:
    """A decompressor that notes how much each call gave."""

    def __init__(self, stream: codecs.Stream, given: list[int]) -> None:
        self._stream = stream
        self._given = given

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes | None:
        return self._stream.unused_data

    def decompress(self, data: codecs.Data, max_length: int) -> bytes:
        piece = self._stream.decompress(data, max_length)
        self._given.append(len(piece))
        return piece


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_decompression_bomb_stops_at_the_limit(
    codec: int, bomb: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 GiB behind the default bound of 16 MiB: the bound and one byte, in small steps, then it is refused."""
    given: list[int] = []
    block, framed = codecs._decompress_block, codecs.framed_codec(codec)

    def counted_block(*args: Any) -> Any:
        piece = block(*args)
        given.append(len(piece))
        return piece

    monkeypatch.setattr(codecs, "_decompress_block", counted_block)
    if framed is not None:
        counting = framed._replace(new_stream=lambda: Counting(framed.new_stream(), given))
        monkeypatch.setattr(codecs, "framed_codec", lambda _codec: counting)
    assert code_of(codec, bomb(1 << 30), 16 << 20) == MESSAGE_TOO_LARGE
    assert 16 << 20 <= sum(given) <= (16 << 20) + 1
    assert max(given) <= codecs.STEP_BYTES


MEASURE = """
import re, sys
if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from kafkalite.records import BatchError, compression as codecs

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

data = sys.stdin.buffer.read()
codecs.decompress(codecs.ZSTD, codecs.compress(codecs.ZSTD, b"warm"), 10)
before = peak()
try:
    codecs.decompress(int(sys.argv[1]), data, int(sys.argv[2]))
except BatchError as error:
    print(error.code, peak() - before)
else:
    print(0, peak() - before)
"""


def kib_grown(codec: int, data: bytes, size_max: int) -> tuple[int, int]:
    """Kafka's error code, and how much the high-water mark of a fresh process grew."""
    command = [sys.executable, "-c", MEASURE, str(codec), str(size_max)]
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, env=env, check=True, timeout=60)
    code, grown = map(int, done.stdout.split())
    return code, grown


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_decompression_bomb_uses_little_memory(codec: int, bomb: Callable[[int], bytes]) -> None:
    code, grown = kib_grown(codec, bomb(1 << 30), 16 << 20)
    assert code == MESSAGE_TOO_LARGE
    assert grown < 32 * 1024


def test_memory_measurement_detects_allowed_growth() -> None:
    code, grown = kib_grown(ZSTD, zstd_bomb(64 << 20), 64 << 20)
    assert code == 0
    assert grown >= 64 * 1024
