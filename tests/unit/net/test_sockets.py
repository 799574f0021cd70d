"""Plain connections over real sockets: order, back-pressure, half close, resets, closing."""

import socket

import pytest

from kafkalite._speedups.storage.file import Disk, FileRegion
from tests.unit.net.rig import Rig, both_loops, frame, leave, read_frame, round_trip, until


@both_loops
async def test_pipelined_requests_are_answered_in_order():
    async with Rig() as rig:
        reader, writer = await rig.open()
        bodies = [bytes([i % 256]) * (8 + i * 7) for i in range(500)]
        writer.write(b"".join(map(frame, bodies)))
        assert [await read_frame(reader) for _ in bodies] == bodies
        writer.close()
        await until(lambda: rig.echo.gone)


@both_loops
async def test_frame_larger_than_the_receive_buffer():
    async with Rig() as rig:
        reader, writer = await rig.open()
        body = bytes(range(256)) * 20_000
        writer.write(frame(b"before--") + frame(body) + frame(b"after---"))
        assert [await read_frame(reader) for _ in range(3)] == [b"before--", body, b"after---"]
        writer.close()


@both_loops
async def test_replies_completed_out_of_order_are_sent_in_order():
    async with Rig() as rig:
        rig.echo.later = lambda body: body[0] == 1
        reader, writer = await rig.open()
        bodies = [bytes([i % 2]) * 8 + bytes([i]) for i in range(10)]
        writer.write(b"".join(map(frame, bodies)))
        await until(lambda: rig.echo.frames == 10)
        for reply, body in reversed(rig.echo.open):
            reply.send(body)
            assert reply.done
        assert [await read_frame(reader) for _ in bodies] == bodies
        writer.close()


@both_loops
async def test_skipped_reply_sends_nothing():
    async with Rig() as rig:
        rig.echo.later = lambda body: True
        reader, writer = await rig.open()
        writer.write(frame(b"11111111") + frame(b"22222222"))
        await until(lambda: len(rig.echo.open) == 2)
        rig.echo.open[0][0].skip()
        rig.echo.open[1][0].send(b"answer")
        assert await read_frame(reader) == b"answer"
        writer.close()


@both_loops
async def test_slow_reader_is_not_read_and_uses_bounded_memory():
    async with Rig() as rig:
        rig.echo.answer = lambda body: bytes(256 * 1024) if bytes(body) == b"fetch---" else bytes(body)
        reader, writer = await rig.open()
        writer.transport.pause_reading()
        writer.write(frame(b"fetch---") * 20_000)
        await until(lambda: rig.echo.connections and rig.echo.connections[0].stalled)
        connection = rig.echo.connections[0]
        others = [await round_trip(rig)]
        before = rig.echo.frames - 1
        while rig.echo.frames > before + 1:  # the sockets' buffers fill up
            before = rig.echo.frames
            others.append(await round_trip(rig))
        writer.write(frame(b"fetch---") * 100)
        others.append(await round_trip(rig))
        assert rig.echo.frames == before + 2 and connection.stalled
        assert connection.unsent <= (1 << 20) + 256 * 1024 + 4
        writer.transport.resume_reading()
        for _ in range(before + 20):
            await read_frame(reader)
        writer.transport.abort()
        for other in others:
            other.close()
        await until(lambda: len(rig.echo.gone) == 1 + len(others))


@both_loops
async def test_too_many_open_replies_stop_reading():
    async with Rig(open_replies_max=10) as rig:
        rig.echo.later = lambda body: True
        reader, writer = await rig.open()
        writer.write(frame(b"12345678") * 25)
        await until(lambda: rig.echo.frames == 10)
        connection = rig.echo.connections[0]
        assert connection.stalled and connection.open_replies == 10
        answered = 0
        while answered < 25:
            await until(lambda: rig.echo.open)
            reply, body = rig.echo.open.pop(0)
            reply.send(body)
            assert await read_frame(reader) == body
            answered += 1
        assert rig.echo.frames == 25
        writer.close()


@both_loops
async def test_too_many_bytes_of_open_requests_stop_reading():
    async with Rig(requests_bytes_max=25_000) as rig:
        rig.echo.later = lambda body: True
        reader, writer = await rig.open()
        bodies = [bytes([i]) * 10_000 for i in range(8)]
        writer.write(b"".join(map(frame, bodies)))
        await until(lambda: rig.echo.frames == 3)
        connection = rig.echo.connections[0]
        assert connection.stalled and connection.requests_bytes == 30_000
        rig.echo.open[1][0].send(bodies[1])  # room, though its answer cannot leave before the first
        await until(lambda: rig.echo.frames == 4)
        rig.echo.open.pop(1)
        rig.echo.open.pop(0)[0].send(bodies[0])
        for answered, body in enumerate(bodies):
            if answered > 1:
                await until(lambda: rig.echo.open)
                rig.echo.open.pop(0)[0].send(body)
            assert await read_frame(reader) == body
            assert connection.requests_bytes <= 30_000
        assert connection.requests_bytes == 0 and not connection.stalled
        writer.close()


@both_loops
async def test_a_request_above_the_bytes_of_open_requests_is_served_alone():
    async with Rig(requests_bytes_max=1) as rig:
        reader, writer = await rig.open()
        bodies = [b"1" * 1_000_000, b"22222222", b"3" * 300_000]
        writer.write(b"".join(map(frame, bodies)))
        rig.echo.later = lambda body: True
        for served, body in enumerate(bodies):
            await until(lambda: rig.echo.open)
            assert rig.echo.frames == served + 1
            rig.echo.open.pop()[0].send(body)
            assert await read_frame(reader) == body
        writer.close()


@both_loops
async def test_one_request_at_a_time_before_authentication():
    async with Rig(authenticate=True) as rig:
        rig.echo.later = lambda body: True
        reader, writer = await rig.open()
        writer.write(frame(b"12345678") * 3)
        await until(lambda: rig.echo.frames == 1)
        rig.echo.later = lambda body: bytes(body) != b"another-"
        other = await round_trip(rig)
        assert rig.echo.frames == 2  # one of each
        rig.echo.connections[0].authenticated = True
        rig.echo.open.pop()[0].send(b"accept_connection")
        assert await read_frame(reader) == b"accept_connection"
        await until(lambda: rig.echo.frames == 4)
        writer.close()
        other.close()


@both_loops
async def test_half_closed_connection_receives_its_responses():
    async with Rig() as rig:
        rig.echo.later = lambda body: True
        reader, writer = await rig.open()
        writer.write(frame(b"12345678") * 2 + b"\0\0\0\x20half a frame")
        writer.write_eof()
        await until(lambda: len(rig.echo.open) == 2)
        await until(lambda: rig.echo.connections[0].ended)
        assert not rig.echo.gone
        for reply, body in rig.echo.open:
            reply.send(body)
        assert await reader.read() == frame(b"12345678") * 2
        await until(lambda: rig.echo.gone)
        writer.close()


@pytest.mark.parametrize("what", ["queued requests", "half a frame", "open replies", "nothing"])
@both_loops
async def test_reset_closes_the_connection_and_notifies_its_replies_once(what):
    async with Rig() as rig:
        rig.echo.later = lambda body: True
        client = socket.create_connection(rig.address)
        notified = []
        if what != "nothing":
            client.sendall(frame(b"12345678") * 5 + (b"\0\0\0\x20half" if what == "half a frame" else b""))
            await until(lambda: rig.echo.frames == 5)
            for number, (reply, _) in enumerate(rig.echo.open):
                reply.on_gone = lambda number=number: notified.append(number)
            if what == "queued requests":
                client.sendall(frame(b"12345678") * 120)
        else:
            await until(lambda: rig.echo.connections)
        leave(client, "reset")
        await until(lambda: rig.echo.gone)
        assert notified == ([0, 1, 2, 3, 4] if what != "nothing" else [])
        assert all(reply.done for reply, _ in rig.echo.open)
        for reply, body in rig.echo.open:
            reply.send(body)  # an answer after the end is ignored
        assert rig.listener.reactor.connections_count == 0
        rig.echo.later = lambda body: False
        other = await round_trip(rig)
        assert notified == ([0, 1, 2, 3, 4] if what != "nothing" else [])
        assert len(rig.echo.gone) == 1
        other.close()


@pytest.mark.parametrize("how", ["reset", "closed"])
@both_loops
async def test_closed_peer_of_a_stalled_connection_is_detected(how):
    async with Rig(open_replies_max=3) as rig:
        rig.echo.later = lambda body: True
        client = socket.create_connection(rig.address)
        client.sendall(frame(b"12345678") * 5)
        # Also stalled, with fewer requests delivered, is a connection whose share of the loop iteration is used up.
        await until(lambda: rig.echo.frames == 3 and rig.echo.connections[0].stalled)
        gone = []
        for reply, _ in rig.echo.open:
            reply.on_gone = lambda: gone.append(1)
        leave(client, how)
        await until(lambda: rig.echo.gone)
        assert gone == [1, 1, 1] and rig.echo.frames == 3


@both_loops
async def test_half_closed_connection_ends_at_its_first_delayed_request():
    async with Rig() as rig:
        rig.echo.later = lambda body: bytes(body) in (b"produce-", b"delayed-")
        reader, writer = await rig.open()
        writer.write(frame(b"at once-") + frame(b"produce-") + frame(b"delayed-") + frame(b"behind--"))
        await until(lambda: len(rig.echo.open) == 2)
        (produce, body), (delayed, _) = rig.echo.open
        gone = []
        delayed.on_gone = lambda: gone.append(1)
        writer.write_eof()
        await until(lambda: rig.echo.connections[0].ended)
        assert await read_frame(reader) == b"at once-"
        assert not rig.echo.gone and not gone
        produce.send(body)
        assert await reader.read() == frame(b"produce-")
        await until(lambda: rig.echo.gone)
        assert gone == [1]
        writer.close()


@both_loops
async def test_exception_of_the_service_closes_its_connection_only(caplog):
    async with Rig() as rig:

        def answer(body):
            if bytes(body) == b"bad-----":
                raise KeyError("planted")
            return bytes(body)

        rig.echo.answer = answer
        good = await rig.open()
        for _ in range(3):
            reader, writer = await rig.open()
            writer.write(frame(b"fine----") + frame(b"bad-----") + frame(b"after---"))
            await reader.read()
            writer.close()
        good[1].write(frame(b"good----"))
        assert await read_frame(good[0]) == b"good----"
        good[1].close()
        assert sum("KeyError" in record.getMessage() for record in caplog.records) == 1


@both_loops
async def test_exception_in_flush_closes_the_connections_of_the_iteration(caplog):
    async with Rig() as rig:
        quiet = await rig.open()
        await until(lambda: rig.echo.connections)
        seen = rig.echo.frames

        def fail():
            if rig.echo.frames > seen:
                rig.echo.at_flush = lambda: None
                raise OSError("planted")

        rig.echo.at_flush = fail
        reader, writer = await rig.open()
        writer.write(frame(b"12345678"))
        assert await reader.read() == b""
        writer.close()
        quiet[1].write(frame(b"12345678"))
        assert await read_frame(quiet[0]) == b"12345678"
        quiet[1].close()


@both_loops
async def test_reply_close_sends_earlier_responses_and_serves_no_later_request():
    async with Rig() as rig:
        rig.echo.later = lambda body: bytes(body) != b"another-"
        reader, writer = await rig.open()
        writer.write(frame(b"first---") + frame(b"second--"))
        await until(lambda: len(rig.echo.open) == 2)
        (first, _), (second, _) = rig.echo.open
        second.close("told to")
        writer.write(frame(b"third---"))
        other = await round_trip(rig)
        first.send(b"answer")
        assert await reader.read() == frame(b"answer")
        assert rig.echo.frames == 3  # the third is the other connection's
        await until(lambda: rig.echo.gone)
        assert rig.echo.gone[0].reason == "told to"
        writer.close()
        other.close()


@both_loops
async def test_connection_closed_by_its_own_request():
    async with Rig() as rig:

        def answer(body):
            rig.echo.connections[0].close("enough")
            return bytes(body)

        rig.echo.answer = answer
        reader, writer = await rig.open()
        writer.write(frame(b"12345678") * 3)
        assert await reader.read() == b""
        assert rig.echo.frames == 1
        assert len(rig.echo.gone) == 1
        writer.close()


@both_loops
async def test_second_answer_of_a_reply_raises():
    async with Rig() as rig:
        rig.echo.later = lambda body: True
        _, writer = await rig.open()
        writer.write(frame(b"12345678"))
        await until(lambda: rig.echo.open)
        reply = rig.echo.open[0][0]
        reply.send(b"one")
        with pytest.raises(RuntimeError, match="already answered"):
            reply.send(b"two")
        writer.close()


@pytest.mark.parametrize("length", [1, 4096, 100_000, 102_401, 1_000_000, 5_000_000])
@both_loops
async def test_file_regions_are_sent_between_bytes(tmp_path, length):
    data = bytes(i * 7 % 251 for i in range(length + 100))
    (tmp_path / "log").write_bytes(data)
    file = Disk().open(str(tmp_path / "log"), read_only=True)
    async with Rig() as rig:
        region = FileRegion(file, 50, length)
        rig.echo.answer = lambda body: [b"head", region, b"x" * 5000, region, memoryview(b"tail")]
        reader, writer = await rig.open()
        writer.write(frame(b"fetch---") * 3)
        expected = b"head" + data[50 : 50 + length] + b"x" * 5000 + data[50 : 50 + length] + b"tail"
        for _ in range(3):
            assert await read_frame(reader) == expected
        writer.close()
    file.close()


@pytest.mark.parametrize("length", [1000, 1_000_000])
@both_loops
async def test_truncated_file_closes_the_connection_without_padding(tmp_path, length):
    (tmp_path / "log").write_bytes(b"z" * (length // 2))
    file = Disk().open(str(tmp_path / "log"), read_only=True)
    async with Rig() as rig:
        rig.echo.answer = lambda body: [b"head", FileRegion(file, 0, length)]
        reader, writer = await rig.open()
        writer.write(frame(b"fetch---"))
        received = await reader.read()
        assert len(received) < length
        assert rig.echo.gone[0].reason == "a file is shorter than the response"
        writer.close()
    file.close()
