"""The framing in plain Python: what a stream of bytes means, without buffers, iterations or sockets."""

FRAME_BYTES_MIN = 8


def frames(stream: bytes, request_bytes_max: int) -> tuple[list[bytes], bool]:
    """The whole frames of `stream`, and whether the connection must be closed for what follows them."""
    found = []
    at = 0
    while len(stream) - at >= 4:
        size = int.from_bytes(stream[at : at + 4], "big", signed=True)
        if not FRAME_BYTES_MIN <= size <= request_bytes_max:
            return found, True
        if len(stream) - at - 4 < size:
            break
        found.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return found, False


def served(frames: list[bytes], requests_bytes_max: int) -> int:
    """How many of these frames are handed to a service that answers none of them."""
    open_bytes = 0
    for count, frame in enumerate(frames):
        if open_bytes >= requests_bytes_max:
            return count
        open_bytes += len(frame)
    return len(frames)


def answers(bodies: list[bytes | None]) -> bytes:
    """The stream of answers to requests in order; None is a request without an answer."""
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies if body is not None)
