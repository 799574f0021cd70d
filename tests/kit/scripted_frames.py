"""False responses for `ScriptedBroker.on(frame=)`: each takes the whole frame of a response with its size field."""

SIZE_BYTES = 4
HUGE = 0x7FFFFFFF


def wrong_correlation_id(frame: bytes) -> bytes:
    """The response of another request."""
    return frame[:4] + (int.from_bytes(frame[4:8], "big") + 1000).to_bytes(4, "big") + frame[8:]


def truncated(frame: bytes) -> bytes:
    """A shorter frame whose body does not parse."""
    body = frame[SIZE_BYTES : SIZE_BYTES + 4 + max(1, (len(frame) - 8) // 2)]
    return len(body).to_bytes(SIZE_BYTES, "big") + body


def huge_size(frame: bytes) -> bytes:
    """A size field of 2 GiB."""
    return HUGE.to_bytes(SIZE_BYTES, "big") + frame[SIZE_BYTES:]


def negative_size(frame: bytes) -> bytes:
    """A negative size field."""
    return b"\xff\xff\xff\xf0" + frame[SIZE_BYTES:]


def foreign(_frame: bytes) -> bytes:
    """The response of a web server."""
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def huge_count(frame: bytes) -> bytes:
    """Every byte of the body at its largest: counts and lengths are beyond the frame."""
    return frame[:8] + b"\x7f" * (len(frame) - 8)
