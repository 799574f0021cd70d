"""A cluster client on real sockets, on asyncio's own loop and on uvloop: brokers of kafkalite, dead and false ones."""

import asyncio
import functools
import gc
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.settings import ClientSettings, parse_bootstrap

from kafkalite.errors import KafkaConnectionError, KafkaTimeoutError
from kafkalite.net.client.connection import dial
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.broker import Broker
from tests.kit.descriptors import open_descriptors
from tests.kit.ports import free_port
from tests.story.sdk.client_rig import Ends, metadata_when, outcome


def connections() -> set[tuple[int, str]]:
    """The open descriptors that are no files: garbage of earlier tests closes such at any time, so only new ones count.

    Brokers that earlier tests have started in threads of this process open and close files.
    """
    return {(number, target) for number, target in open_descriptors().items() if not target.startswith("/")}


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on both event loops, in debug mode; afterwards no task and no file descriptor is left."""

    @pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    @functools.wraps(test)
    def run(new_loop: Callable[[], asyncio.AbstractEventLoop], **arguments: Any) -> None:
        failures: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
            await test(**arguments)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        new_loop().close()  # the first loop of a process opens files that it keeps
        gc.collect()
        before = connections()
        with asyncio.Runner(loop_factory=new_loop, debug=True) as runner:
            runner.run(main())
        gc.collect()
        assert (connections() - before, failures) == (set(), [])

    parameters = inspect.signature(test).parameters.values()
    own = inspect.Parameter("new_loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
    return run


@asynccontextmanager
async def started(bootstrap: str, **settings: Any) -> AsyncIterator[ClusterClient]:
    client = ClusterClient(ClientSettings(parse_bootstrap(bootstrap), **settings))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@contextmanager
def unreachable() -> Any:
    """An address that accepts no connection: the queue of its listener is full."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            yield f"127.0.0.1:{full.getsockname()[1]}"


@asynccontextmanager
async def serving(handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> AsyncIterator[str]:
    """A listener that is no broker."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait([task])


@on_both_loops
async def test_topics_coordinators_and_requests_of_a_broker(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)) as broker, started(broker.address) as client:
        node = next(iter(client.view.brokers))
        client.use_topics(["orders"], create=True)
        await metadata_when(client, lambda: client.view.leader("orders", 0) == node)
        ends = Ends()
        client.find_coordinator("billing", 0, ends.end, ends.end)
        assert await ends.reached(1) == [node]
        responses = await asyncio.gather(*(client.call(node, ListGroupsRequest()) for _ in range(200)))
        assert {each.error_code for each in responses} == {0}
        assert client.is_connected(node) and not client.is_connected(node, "group")


@on_both_loops
async def test_start_with_dead_addresses_before_the_broker(tmp_path: Path) -> None:
    with unreachable() as silent:
        async with Broker(str(tmp_path)) as broker:
            for _ in range(3):
                async with started(
                    f"127.0.0.1:{free_port()},{silent},{broker.address}", connect_timeout_s=5.0
                ) as client:
                    assert client.view.brokers


@on_both_loops
async def test_start_without_any_broker_names_every_address() -> None:
    with unreachable() as silent:
        dead = f"127.0.0.1:{free_port()}"
        client = ClusterClient(ClientSettings(parse_bootstrap([dead, silent]), connect_timeout_s=0.3))
        with pytest.raises(KafkaConnectionError) as failed:
            await client.start()
        assert f"cannot connect to {dead}: Connection refused" in str(failed.value)
        assert f"{silent} did not answer in 0.3 s" in str(failed.value)


@on_both_loops
async def test_addresses_that_speak_something_else(tmp_path: Path) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)

    async def empty_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(4))

    for handler, error in (
        (http, "is it a broker's port, without TLS"),
        (closes, "before the first response"),
        (empty_frames, "a response of 0 bytes"),
    ):
        async with serving(handler) as false, Broker(str(tmp_path)) as broker:
            result = await outcome(ClusterClient(ClientSettings(parse_bootstrap(false))).start())
            assert isinstance(result, KafkaConnectionError) and error in str(result), result
            for _ in range(3):
                async with started(f"{false},{broker.address}") as client:
                    assert client.view.brokers


@on_both_loops
async def test_unknown_host_is_named() -> None:
    for host in ("no.such.host.invalid", "a..b", "x" * 70 + ".invalid"):
        client = ClusterClient(ClientSettings(parse_bootstrap(f"{host}:1")))
        with pytest.raises(KafkaConnectionError, match=f"cannot connect to {host}:1: "):
            await client.start()


@on_both_loops
async def test_broker_that_restarts_at_another_port(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    broker = Broker(str(tmp_path), {"listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}"})
    await broker.start()
    try:
        async with started(bootstrap) as client:
            client.use_topics(["orders"], create=True)
            await metadata_when(client, lambda: "orders" in client.view.topics)
            for port in (ports[1], ports[0]):
                await broker.stop()
                broker = Broker(str(tmp_path), {"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
                await broker.start()
                assert (await client.call_any(ListGroupsRequest())).error_code == 0
                client.refresh_metadata()
                await metadata_when(client, lambda port=port: [b.port for b in client.view.brokers.values()] == [port])
                (node,) = client.view.brokers
                assert (await client.call(node, ListGroupsRequest())).error_code == 0
    finally:
        await broker.stop()


@on_both_loops
async def test_close_returns_in_time_while_the_broker_reads_nothing(tmp_path: Path) -> None:
    """The broker is a proxy that stops: the client has more to write than the sockets accept."""
    stopped = asyncio.Event()
    async with Broker(str(tmp_path)) as broker:
        host, port = broker.address.split(":")

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            upstream_reader, upstream = await asyncio.open_connection(host, int(port))

            async def backwards() -> None:
                while data := await upstream_reader.read(1 << 16):
                    writer.write(data)

            task = asyncio.ensure_future(backwards())
            while not stopped.is_set() and (data := await reader.read(1 << 16)):
                upstream.write(data)
                if len(data) == 1 << 16:
                    break  # from here on it reads nothing
            await stopped.wait()
            upstream.close()
            await task

        async with serving(proxy) as address:
            client = ClusterClient(ClientSettings(parse_bootstrap(address)))
            await client.start()
            name = "x" * 30_000
            big = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for _ in range(1000)])
            channels = client._running.channels  # type: ignore[union-attr]
            (node,) = client.view.brokers
            channels.addresses[node] = channels.addresses[-1]  # the proxy, not the address that the broker advertises
            ends = Ends()
            client.submit(node, big, ends.end, ends.end)
            await client.call(node, ListGroupsRequest(), channel="group")
            loop = asyncio.get_running_loop()
            begin = loop.time()
            await client.close(timeout_s=0.2)
            assert loop.time() - begin < 5.0  # 0.2 s, on a machine that is not busy
            assert [str(each) for each in ends.ends] == ["this client was closed"]
            stopped.set()


@on_both_loops
async def test_requests_end_at_their_deadline_while_the_broker_is_unreachable(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)) as broker, started(broker.address) as client:
        (node,) = client.view.brokers
        with unreachable() as silent:
            host, _, port = silent.partition(":")
            client._running.channels.addresses[node] = (host, int(port))  # type: ignore[union-attr]
            error = await outcome(client.call(node, ListGroupsRequest(), timeout_s=0.1, channel="other"))
            assert isinstance(error, KafkaTimeoutError)


@on_both_loops
async def test_cancelled_dial_leaves_no_socket() -> None:
    with unreachable() as silent:
        host, _, port = silent.partition(":")
        before = connections()
        for iterations in range(10):
            dialing = asyncio.ensure_future(dial(asyncio.Protocol, host, int(port), None))
            for _ in range(iterations):
                await asyncio.sleep(0)
            dialing.cancel()
            assert isinstance(await outcome(dialing), asyncio.CancelledError)
        assert connections() - before == set()


@on_both_loops
async def test_numeric_addresses_need_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker(str(tmp_path)) as broker:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(*_args: object, **_options: object) -> None:
            raise AssertionError("a name server is asked")

        monkeypatch.setattr(type(loop), "getaddrinfo", getaddrinfo) if isinstance(loop, asyncio.BaseEventLoop) else None
        async with started(broker.address) as client:
            assert client.view.brokers
