"""Peers that leave are noticed although nothing is read: the watched sockets, and TLS connections of the driver."""

import asyncio
import os
import socket

import pytest

from kafkalite.net.peer_close import PeerCloseDetector
from tests.unit.net.rig import Rig, both_loops, frame, leave, until

LARGE = 700_000
SHARED = {"all_requests_bytes_max": 1_000_000, "guaranteed_bytes": 1}


def open_as(fd, connected):
    """The same socket with the number `fd`, which was free."""
    os.dup2(connected.fileno(), fd)
    connected.close()
    return socket.socket(fileno=fd)


@both_loops(drivers=["transport"])
async def test_watch_of_a_closed_socket_keeps_the_watch_of_its_reused_descriptor():
    hangups = PeerCloseDetector(asyncio.get_running_loop())
    left = []
    first, peer = socket.socketpair()
    second, other = socket.socketpair()
    older = hangups.watch(first, lambda reset: left.append("first"))
    fd = first.fileno()
    first.close()
    reused = open_as(fd, second)
    newer = hangups.watch(reused, lambda reset: left.append("second"))
    hangups.forget(older)
    other.close()
    await until(lambda: left)
    assert left == ["second"]
    hangups.forget(newer)
    hangups.close()
    for each in (peer, reused):
        each.close()


@both_loops(drivers=["transport"])
async def test_watch_of_a_closed_socket_ends_with_or_without_descriptor_reuse():
    hangups = PeerCloseDetector(asyncio.get_running_loop())
    for used in (False, True):
        watched, peer = socket.socketpair()
        fd = watched.fileno()
        unrelated = socket.socket()
        watch = hangups.watch(watched, lambda reset: None)
        watched.close()
        taken = open_as(fd, unrelated) if used else unrelated
        hangups.forget(watch)
        hangups.forget(watch)
        for each in (peer, taken):
            each.close()
    hangups.close()


async def connect(rig, context):
    """A TLS connection of a client that blocks."""

    def shake():
        connected = socket.create_connection(rig.address)
        connected.settimeout(60.0)
        return context.wrap_socket(connected, server_hostname="127.0.0.1")

    return await asyncio.to_thread(shake)


@pytest.mark.parametrize("how", ["shut down", "closed", "reset"])
@pytest.mark.parametrize("what", ["delayed", "stalled", "without memory"])
@both_loops(drivers=["transport"])
async def test_closed_peer_of_a_paused_tls_connection_is_detected(contexts, what, how):
    server, client_context = contexts
    limits = {"delayed": {}, "stalled": {"open_replies_max": 1}, "without memory": SHARED}[what]
    async with Rig(ssl=server, **limits) as rig:
        rig.echo.later = lambda body: True
        memory = rig.listener.reactor.memory
        client = await connect(rig, client_context)
        await asyncio.to_thread(client.sendall, frame(b"x" * LARGE))
        await until(lambda: rig.echo.frames == 1)
        gone = []
        rig.echo.open[0][0].on_gone = lambda: gone.append(1)  # delayed, as a fetch is
        if what != "delayed":
            client.sendall(frame(b"second--"))
            await until(lambda: rig.echo.connections[0].inbox or not rig.echo.connections[0].reading)
        assert memory.denied_count == (what == "without memory")
        if how == "shut down":
            client.shutdown(socket.SHUT_WR)
        else:
            leave(client, how)
        await until(lambda: rig.echo.gone)
        assert gone == [1]
        assert (memory.held_bytes, memory.denied_count) == (0, 0)
        assert not rig.listener.reactor._hangups._watches
        client.close()
