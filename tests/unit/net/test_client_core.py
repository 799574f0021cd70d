"""The client half of a connection without I/O: frames, the order of responses, deadlines, throttling."""

import ctypes
import random
import tracemalloc
from math import inf

import pytest

from kafkalite._speedups.codec import decode, encode, read_request_header, response_header
from kafkalite._speedups.net.client_core import FrameReader
from kafkalite.errors import DecodeError, EncodeError, KafkaConnectionError, KafkaTimeoutError
from kafkalite.net.client.core import ClientCore
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.produce import ProduceRequest

V = 12
INITIAL_BYTES = 64 << 10  # of the receive buffer
LARGE_BYTES = 64 << 10  # frames of this size are handed over without a copy


def frame(body):
    return len(body).to_bytes(4, "big") + body


def feed(reader, data):
    """Copies of the frames of some bytes."""
    return list(map(bytes, views(reader, data)))


def views(reader, data):
    """The frames of some bytes, as the reader returns them; it gets them as from a transport: what it has space for."""
    frames = []
    while data:
        space = reader.free_space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        data = data[count:]
        frames += received(reader, count)
    return frames


def received(reader, count):
    """The frames that the next `count` bytes complete."""
    reader.received(count)
    return list(iter(reader.next_frame, None))


class Outcomes:
    """Collects the ends of calls."""

    def __init__(self, core):
        self.core = core
        self.ended = []

    def _end(self):
        at = len(self.ended)
        self.ended.append(None)

        def end(result):
            assert self.ended[at] is None
            self.ended[at] = result

        return end

    def call(self, deadline=inf, **options):
        end = self._end()
        self.core.call(MetadataRequest(topics=[]), V, deadline, end, end, **options)

    def send(self, deadline=inf):
        end = self._end()
        self.core.send(MetadataRequest(topics=[]), V, deadline, lambda: end("written"), end)


def connected():
    core = ClientCore("broker:9092", "tests")
    core.begin()
    return core


def sent_ids(core, now=0.0):
    """The correlation ids of the requests that leave now."""
    data, ids = b"".join(core.take_outgoing(now)), []
    while data:
        size = int.from_bytes(data[:4], "big")
        ids.append(read_request_header(data[4 : 4 + size]).correlation_id)
        data = data[4 + size :]
    return ids


def respond(core, correlation_id, now=0.0, **fields):
    response = MetadataResponse(controller_id=correlation_id, **fields)
    data = frame(encode(response, V, response_header(MetadataResponse, V, correlation_id)))
    while data:
        space = core.free_space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        core.received(count, now)
        data = data[count:]


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_found_however_the_bytes_arrive(seed):
    rng = random.Random(seed)
    sizes = [rng.choice((4, 5, 100, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 5 * LARGE_BYTES)) for _ in range(20)]
    bodies = [rng.randbytes(size) for size in sizes]
    data, reader, frames = b"".join(map(frame, bodies)), FrameReader(1 << 20), []
    while data:
        count = rng.choice((1, 3, 4, 5, 1000, 70_000, 500_000))
        frames += feed(reader, data[:count])
        data = data[count:]
    assert frames == bodies


def test_a_size_field_alone_reserves_no_memory():
    reader = FrameReader(1 << 30)
    assert feed(reader, (1 << 30).to_bytes(4, "big") + bytes(100)) == []
    assert len(reader.free_space()) <= INITIAL_BYTES


def test_memory_for_a_frame_is_at_most_that_of_the_last_large_one():
    reader, size, kept = FrameReader(1 << 30), 1 << 20, []
    for body, space in ((bytes(size), INITIAL_BYTES), (bytes(size), size), (bytes(size + 1), INITIAL_BYTES)):
        data = frame(body)
        feed(reader, data[:INITIAL_BYTES])
        assert len(reader.free_space()) <= space
        kept += views(reader, data[INITIAL_BYTES:])  # used memory is not used again
        assert kept[-1] == body


def test_large_frames_are_handed_over_without_a_copy():
    reader = FrameReader(1 << 30)
    body = random.Random(1).randbytes(1 << 20)
    large, small = views(reader, frame(body) + frame(b"next"))
    assert type(large) is memoryview and large.obj is not small
    assert len(large.obj) == 4 + len(body)
    feed(reader, frame(bytes(2 << 20)))
    assert (bytes(large), small) == (body, b"next")


def test_memory_of_a_large_frame_is_used_again_when_nothing_refers_to_it():
    reader, addresses, others = FrameReader(1 << 30), [], []
    for number in range(6):
        (large,) = views(reader, frame(bytes([number]) * (1 << 20)))
        addresses.append(address(large))
        part = large[10:20]
        del large
        feed(reader, frame(bytes(1 << 20)))  # which gets other memory, because of the part
        assert bytes(part) == bytes([number]) * 10
        del part
        others.append(bytearray(1 << 20))  # takes what the allocator has
    assert len(set(addresses)) < len(addresses)
    assert len({*addresses, *map(address, others)}) == len(set(addresses)) + len(others)


def test_memory_of_large_frames_is_given_back_after_small_ones():
    reader = FrameReader(1 << 30)
    tracemalloc.start()
    try:
        feed(reader, frame(bytes(4 << 20)))
        kept = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            feed(reader, frame(bytes(100)))
        assert kept > 4 << 20 and tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def address(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.mark.parametrize("size", [-1, 0, 3, 1 << 20])
def test_a_frame_size_outside_the_limits_is_rejected(size):
    with pytest.raises(KafkaConnectionError, match=f"a response of {size} bytes, allowed are 4 to 1000"):
        feed(FrameReader(1000), size.to_bytes(4, "big", signed=True))


def test_requests_leave_in_call_order_and_each_response_completes_its_call():
    core = connected()
    outcomes = Outcomes(core)
    for _ in range(5):
        outcomes.call()
    assert sent_ids(core) == [1, 2, 3, 4, 5]
    for correlation_id in range(1, 6):
        respond(core, correlation_id)
    assert [response.controller_id for response in outcomes.ended] == [1, 2, 3, 4, 5]
    assert core.open_calls == 0


def test_a_response_out_of_order_ends_the_connection():
    core = connected()
    outcomes = Outcomes(core)
    outcomes.call()
    outcomes.call()
    sent_ids(core)
    respond(core, 2)
    assert str(core.failure) == "broker:9092: response with correlation id 2, expected 1"
    core.end(core.failure)
    assert outcomes.ended == [core.failure] * 2


def test_a_response_without_a_request_ends_the_connection():
    core = connected()
    respond(core, 7)
    assert str(core.failure) == "broker:9092: response with correlation id 7, expected none"


def test_a_timeout_fails_its_call_and_ends_the_connection():
    core = connected()
    outcomes = Outcomes(core)
    outcomes.call(deadline=10.0)
    outcomes.call(deadline=5.0)
    assert core.next_deadline == 5.0
    core.expire(4.9)
    assert core.failure is None and core.next_deadline == 5.0
    core.expire(5.0)
    assert type(outcomes.ended[1]) is KafkaTimeoutError and outcomes.ended[0] is None
    assert str(core.failure) == "broker:9092: connection closed, MetadataRequest timed out"
    core.end(core.failure)
    assert outcomes.ended[0] is core.failure
    outcomes.call()
    assert outcomes.ended[2] is core.failure


def test_a_timeout_that_keeps_the_connection_drops_the_late_response():
    core = connected()
    outcomes = Outcomes(core)
    outcomes.call(deadline=5.0, keep_connection=True)
    outcomes.call(deadline=10.0)
    core.expire(5.0)
    assert core.failure is None and core.next_deadline == 10.0
    late = outcomes.ended[0]
    assert type(late) is KafkaTimeoutError
    respond(core, 1)
    respond(core, 2)
    assert outcomes.ended[0] is late and outcomes.ended[1].controller_id == 2


def test_a_throttled_client_sends_nothing_until_the_time_has_passed():
    core = connected()
    outcomes = Outcomes(core)
    outcomes.call()
    assert sent_ids(core, 1.0) == [1]
    respond(core, 1, now=1.0, throttle_time_ms=500)
    outcomes.call()
    assert core.has_outgoing and core.throttled_until == 1.5
    assert sent_ids(core, 1.49) == []
    assert sent_ids(core, 1.5) == [2]


def test_an_undecodable_response_fails_its_call_only():
    core = connected()
    outcomes = Outcomes(core)
    outcomes.call()
    outcomes.call()
    broken = frame((1).to_bytes(4, "big") + b"\xff\xff\xff\xff")
    core.free_space()[: len(broken)] = broken
    core.received(len(broken), 0.0)
    respond(core, 2)
    assert type(outcomes.ended[0]) is DecodeError
    assert outcomes.ended[1].controller_id == 2 and core.failure is None


def test_a_request_that_cannot_be_encoded_leaves_nothing_behind():
    core = connected()
    with pytest.raises(EncodeError):
        core.call(MetadataRequest(topics="no list"), V, inf, pytest.fail, pytest.fail)
    outcomes = Outcomes(core)
    outcomes.call()
    assert sent_ids(core) == [1]
    assert core.open_calls == 1


def test_large_batches_leave_as_parts_of_their_own():
    core = connected()
    batch = bytes(1 << 20)
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=0, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])]
    )
    core.send(request, 9, inf, lambda: None, pytest.fail)
    parts = core.take_outgoing(0.0)
    assert any(part is batch for part in parts)
    whole = b"".join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    header = read_request_header(whole[4:])
    assert bytes(decode(ProduceRequest, 9, header.body).topic_data[0].partition_data[0].records) == batch


def test_calls_before_and_after_the_connection_fail():
    core = ClientCore("broker:9092", None)
    outcomes = Outcomes(core)
    outcomes.call()
    assert str(outcomes.ended[0]) == "broker:9092: not connected"
    core.begin()
    outcomes.call()
    core.end(KafkaConnectionError("broker:9092: gone"))
    outcomes.call()
    assert [str(error) for error in outcomes.ended[1:]] == ["broker:9092: gone"] * 2
    outcomes.send()
    assert str(outcomes.ended[-1]) == "broker:9092: gone"


def test_a_callback_that_raises_does_not_stop_the_other_responses():
    core = connected()
    outcomes = Outcomes(core)

    def fail(_response):
        raise ZeroDivisionError

    core.call(MetadataRequest(topics=[]), V, inf, fail, fail)
    outcomes.call()
    data = b"".join(
        frame(encode(MetadataResponse(controller_id=each), V, response_header(MetadataResponse, V, each)))
        for each in (1, 2)
    )
    core.free_space()[: len(data)] = data
    with pytest.raises(ZeroDivisionError):
        core.received(len(data), 0.0)
    assert outcomes.ended[0].controller_id == 2 and core.failure is None


def test_requests_without_response_are_written_once_the_transport_has_accepted_them():
    core = connected()
    outcomes = Outcomes(core)
    outcomes.send()
    outcomes.call(deadline=20.0)
    assert core.take_outgoing(0.0)
    core.written()
    assert outcomes.ended == ["written", None]
    outcomes.send(deadline=10.0)
    assert core.next_deadline == 10.0
    core.written()
    core.expire(10.0)
    assert outcomes.ended == ["written", None, "written"] and core.next_deadline == 20.0 and core.failure is None


def test_requests_that_no_transport_accepts_in_time_end_the_connection():
    core = connected()
    outcomes = Outcomes(core)
    outcomes.send(deadline=1.0)
    outcomes.send(deadline=2.0)
    core.expire(1.0)
    assert isinstance(outcomes.ended[0], KafkaTimeoutError) and outcomes.ended[1] is None
    assert str(core.failure) == "broker:9092: connection closed, MetadataRequest timed out"
    core.end(core.failure)
    assert outcomes.ended[1] is core.failure


def test_held_requests_follow_those_that_leave_ahead_in_the_order_of_their_calls():
    core, written = connected(), []
    outcomes = Outcomes(core)
    outcomes.call()
    core.hold()
    outcomes.call()
    core.send(MetadataRequest(topics=[]), V, inf, lambda: written.append(1), written.append)
    outcomes.call(ahead=True)
    first, ahead = sent_ids(core)
    core.written()
    assert written == [] and core.open_calls == 3 and not core.has_outgoing
    respond(core, first)
    respond(core, ahead)
    assert [each is not None for each in outcomes.ended] == [True, False, True]
    core.release()
    held, _ = sent_ids(core)
    core.written()
    outcomes.call()
    (last,) = sent_ids(core)
    respond(core, held)
    respond(core, last)
    assert [each.controller_id for each in outcomes.ended] == [first, held, ahead, last] and written == [1]


def test_held_requests_have_their_deadlines():
    core, failed = connected(), []
    outcomes = Outcomes(core)
    core.hold()
    outcomes.call(5.0, keep_connection=True)
    outcomes.call(9.0, ahead=True)
    (ahead,) = sent_ids(core)
    assert core.next_deadline == 5.0
    core.expire(5.0)
    assert isinstance(outcomes.ended[0], KafkaTimeoutError) and core.failure is None and core.next_deadline == 9.0
    core.send(MetadataRequest(topics=[]), V, 7.0, lambda: failed.append("written"), failed.append)
    respond(core, ahead)
    assert core.next_deadline <= 7.0
    core.expire(7.0)
    assert isinstance(failed[0], KafkaTimeoutError) and core.failure is not None


def test_held_requests_fail_with_their_connection():
    core = connected()
    outcomes = Outcomes(core)
    core.hold()
    outcomes.call()
    outcomes.send()
    core.end(KafkaConnectionError("lost"))
    assert [str(each) for each in outcomes.ended] == ["lost", "lost"]
    core.release()
    assert core.open_calls == 0 and not core.has_outgoing
