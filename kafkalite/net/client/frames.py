"""Splits the bytes of a broker into frames.

Invariants:
1. Memory grows with the bytes that arrive: a size field alone reserves nothing.
2. A frame is memory of its own, which the receiver may keep. A small frame is copied once. A frame of `LARGE_BYTES` or
   more is received in place: its memory is handed over without a copy, and the next frame gets new memory.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaConnectionError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # a part of mypy; kafkalite does not depend on it


SIZE_BYTES = 4
FRAME_BYTES_MIN = 4  # a correlation id
INITIAL_BYTES = 64 << 10
LARGE_BYTES = 64 << 10


class FrameReader:
    """The receive buffer of one connection.

    Arguments:
        frame_bytes_max: largest accepted frame, in bytes without its size field.
    """

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_start")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(INITIAL_BYTES)
        self._start = 0  # of the first frame that is not complete
        self._end = 0  # of the received bytes

    def free_space(self) -> memoryview:
        """Return the memory for the next bytes, at least one; call `received` after a read."""
        if self._end == len(self._buffer):
            self._make_space()
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> "Iterator[Buffer]":
        """Take `count` bytes in the memory that `free_space` has returned, and yield the frames that they complete.

        Raises:
            KafkaConnectionError: a size is outside the limits; the stream cannot be read any further.
        """
        self._end += count
        while (size := self._next_size()) is not None and self._end - self._start >= SIZE_BYTES + size:
            begin = self._start + SIZE_BYTES
            self._start = begin + size
            yield self._hand_over(begin, size) if size >= LARGE_BYTES else self._copy(begin, size)
        if self._start == self._end:
            self._start = self._end = 0

    def _next_size(self) -> int | None:
        if self._end - self._start < SIZE_BYTES:
            return None
        size = int.from_bytes(self._buffer[self._start : self._start + SIZE_BYTES], "big", signed=True)
        if FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
            return size
        allowed = f"{FRAME_BYTES_MIN} to {self._frame_bytes_max}"
        raise KafkaConnectionError(
            f"a response of {size} bytes, allowed are {allowed}; is it a broker's port, without TLS?"
        )

    def _copy(self, begin: int, size: int) -> bytes:
        return bytes(memoryview(self._buffer)[begin : begin + size])

    def _hand_over(self, begin: int, size: int) -> memoryview:
        frame = memoryview(self._buffer)[begin : begin + size]
        self._replace(max(INITIAL_BYTES, self._end - self._start))
        return frame

    def _make_space(self) -> None:
        """Double the memory, at most to the end of the frame that arrives; a frame in front of it is dropped."""
        if self._start:
            wanted = len(self._buffer) if self._end - self._start < len(self._buffer) // 2 else 2 * len(self._buffer)
        else:
            wanted = 2 * len(self._buffer)
        size = self._next_size()
        self._replace(wanted if size is None else max(INITIAL_BYTES, min(wanted, SIZE_BYTES + size)))

    def _replace(self, length: int) -> None:
        """Move the bytes from `_start` on to new memory: the old one may be in use by a frame or by the transport."""
        buffer = bytearray(length)
        pending = self._end - self._start
        buffer[:pending] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end = buffer, 0, pending
