"""The client half of a connection against a listener with a minimum of the Kafka protocol."""

import asyncio
import errno
import socket
import ssl

import pytest

from kafkalite._speedups.codec import decode, encode, read_request_header, response_header
from kafkalite.errors import DecodeError, KafkaConnectionError, KafkaErrorCode, KafkaTimeoutError, error_class
from kafkalite.net.client import ClientConnection
from kafkalite.net.client.failures import reason_of
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.net.rig import Rig, both_loops, frame, until

UNSUPPORTED = error_class(KafkaErrorCode.UNSUPPORTED_VERSION)


class Speaker:
    """Answers ApiVersions; Metadata with its correlation id as the number of the controller, or not at all."""

    def __init__(self, rig, api_versions_max=4, metadata=(0, 13)):
        rig.echo.answer = self.answer
        rig.echo.later = lambda body: bytes(body[:2]) == b"\0\3" and self.hold
        self.api_versions_max = api_versions_max
        self.metadata = metadata
        self.hold = False
        self.asked = []
        self.throttle_ms = 0

    def answer(self, body):
        header = read_request_header(body)
        self.asked.append((header.api_key, header.api_version))
        if header.api_key == ApiVersionsRequest.api_key:
            ranges = [
                ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=self.api_versions_max),
                ApiVersionsResponse.ApiVersion(api_key=3, min_version=self.metadata[0], max_version=self.metadata[1]),
            ]
            known = header.api_version <= self.api_versions_max
            version = header.api_version if known else 0
            response = ApiVersionsResponse(error_code=0 if known else 35, api_keys=ranges)
        else:
            version = header.api_version
            decode(MetadataRequest, version, header.body)
            response = MetadataResponse(throttle_time_ms=self.throttle_ms, controller_id=header.correlation_id)
        return encode(response, version, response_header(type(response), version, header.correlation_id))


@both_loops
async def test_calls_are_pipelined_and_each_gets_its_own_answer():
    async with Rig() as rig:
        Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            answers = await asyncio.gather(*(connection.call(MetadataRequest(topics=[])) for _ in range(100)))
        numbers = [answer.controller_id for answer in answers]
        assert numbers == list(range(numbers[0], numbers[0] + 100))


@both_loops
async def test_submit_now_writes_before_it_returns_and_leaves_a_closed_connection_alone():
    async with Rig() as rig:
        Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            answer = asyncio.get_running_loop().create_future()
            deadline = asyncio.get_running_loop().time() + 10
            request = MetadataRequest(topics=[])
            assert connection.submit_now(request, answer.set_result, answer.set_exception, deadline, 2)
            assert connection.open_calls == 1 and not connection._core.has_outgoing
            assert (await answer).controller_id == 2  # the second request
            with pytest.raises(UNSUPPORTED):
                connection.submit_now(request, answer.set_result, answer.set_exception, deadline, -1)
        assert not connection.submit_now(request, answer.set_result, answer.set_exception, deadline)


@pytest.mark.parametrize("api_versions_max", [0, 2, 3])
@both_loops
async def test_api_versions_is_retried_in_the_version_of_an_older_broker(api_versions_max):
    async with Rig() as rig:
        speaker = Speaker(rig, api_versions_max, metadata=(0, 5))
        async with ClientConnection(*rig.address) as connection:
            assert connection.api_versions[3] == (0, 5)
            await connection.call(MetadataRequest(topics=[]))
            await connection.call(MetadataRequest(topics=[]), version_max=2)
        assert speaker.asked == [(18, 4), (18, api_versions_max), (3, 5), (3, 2)]


@both_loops
async def test_no_common_version_is_a_typed_error():
    async with Rig() as rig:
        Speaker(rig, metadata=(90, 99))
        async with ClientConnection(*rig.address) as connection:
            with pytest.raises(UNSUPPORTED, match="v90-99"):
                await connection.call(MetadataRequest(topics=[]))


@both_loops
async def test_a_timeout_that_keeps_the_connection_leaves_the_next_call_alone():
    async with Rig() as rig:
        speaker = Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            speaker.hold = True
            with pytest.raises(KafkaTimeoutError, match="MetadataRequest"):
                await connection.call(MetadataRequest(topics=[]), timeout_s=0.02, keep_connection=True)
            speaker.hold = False
            later = connection.call(MetadataRequest(topics=[]))
            await until(lambda: rig.echo.frames == 3)
            reply, body = rig.echo.open[0]
            reply.send(speaker.answer(body))
            assert (await later).controller_id == 3


@both_loops
async def test_a_timeout_ends_the_connection_and_all_open_calls():
    async with Rig() as rig:
        speaker = Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            speaker.hold = True
            other = connection.call(MetadataRequest(topics=[]))
            with pytest.raises(KafkaTimeoutError, match="MetadataRequest"):
                await connection.call(MetadataRequest(topics=[]), timeout_s=0.02)
            with pytest.raises(KafkaConnectionError, match="connection closed, MetadataRequest timed out"):
                await other
            assert connection.closed


@both_loops
async def test_a_cancelled_call_drops_its_response():
    async with Rig() as rig:
        Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            connection.call(MetadataRequest(topics=[])).cancel()
            assert (await connection.call(MetadataRequest(topics=[]))).controller_id == 3


@both_loops
async def test_close_ends_while_the_broker_reads_nothing():
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        connection = ClientConnection(*listener.getsockname())
        connecting = asyncio.ensure_future(connection.connect())
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        accepted, _ = await loop.sock_accept(listener)
        with accepted:
            await until(lambda: not connection.closed)
            connection._driver.transport.write(bytes(64 << 20))
            await connection.close(0.05)
            assert connection.closed
            with pytest.raises(KafkaConnectionError):
                await connecting


class CountedTransport:
    """Counts the writes of a connection; `full` is a transport above its high-water mark."""

    def __init__(self, connection):
        self.driver = connection._driver
        self.transport, self.driver.transport = self.driver.transport, self
        self.writes = []
        self.closing = False  # as after a write that has failed

    def write(self, data):
        self.writes.append(bytes(data))

    def is_closing(self):
        return self.closing

    def close(self):
        self.transport.close()


@both_loops
async def test_calls_of_one_loop_iteration_leave_in_one_write():
    async with Rig() as rig:
        Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            counted = CountedTransport(connection)
            calls = [connection.call(MetadataRequest(topics=[])) for _ in range(10)]
            await asyncio.sleep(0)
            assert len(counted.writes) == 1
            counted.transport.write(counted.writes[0])
            assert len(await asyncio.gather(*calls)) == 10


@both_loops
async def test_no_request_overtakes_another_while_the_transport_is_full():
    async with Rig() as rig:
        Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            counted = CountedTransport(connection)
            connection._driver.pause_writing()
            calls = [connection.call(MetadataRequest(topics=[])) for _ in range(3)]
            await asyncio.sleep(0)
            calls.append(connection.call(MetadataRequest(topics=[])))
            written = []
            connection.send(MetadataRequest(topics=[]), lambda: written.append(len(counted.writes)), written.append)
            await asyncio.sleep(0)
            assert counted.writes == [] and written == []
            connection._driver.resume_writing()
            assert written == [1]
            counted.transport.write(b"".join(counted.writes))
            assert [(await call).controller_id for call in calls] == [2, 3, 4, 5]


@both_loops
async def test_no_write_follows_a_failed_one():
    async with Rig() as rig:
        Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            counted = CountedTransport(connection)
            counted.closing = True
            call = connection.call(MetadataRequest(topics=[]))
            await asyncio.sleep(0)
            assert counted.writes == []
            counted.transport.abort()
            with pytest.raises(KafkaConnectionError):
                await call


@both_loops
async def test_a_throttled_call_leaves_when_the_time_has_passed():
    async with Rig() as rig:
        speaker = Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            speaker.throttle_ms = 30
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            await connection.call(MetadataRequest(topics=[]))
            speaker.throttle_ms = 0
            until_s = connection._core.throttled_until
            assert until_s >= begun_s + 0.03
            await connection.call(MetadataRequest(topics=[]))
            assert loop.time() >= until_s


@both_loops
async def test_another_address_is_tried_beside_one_that_does_not_answer(monkeypatch):
    async with Rig() as rig:
        Speaker(rig)
        with socket.socket() as full:  # accepts no connection: its queue of one is taken
            full.bind(("127.0.0.2", rig.address[1]))
            full.listen(0)
            with socket.create_connection(full.getsockname()):
                addresses = [
                    (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, rig.address[1]))
                    for host in ("127.0.0.2", "127.0.0.1")
                ]
                loop = asyncio.get_running_loop()
                resolve = loop.getaddrinfo

                async def getaddrinfo(host, *args, **options):
                    return addresses if host == "two.addresses" else await resolve(host, *args, **options)

                monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
                async with ClientConnection("two.addresses", rig.address[1]) as connection:
                    await connection.call(MetadataRequest(topics=[]))


@both_loops
async def test_open_calls_fail_when_the_connection_ends():
    async with Rig() as rig:
        speaker = Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            speaker.hold = True
            calls = [asyncio.ensure_future(connection.call(MetadataRequest(topics=[]))) for _ in range(3)]
            await until(lambda: len(rig.echo.open) == 3)
            rig.echo.connections[0].close("told to")
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert type(error) is KafkaConnectionError
            with pytest.raises(KafkaConnectionError):
                await connection.call(MetadataRequest(topics=[]))


@pytest.mark.parametrize(
    "answer", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff1234", b"\0\0\0\2ab", frame(b"\0\0\0\x77stray")], ids=repr
)
@both_loops
async def test_a_stream_that_is_not_kafka_ends_the_connection(answer):
    async def serve(reader, writer):
        await reader.read(1)
        for at in range(len(answer)):
            writer.write(answer[at : at + 1])
            await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        with pytest.raises(KafkaConnectionError):
            await ClientConnection(*server.sockets[0].getsockname()).connect()


@both_loops
async def test_an_answer_that_does_not_parse_fails_its_call_only():
    async with Rig() as rig:
        speaker = Speaker(rig)
        async with ClientConnection(*rig.address) as connection:
            rig.echo.answer = lambda body: bytes(body[4:8]) + b"\xff\xff\xff\xff"
            with pytest.raises(DecodeError):
                await connection.call(MetadataRequest(topics=[]))
            rig.echo.answer = speaker.answer
            assert (await connection.call(MetadataRequest(topics=[]))).controller_id == 3


@both_loops
async def test_connection_refused_is_reported_in_one_line():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(KafkaConnectionError, match=f"cannot connect to 127.0.0.1:{port}"):
            await ClientConnection("127.0.0.1", port).connect()


@both_loops
async def test_a_connection_that_is_closed_before_the_first_answer_names_likely_causes():
    async with Rig() as rig:
        rig.echo.accepts = False
        with pytest.raises(KafkaConnectionError) as failed:
            await ClientConnection(*rig.address).connect()
    address, _, reason = str(failed.value).partition(": ")
    assert address == f"127.0.0.1:{rig.address[1]}"
    how, _, hint = reason.partition(" before the first response; ")
    assert how in ("the connection was closed", "Connection reset by peer")
    assert hint.startswith("does the listener require TLS (security_protocol)?")


@both_loops
async def test_a_silent_broker_is_a_timeout():
    async with Rig() as rig:
        rig.echo.later = lambda body: True
        with pytest.raises(KafkaTimeoutError, match=r"did not answer in 0\.05 s; is a broker there, and reachable\?"):
            await ClientConnection(*rig.address, connect_timeout_s=0.05).connect()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect ..., [Errno 111] Connect ..."), "Connection refused"),
        (
            OSError("Multiple exceptions: [Errno 101] Connect ..., [Errno 111] Connect ..."),
            "Network is unreachable, Connection refused",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            "[SSL: WRONG_VERSION_NUMBER] wrong version number",
        ),
        (OSError("no number"), "no number"),
        (PermissionError(errno.EPERM, "its mode is 0777", "/shared"), "its mode is 0777"),
    ],
)
def test_connection_error_contains_the_system_error(error, said):
    assert reason_of(error) == said


async def test_connection_refused_on_all_addresses_of_localhost():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(KafkaConnectionError) as failed:
        await ClientConnection("localhost", port).connect()
    assert str(failed.value) == f"cannot connect to localhost:{port}: Connection refused; is a broker there?"
