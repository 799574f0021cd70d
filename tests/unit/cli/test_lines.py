"""Lines of a pipe come as they are written, and nobody waits in a read."""

import asyncio
import os

from kafkalite.cli.lines import chunks


async def test_a_pipe_is_read_only_when_it_has_something() -> None:
    """The pipe does not block here, so that a read without data raises; a real one would stop the loop, and Ctrl-C."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        found = chunks(source)
        for text in (b"one\n", b"two\n", b"three\n"):
            waiting = asyncio.ensure_future(anext(found))
            for _ in range(3):  # a loop that goes round beside a reader that waits
                await asyncio.sleep(0)
            assert not waiting.done()
            sink.write(text)
            assert await waiting == text
        sink.close()
        assert [data async for data in found] == []
