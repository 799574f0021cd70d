"""Compresses and decompresses the records of batches, with a bound on the decompressed size.

1. Ids are Kafka's: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd (CompressionType.java).
2. The output is at most `size_max` bytes: decompression runs in steps and stops at the first byte above. Lengths in the
   compressed bytes are checked before memory is allocated for them.
3. Invalid bytes raise `BatchError` with INVALID_RECORD, too large output MESSAGE_TOO_LARGE; errors of the libraries are
   not raised.
4. Snappy is written in xerial framing, which every client reads, and read in both framings (franz-go writes raw).
5. No step holds the GIL for more than about a millisecond: decompression runs in a job, beside the event loop.
6. A library is imported with the first batch that needs it, not at the start of a broker.
7. A broker appends what the readers of all clients decompress (`decompress_appended`). Kafka's lz4 is one frame of
   independent blocks: of linked blocks Java reads nothing, of a second frame nothing, and librdkafka fails.
8. Zero bytes behind gzip data are padding, as for Java and gzip's own tools.
"""

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple, Protocol

from kafkalite._speedups.records.validator import BatchError
from kafkalite._speedups.wire.concat import gathered
from kafkalite.errors import KafkaErrorCode

Data = bytes | bytearray | memoryview


NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LEVEL_DEFAULTS = {GZIP: -1, LZ4: 9, ZSTD: 3}  # TopicConfig.java: compression.<name>.level

STEP_BYTES = 1 << 20  # largest step, so that a small input with a huge output is detected early
STEP_BYTES_MIN = 1 << 15
STEP_RATIO = 8  # most records compress less than this and need one step
FRAMES_MAX = 64  # concatenated in one batch; each costs a copy of the rest
ZSTD_WINDOW_LOG_MAX = 27  # 128 MiB, as for level 22; only the bounded output touches this memory
SNAPPY_RATIO_MAX = 22  # a copy of 64 bytes takes 3
LZ4_LEVEL_FAST, LZ4_LEVEL_SLOW_MIN, LZ4_LEVEL_MAX = 9, 3, 12

LZ4_HEADER = struct.Struct("<IB")  # magic number, flags
LZ4_HEADER_BYTES = LZ4_HEADER.size
LZ4_MAGIC = 0x184D2204
LZ4_INDEPENDENT_BLOCKS, LZ4_RESERVED_FLAGS = 0x20, 0x03

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
XERIAL_BLOCK_BYTES = 32 * 1024
INT32 = struct.Struct(">i")


class Stream(Protocol):
    """A decompressor of one frame, as in lz4 and zstd; `Inflate` adapts zlib."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: Data, max_length: int) -> bytes: ...


class Framed(NamedTuple):
    """A codec of frames: its name, the factory of its decompressor, the error that this raises on invalid bytes, and
    the bytes that may follow the last frame.
    """

    name: str
    new_stream: Callable[[], Stream]
    errors: type[Exception]
    padding: bytes = b""


class Inflate:
    """zlib's decompressor of one gzip member; keeps unconsumed input as the others do."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: Data, max_length: int) -> bytes:
        return self._stream.decompress(data or self._stream.unconsumed_tail, max_length)


def decompress_appended(codec: int, data: Data, size_max: int) -> bytes:
    """`decompress` for a batch of a producer; data that the reader of a client rejects is INVALID_RECORD."""
    if codec != LZ4:
        return decompress(codec, data, size_max)
    check_lz4_header(data)
    return decompress(codec, data, size_max, 1)


def check_lz4_header(data: Data) -> None:
    """Raise BatchError unless the data begins with a frame that Kafka's clients read (Lz4BlockInputStream.java)."""
    magic, flags = LZ4_HEADER.unpack_from(data) if len(data) >= LZ4_HEADER_BYTES else (0, 0)
    if magic != LZ4_MAGIC:
        raise malformed_error("lz4", "it does not begin with a frame")
    if not flags & LZ4_INDEPENDENT_BLOCKS:
        raise malformed_error("lz4", "its blocks are linked, which Java clients cannot read; use independent blocks")
    if flags & LZ4_RESERVED_FLAGS:
        raise malformed_error("lz4", "it has a dictionary or a reserved flag")


def decompress(codec: int, data: Data, size_max: int, frames_max: int = FRAMES_MAX) -> bytes:
    """Decompress the records of a batch.

    Arguments:
        codec: its id.
        data: the compressed bytes.
        size_max: largest allowed output in bytes.
        frames_max: largest number of frames, unless snappy.

    Raises: BatchError (MESSAGE_TOO_LARGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE).
    """
    if codec == SNAPPY:
        return _decompress_snappy(data, size_max)
    framed = framed_codec(codec)
    if framed is None:
        raise BatchError(KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")
    try:
        return _decompress_frames(framed, data, size_max, frames_max)
    except framed.errors as error:
        raise malformed_error(framed.name, error) from error


@cache
def framed_codec(codec: int) -> Framed | None:
    """The codec of frames with an id."""
    if codec == GZIP:
        return Framed("gzip", Inflate, zlib.error, b"\0")
    if codec == LZ4:
        import lz4.frame  # type: ignore[import-untyped]

        return Framed("lz4", lz4.frame.LZ4FrameDecompressor, RuntimeError)
    if codec == ZSTD:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX}
        return Framed("zstd", lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)
    return None


def _decompress_frames(framed: Framed, data: Data, size_max: int, frames_max: int) -> bytes:
    """Decompress all frames in steps, and check the size of the output."""
    pieces: list[bytes] = []
    room = size_max
    step = min(STEP_BYTES, max(STEP_BYTES_MIN, STEP_RATIO * len(data)))
    for _ in range(frames_max):
        stream = framed.new_stream()
        while not stream.eof:
            piece = stream.decompress(data, min(step, room + 1))
            if len(piece) > room:
                raise too_large(size_max)
            if not piece and not stream.eof:
                raise malformed_error(framed.name, "it ends too early")
            room -= len(piece)
            pieces.append(piece)
            data = b""
        data = stream.unused_data or b""
        if not data or not data.strip(framed.padding):
            return gathered(pieces)
    raise malformed_error(framed.name, f"there are bytes behind {frames_max} frame(s)")


def _decompress_snappy(data: Data, size_max: int) -> bytes:
    if data[: len(XERIAL_MAGIC)] == XERIAL_MAGIC:
        pieces = []
        room = size_max
        for block in _xerial_blocks(memoryview(data)):
            pieces.append(_decompress_block(block, room, size_max))
            room -= len(pieces[-1])
        return gathered(pieces)
    return gathered([_decompress_block(data, size_max, size_max)])


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """The snappy blocks of xerial framing; several streams may be concatenated, each with its header."""
    position = 0
    while position < len(data):
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise malformed_error("snappy", "it ends within a header")
            continue
        if len(data) - position < INT32.size:
            raise malformed_error("snappy", "it ends inside a block length")
        (size,) = INT32.unpack_from(data, position)
        position += INT32.size
        if not 0 < size <= len(data) - position:
            raise malformed_error("snappy", f"a block claims {size} bytes, {len(data) - position} are left")
        yield data[position : position + size]
        position += size


def _decompress_block(block: Data, room: int, size_max: int) -> memoryview:
    """Decompress one raw snappy block. Its claimed length is checked against the largest ratio of snappy.

    Uses cramjam, the base of python-snappy: it returns the claimed length, and its result is not copied again under
    the GIL (3.2 instead of 4.1 us for 32 KiB).
    """
    import cramjam

    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > SNAPPY_RATIO_MAX * len(block):
            raise malformed_error("snappy", f"{len(block)} bytes claim to hold {claimed}")
        if claimed > room:
            raise too_large(size_max)
        return memoryview(cramjam.snappy.decompress_raw(block))  # without a copy: `gathered` copies it
    except cramjam.DecompressionError as error:
        raise malformed_error("snappy", error) from error


def compress(codec: int, data: Data, level: int | None = None) -> bytes:
    """Compress the records of a batch.

    Arguments:
        codec: its id.
        data: the records.
        level: as in Kafka's `compression.<name>.level`, None = its default.

    Raises: BatchError (UNSUPPORTED_COMPRESSION_TYPE).
    """
    if codec == GZIP:
        return zlib.compress(data, -1 if level is None else level, 16 + zlib.MAX_WBITS)
    if codec == SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec == LZ4:
        return _compress_lz4(data, LZ4_LEVEL_FAST if level is None else level)
    if codec == ZSTD:
        return _compress_zstd(data, LEVEL_DEFAULTS[ZSTD] if level is None else level)
    raise BatchError(KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")


def _compress_snappy(data: memoryview) -> bytes:
    import snappy  # type: ignore[import-untyped]

    parts: list[Data] = [XERIAL_HEADER]
    for at in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = snappy.compress(data[at : at + XERIAL_BLOCK_BYTES])
        parts += (INT32.pack(len(block)), block)
    return gathered(parts)


def _compress_lz4(data: Data, level: int) -> bytes:
    """Kafka's level 9 is the fast compressor, all others the slow one (Lz4Compression.java); liblz4 ends at 12."""
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == LZ4_LEVEL_FAST else min(max(level, LZ4_LEVEL_SLOW_MIN), LZ4_LEVEL_MAX),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _compress_zstd(data: Data, level: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.compress(data, level)


def too_large(size_max: int) -> BatchError:
    return BatchError(KafkaErrorCode.MESSAGE_TOO_LARGE, f"the records decompress to more than {size_max} bytes")


def malformed_error(name: str, why: object) -> BatchError:
    return BatchError(KafkaErrorCode.INVALID_RECORD, f"the {name} data is malformed: {why}")
