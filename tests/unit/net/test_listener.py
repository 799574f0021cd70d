"""Accepting within limits, idle connections, descriptors running out, the drain at the end."""

import asyncio
import errno
import json
import os
import resource
import socket
import struct
import subprocess
import sys

import pytest

from kafkalite.net.listener import Listener, SocketOptions
from tests.conftest import ENGINE
from tests.kit.descriptors import open_descriptors
from tests.unit.net.rig import Echo, Rig, both_loops, frame, make_listener, read_frame, round_trip, until


@both_loops
async def test_listener_on_several_named_addresses():
    async with Rig() as rig:
        addresses = [rig.address, rig.listener.bind("127.0.0.1", 0, "INTERNAL"), rig.listener.bind("::1", 0, "SIX")]
        assert rig.listener.addresses == addresses
        for host, port in addresses:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(frame(b"12345678"))
            await read_frame(reader)
            writer.close()
        seen = [(c.listener, c.local_host, c.local_port, c.peer_host) for c in rig.echo.connections]
        names = ["PLAINTEXT", "INTERNAL", "SIX"]
        expected = [(name, host, port, host) for name, (host, port) in zip(names, addresses, strict=True)]
        assert seen == expected


@both_loops
async def test_port_in_use_is_reported_with_its_address():
    async with Rig() as rig:
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{rig.address[1]}") as caught:
            rig.listener.bind(*rig.address)
        assert caught.value.errno == errno.EADDRINUSE


@both_loops
async def test_address_can_be_bound_again_at_once():
    async with Rig() as rig:
        reader, writer = await rig.open()
        writer.write(frame(b"12345678"))
        await read_frame(reader)
    writer.close()
    again = make_listener(Echo())
    assert again.bind(*rig.address) == rig.address
    await again.close()


@both_loops
async def test_an_inherited_socket_is_served():
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    async with Rig() as rig:
        rig.listener.inherit(listening, "ACTIVATED")
        reader, writer = await asyncio.open_connection(*address)
        writer.write(frame(b"12345678"))
        assert await read_frame(reader) == b"12345678"
        assert rig.echo.connections[0].listener == "ACTIVATED"
        writer.close()


@both_loops
async def test_rejected_connection_is_closed_and_not_reported_again():
    async with Rig() as rig:
        rig.echo.accepts = False
        reader, writer = await rig.open()
        assert await reader.read() == b""
        assert rig.echo.frames == 0 and rig.echo.gone == []
        writer.close()


@both_loops
async def test_accepting_pauses_at_max_connections():
    async with Rig(connections_max=2) as rig:
        first, second, third = [await rig.open() for _ in range(3)]
        third[1].write(frame(b"12345678"))
        for reader, writer in (first, second):
            writer.write(frame(b"12345678"))
            await read_frame(reader)
        assert len(rig.echo.connections) == 2
        first[1].close()
        assert await read_frame(third[0]) == b"12345678"
        second[1].close()
        third[1].close()


@both_loops
async def test_connection_limits_change_at_runtime():
    async with Rig(connections_max=1) as rig:
        first, second = [await rig.open() for _ in range(2)]
        for _, writer in (first, second):
            writer.write(frame(b"12345678"))
        assert await read_frame(first[0]) == b"12345678"
        assert len(rig.echo.connections) == 1
        rig.listener.limit(3, 2)
        assert await read_frame(second[0]) == b"12345678"
        above_its_host = await rig.open()
        assert await above_its_host[0].read() == b""
        for _, writer in (first, second, above_its_host):
            writer.close()


@both_loops
async def test_connection_above_the_limit_of_its_host_is_closed():
    async with Rig(connections_per_ip_max=1, connections_per_ip_overrides={"127.0.0.2": 0}) as rig:
        first = await rig.open()
        await until(lambda: rig.echo.connections)
        second = await rig.open()
        assert await second[0].read() == b""
        other = await asyncio.open_connection(*rig.address, local_addr=("127.0.0.2", 0))
        assert await other[0].read() == b""
        third_host = await asyncio.open_connection(*rig.address, local_addr=("127.0.0.3", 0))
        third_host[1].write(frame(b"12345678"))
        assert await read_frame(third_host[0]) == b"12345678"
        assert len(rig.echo.connections) == 2
        for _, writer in (first, second, other, third_host):
            writer.close()


@both_loops(drivers=["epoll"])
async def test_listener_sets_socket_buffers_and_backlog():
    loop = asyncio.get_running_loop()
    plain, received = (
        Listener(loop, Echo(), sockets=options)
        for options in (None, SocketOptions(send_buffer_bytes=20_000, receive_buffer_bytes=30_000, backlog=3))
    )
    sizes = []
    for listener in (plain, received):
        address = listener.bind("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(frame(b"any body"))
        await read_frame(reader)
        (connection,) = listener.reactor.connections()
        with socket.socket(fileno=os.dup(connection.fileno)) as accepted:
            names = (socket.SO_SNDBUF, socket.SO_RCVBUF)
            sizes.append([accepted.getsockopt(socket.SOL_SOCKET, name) for name in names])
        if listener is received:
            assert queue_of(listener._listening[0].socket) == 3
        writer.close()
        await listener.close(0.0)
    assert sizes[1] == [40_000, 60_000]  # Linux doubles them for its own part
    assert sizes[0] != sizes[1]


def queue_of(listening):
    """The backlog: Linux reports it in a field that a listening socket does not use otherwise."""
    return struct.unpack_from("I", listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64), 28)[0]


@both_loops
async def test_listener_pauses_and_resumes_accepting():
    async with Rig() as rig, Rig() as other:
        rig.listener.pause()
        reader, writer = await rig.open()
        writer.write(frame(b"12345678"))
        (await round_trip(other)).close()
        assert rig.echo.connections == []
        rig.listener.resume()
        assert await read_frame(reader) == b"12345678"
        writer.close()


@both_loops
async def test_only_idle_connections_are_closed():
    async with Rig(idle_ms_max=2_000) as rig:
        rig.echo.later = lambda body: bytes(body) == b"delayed-"
        idle, busy, waiting = [await rig.open() for _ in range(3)]
        waiting[1].write(frame(b"delayed-"))
        await until(lambda: rig.echo.open)
        closed = asyncio.ensure_future(idle[0].read())
        while not closed.done():
            busy[1].write(frame(b"12345678"))
            await read_frame(busy[0])
        assert [each.reason for each in rig.echo.gone] == ["idle for too long"]
        rig.echo.open[0][0].send(b"woken")
        assert await read_frame(waiting[0]) == b"woken"
        for _, writer in (idle, busy, waiting):
            writer.close()


@both_loops
async def test_close_sends_open_responses():
    async with Rig() as rig, Rig() as other:
        rig.echo.later = lambda body: True
        reader, writer = await rig.open()
        writer.write(frame(b"12345678"))
        await until(lambda: rig.echo.open)
        closing = asyncio.ensure_future(rig.listener.close(10.0))
        (await round_trip(other)).close()
        assert rig.listener.addresses == [] and not closing.done()
        rig.echo.open[0][0].send(b"the last")
        await closing
        assert await reader.read() == frame(b"the last")
        writer.close()


@both_loops
async def test_close_aborts_after_the_grace_time():
    async with Rig() as rig:
        rig.echo.later = lambda body: True
        reader, writer = await rig.open()
        writer.write(frame(b"12345678"))
        await until(lambda: rig.echo.open)
        await rig.listener.close(0.05)
        assert await reader.read() == b""
        assert rig.echo.gone[0].reason == "the broker stops"
        writer.close()


def open_sockets():
    """The sockets of this process by their numbers, which do not depend on those of other tests."""
    return {link for link in open_descriptors().values() if link.startswith("socket:")}


@both_loops
async def test_connections_and_listener_leave_no_descriptor_open():
    async with Rig():  # the loop opens some on its first use
        pass
    before, epolls = open_sockets(), list(open_descriptors().values()).count("anon_inode:[eventpoll]")
    async with Rig() as rig:
        for _ in range(20):
            reader, writer = await rig.open()
            writer.write(frame(b"12345678"))
            await read_frame(reader)
            writer.close()
            await writer.wait_closed()
        served = open_sockets() - before
    await until(lambda: not open_sockets() & served)  # uvloop closes in a later iteration
    assert list(open_descriptors().values()).count("anon_inode:[eventpoll]") <= epolls


def handed_over():
    """A connected descriptor as a listener gives it away, the other end of it, and the addresses."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(60)
    return ours.detach(), theirs, ("LISTENER", ("127.0.0.1", 1), ("127.0.0.1", 2))


def nothing_is_kept(rig):
    reactor = rig.listener.reactor
    return not (reactor.connections_count or reactor.connections() or reactor.connections_of("127.0.0.1"))


@both_loops
async def test_unusable_descriptor_is_closed(tmp_path):
    async with Rig() as rig:
        fd = os.open(tmp_path / "no socket", os.O_CREAT | os.O_RDWR)
        with pytest.raises(OSError):
            rig.listener.reactor.adopt(fd, "LISTENER", ("127.0.0.1", 1), ("127.0.0.1", 2))
        with pytest.raises(OSError) as closed:
            os.fstat(fd)
        assert closed.value.errno == errno.EBADF
        assert nothing_is_kept(rig)
        (await round_trip(rig)).close()


@both_loops(drivers=["transport"])
async def test_connection_is_closed_if_its_task_cannot_start():
    loop = asyncio.get_running_loop()
    async with Rig() as rig:
        fd, theirs, names = handed_over()
        loop.set_task_factory(lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            rig.listener.reactor.adopt(fd, *names)
        loop.set_task_factory(None)
        assert theirs.recv(1) == b""
        assert nothing_is_kept(rig)
        (await round_trip(rig)).close()
        theirs.close()


@both_loops(drivers=["transport"])
async def test_connection_cancelled_before_its_first_step_is_closed():
    async with Rig() as rig:
        fd, theirs, names = handed_over()
        rig.listener.reactor.adopt(fd, *names)
        assert rig.listener.reactor.connections_of("127.0.0.1") == 1
        rig.listener.reactor.abort("the test says so")
        await until(lambda: not rig.listener.reactor.connections_count)
        assert nothing_is_kept(rig)
        assert theirs.recv(1) == b""
        assert rig.echo.connections == []
        theirs.close()


EXHAUSTED = """
import asyncio, json, logging, resource, socket, sys, uvloop
from kafkalite.net.listener import Listener
from tests.unit.net.rig import Echo, frame, read_frame, until

class Texts(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())

class Counting(Listener):
    exhausted = 0
    thrice = asyncio.Event()
    def _accept_and_close(self, listener_socket, error):
        super()._accept_and_close(listener_socket, error)
        self.exhausted += 1
        if self.exhausted == 3:
            self.thrice.set()

async def main():
    logging.getLogger("kafkalite.net").addHandler(Texts())
    echo = Echo()
    listener = Counting(asyncio.get_running_loop(), echo)
    address = listener.bind("127.0.0.1", 0)
    clients = [socket.socket() for _ in range(30)]
    held = [open("/dev/null") for _ in range(5)]
    used = max(each.fileno() for each in held) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for client in clients:
        client.connect(address)
    await until(lambda: Texts.lines)
    before = resource.getrusage(resource.RUSAGE_SELF)
    passes = listener.reactor.iterations
    await asyncio.wait_for(listener.thrice.wait(), 120)  # it has rested twice
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    passed = listener.reactor.iterations - passes
    accepted = len(echo.connections)
    for client in clients:
        client.close()
    await until(lambda: not listener.reactor.connections_count)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(frame(b"12345678"))
    served = (await read_frame(reader)).decode()
    writer.close()
    await listener.close(1.0)
    print(json.dumps({"cpu_s": spent, "passes": passed, "texts": Texts.lines, "accepted": accepted, "served": served}))

uvloop.run(main()) if sys.argv[1] == "uvloop" else asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_missing_descriptors_are_logged_once_without_spinning(loop):
    command = [sys.executable, "-c", EXHAUSTED, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["cpu_s"] < 0.25, seen
    assert seen["passes"] < 100, seen
    assert len(seen["texts"]) == 1 and "Too many open files" in seen["texts"][0]
    assert 0 < seen["accepted"] < 30
    assert seen["served"] == "12345678"


IDLE = """
import asyncio, gc, json, resource, socket, sys, uvloop
from kafkalite.net.listener import Listener
from tests.unit.net.rig import Echo, until

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

async def main():
    echo = Echo()
    echo.connected = lambda connection: True
    listener = Listener(asyncio.get_running_loop(), echo)
    print(listener.bind("127.0.0.1", 0)[1], flush=True)
    gc.collect()
    before = resident()
    await until(lambda: echo.frames == 5000, 240)
    gc.collect()
    print(json.dumps({"per_connection": (resident() - before) / 5000}), flush=True)
    sys.stdin.readline()
    await listener.close(0.0)

uvloop.run(main())
"""


@pytest.mark.skipif(ENGINE == "asan", reason="the sanitizer puts a zone around each allocation")
def test_memory_of_an_idle_connection():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert hard == resource.RLIM_INFINITY or hard > 6000, "too few open files for 5,000 connections"
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    with subprocess.Popen(
        [sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        port = int(server.stdout.readline())
        clients = []
        try:
            for _ in range(5000):
                client = socket.create_connection(("127.0.0.1", port))
                client.sendall(frame(b"12345678"))
                clients.append(client)
            figure = json.loads(server.stdout.readline())["per_connection"]
        finally:
            for client in clients:
                client.close()
            server.stdin.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(f"an idle connection takes {figure:.0f} bytes")
    assert figure <= 2048
