"""A listener on a free port with an echo service, on both kinds of event loop."""

import asyncio
import contextvars
import functools
import inspect
import socket
import struct

import pytest
import uvloop

from kafkalite._speedups.net.framing import Limits
from kafkalite.model import ANONYMOUS
from kafkalite.net.listener import Listener
from kafkalite.net.transport import TransportHub

RESET = struct.pack("ii", 1, 0)  # SO_LINGER with zero seconds: close sends RST


class Echo:
    """Answers with the frame. What `later` accepts is kept open instead."""

    def __init__(self):
        self.open = []
        self.gone = []
        self.connections = []
        self.frames = 0
        self.flushes = 0
        self.later = lambda frame: False
        self.answer = bytes
        self.accepts = True
        self.at_flush = lambda: None

    def connected(self, connection):
        self.connections.append(connection)
        return self.accepts

    def disconnected(self, connection):
        self.gone.append(connection)

    def write_pending(self):
        self.flushes += 1
        self.at_flush()

    def request(self, reply, frame):
        self.frames += 1
        if self.later(frame):
            self.open.append((reply, bytes(frame)))
        else:
            reply.send(self.answer(frame))


def frame(body):
    return struct.pack(">i", len(body)) + body


async def read_frame(reader):
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def until(condition, timeout_s=60.0):
    """Let the loop turn until `condition()` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0)


async def round_trip(rig, body=b"another-", ssl=None):
    """A request on a connection of its own. What was ready before it has been served when its answer is here.

    So it is the event to wait for before saying that something did not happen.
    """
    reader, writer = await rig.open(ssl)
    writer.write(frame(body))
    assert await read_frame(reader) == body
    return writer


def leave(client, how):
    """Close the socket of a client: "closed" sends FIN, "reset" sends RST."""
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


DRIVER = contextvars.ContextVar("driver", default="epoll")


def make_listener(service, ssl=None, **limits):
    loop = asyncio.get_running_loop()
    bounds = Limits(**limits)
    transports = DRIVER.get() == "transport" or ssl is not None
    tls = None if ssl is None else ContextWithoutPrincipals(ssl)
    hub = TransportHub(loop, service, bounds, tls=tls) if transports else None
    return Listener(loop, service, bounds, reactor=hub)


class ContextWithoutPrincipals:
    """A context of a server; clients are anonymous."""

    def __init__(self, context):
        self._context = context

    def get(self):
        return self._context

    def principal(self, ssl_object):
        return ANONYMOUS


class Rig:
    def __init__(self, ssl=None, **limits):
        self.echo = Echo()
        self.listener = make_listener(self.echo, ssl, **limits)
        self.address = self.listener.bind("127.0.0.1", 0)

    async def open(self, ssl=None):
        return await asyncio.open_connection(*self.address, ssl=ssl)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.listener.close(0.0)


def both_loops(test=None, *, drivers=("epoll", "transport")):
    """Run an async test on uvloop and on asyncio's own loop, with each driver."""
    if test is None:
        return functools.partial(both_loops, drivers=drivers)

    @pytest.mark.parametrize("driver", drivers)
    @pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
    @functools.wraps(test)
    def run(new_loop, driver, **arguments):
        DRIVER.set(driver)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(test(**arguments))

    parameters = inspect.signature(test).parameters.values()
    own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("new_loop", "driver")]
    run.__signature__ = inspect.Signature([*own, *parameters])
    return run
