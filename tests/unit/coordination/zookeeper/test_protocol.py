"""The wire format of ZooKeeper: equal to aiozk's bytes where aiozk has an encoder, checked where a peer sends it."""

import random
import struct
from typing import Any

import pytest
from aiozk import protocol as aiozk
from aiozk.protocol.acl import ACL, ID, UNRESTRICTED_ACCESS
from aiozk.protocol.stat import Stat as DeclaredStat

from kafkalite.coordination import errors
from kafkalite.coordination.tree import CHANGED, CHILDREN, CREATED, DELETED, Stat
from kafkalite.coordination.zookeeper import protocol, records
from kafkalite.coordination.zookeeper.codec import ProtocolError

STAT = Stat(2**40, 5, 1_700_000_000_000, 2, 3, 4, 0, -(2**62), 6, 7, 8)
ACLS = [UNRESTRICTED_ACCESS, ACL(perms=1, id=ID(scheme="digest", id="grüße"))]
OUR_ACLS = (*records.OPEN_ACL, records.Acl(1, records.Id("digest", "grüße")))
REQUESTS: list[tuple[Any, Any]] = [
    (records.CreateRequest("/ä", b"1", OUR_ACLS, 3), aiozk.CreateRequest(path="/ä", data=b"1", acl=ACLS, flags=3)),
    (records.Create2Request("/a", None, (), 0), aiozk.Create2Request(path="/a", data=None, acl=[], flags=0)),
    (records.DeleteRequest("/a", -1), aiozk.DeleteRequest(path="/a", version=-1)),
    (records.ExistsRequest("/a", True), aiozk.ExistsRequest(path="/a", watch=True)),
    (records.GetDataRequest("/", False), aiozk.GetDataRequest(path="/", watch=False)),
    (records.SetDataRequest("/a", bytes(1000), 7), aiozk.SetDataRequest(path="/a", data=bytes(1000), version=7)),
    (records.GetAclRequest("/a"), aiozk.GetACLRequest(path="/a")),
    (records.SetAclRequest("/a", OUR_ACLS, 2), aiozk.SetACLRequest(path="/a", acl=ACLS, version=2)),
    (records.GetChildrenRequest("/a", True), aiozk.GetChildrenRequest(path="/a", watch=True)),
    (records.GetChildren2Request("/a", True), aiozk.GetChildren2Request(path="/a", watch=True)),
    (records.SyncRequest("/"), aiozk.SyncRequest(path="/")),
    (records.PingRequest(), aiozk.PingRequest()),
    (records.CheckVersionRequest("/a", 4), aiozk.CheckVersionRequest(path="/a", version=4)),
    (records.CheckWatchesRequest("/a", 1), aiozk.CheckWatchesRequest(path="/a", type=1)),
    (records.RemoveWatchesRequest("/a", 3), aiozk.RemoveWatchesRequest(path="/a", type=3)),
    (records.AuthRequest(0, "digest", b"u:p"), aiozk.AuthRequest(type=0, scheme="digest", auth=b"u:p")),
    (
        records.SetWatchesRequest(9, ("/a", "/b"), (), ("/c",)),
        aiozk.SetWatchesRequest(
            relative_zxid=9, data_watches=["/a", "/b"], exist_watches=[], child_watches=["/c"]
        ),
    ),
    (records.CloseRequest(), aiozk.CloseRequest()),
]  # fmt: skip
OPERATIONS = (
    records.Create2Request("/a", b"", records.OPEN_ACL, 2),
    records.CreateRequest("/b", b"", (), 0),
    records.SetDataRequest("/a", b"x", 1),
    records.DeleteRequest("/a", -1),
    records.CheckVersionRequest("/a", 3),
)
RESPONSES: list[tuple[int, Any]] = [
    (1, records.CreateResponse("/ä")),
    (15, records.Create2Response("/a", STAT)),
    (2, records.EmptyResponse()),
    (3, records.StatResponse(STAT)),
    (4, records.GetDataResponse(None, STAT)),
    (4, records.GetDataResponse(b"data", STAT)),
    (6, records.GetAclResponse(OUR_ACLS, STAT)),
    (8, records.GetChildrenResponse(())),
    (12, records.GetChildren2Response(("a", "b"), STAT)),
    (9, records.SyncResponse("/")),
    (
        14,
        records.MultiResponse(
            (
                records.OperationResult(15, records.Create2Response("/a", STAT)),
                records.OperationResult(1, records.CreateResponse("/b")),
                records.OperationResult(5, records.StatResponse(STAT)),
                records.OperationResult(2, records.EmptyResponse()),
                records.OperationResult(13, records.EmptyResponse()),
                records.OperationResult(-1, records.OperationError(-101)),
            )
        ),
    ),
]


def body(framed: bytes) -> bytes:
    """The frame behind its size."""
    assert struct.unpack("!i", framed[:4])[0] == len(framed) - 4
    return framed[4:]


class TestRequests:
    @pytest.mark.parametrize(("ours", "declared"), REQUESTS, ids=lambda each: type(each).__name__)
    def test_request_has_the_bytes_of_aiozk_and_is_decoded_by_a_server(self, ours: Any, declared: Any) -> None:
        frame = body(protocol.encode_request(77, ours))
        assert frame == declared.serialize(77)
        header, request = protocol.decode_request(frame)
        assert (header.xid, request, type(request)) == (77, ours, type(ours))

    def test_multi_has_the_bytes_of_aiozk_and_is_decoded_by_a_server(self) -> None:
        declared = aiozk.TransactionRequest()
        declared.add(aiozk.Create2Request(path="/a", data=b"", acl=ACLS[:1], flags=2))
        declared.add(aiozk.CreateRequest(path="/b", data=b"", acl=[], flags=0))
        declared.add(aiozk.SetDataRequest(path="/a", data=b"x", version=1))
        declared.add(aiozk.DeleteRequest(path="/a", version=-1))
        declared.add(aiozk.CheckVersionRequest(path="/a", version=3))
        frame = body(protocol.encode_request(5, records.MultiRequest(OPERATIONS)))
        assert frame == declared.serialize(5)
        assert protocol.decode_request(frame)[1].operations == OPERATIONS

    def test_connect_request_of_old_and_new_clients(self) -> None:
        request = records.ConnectRequest(0, 2**33, 6000, -5, bytes(16), False)
        frame = body(protocol.encode_connect(request))
        declared = aiozk.ConnectRequest(
            protocol_version=0, last_seen_zxid=2**33, timeout=6000, session_id=-5, password=bytes(16), read_only=False
        )
        assert frame == declared.serialize()
        assert protocol.decode_connect(frame) == protocol.decode_connect(frame[:-1]) == request

    def test_unknown_opcode_has_its_header(self) -> None:
        with pytest.raises(protocol.UnknownOpcodeError) as caught:
            protocol.decode_request(struct.pack("!ii", 3, 999))
        assert caught.value.header == (3, 999)

    def test_operation_that_is_not_one_of_a_multi_is_rejected(self) -> None:
        with pytest.raises(ProtocolError, match="opcode 4"):
            protocol.decode_request(struct.pack("!iiibi", 3, 14, 4, 0, -1))

    def test_value_that_does_not_fit_is_rejected(self) -> None:
        for request in (records.DeleteRequest("/a", 2**31), records.ExistsRequest("/\ud800", True)):
            with pytest.raises(ProtocolError):
                protocol.encode_request(1, request)


class TestResponses:
    @pytest.mark.parametrize(("opcode", "response"), RESPONSES)
    def test_response_is_decoded_by_the_client(self, opcode: int, response: Any) -> None:
        header = records.ReplyHeader(4, 2**35, 0)
        frame = body(protocol.encode_response(header, opcode, response))
        assert protocol.decode_header(frame) == header
        assert protocol.decode_response(frame, opcode) == response
        assert protocol.decode_response(frame + b"more", opcode) == response, "newer servers may append fields"

    def test_stat_has_the_bytes_of_aiozk(self) -> None:
        frame = body(protocol.encode_response(records.ReplyHeader(1, 2, 0), 3, records.StatResponse(STAT)))
        declared, end = DeclaredStat.parse(frame, protocol.REPLY_HEADER_BYTES)
        assert end == len(frame)
        assert tuple(getattr(declared, name) for name, _ in DeclaredStat.parts) == tuple(STAT)

    def test_error_has_no_body(self) -> None:
        frame = body(protocol.encode_response(records.ReplyHeader(4, 5, -101), 4))
        assert len(frame) == protocol.REPLY_HEADER_BYTES
        assert protocol.decode_header(frame).error == -101

    @pytest.mark.parametrize("kind", [CREATED, DELETED, CHANGED, CHILDREN])
    def test_event(self, kind: str) -> None:
        frame = body(protocol.encode_event(kind, "/a"))
        assert protocol.decode_header(frame)[:2] == (protocol.EVENT_XID, -1)
        event = protocol.decode_event(frame)
        assert (protocol.EVENT_KINDS[event.type], event.state, event.path) == (kind, 3, "/a")

    def test_connect_response_of_old_and_new_servers(self) -> None:
        response = records.ConnectResponse(0, 4000, 2**60, b"p" * 16, False)
        frame = body(protocol.encode_connected(response))
        assert protocol.decode_connected(frame) == protocol.decode_connected(frame[:-1]) == response


class TestFrames:
    def test_frames_are_found_at_any_division(self) -> None:
        sent = b"".join(protocol.encode_request(at, ours) for at, (ours, _) in enumerate(REQUESTS))
        for size in (1, 3, 7, len(sent)):
            frames = protocol.FrameReader(4096)
            received = [
                protocol.decode_request(frame)
                for start in range(0, len(sent), size)
                for frame in frames.feed(sent[start : start + size])
            ]
            assert [header.xid for header, _ in received] == list(range(len(REQUESTS)))

    @pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
    def test_size_outside_the_limit_is_rejected(self, size: int) -> None:
        with pytest.raises(ProtocolError, match="limit is 100"):
            list(protocol.FrameReader(100).feed(struct.pack("!i", size)))

    def test_frames_before_an_invalid_one_are_returned(self) -> None:
        frames = protocol.FrameReader(100).feed(b"\0\0\0\x01x\xff\xff\xff\xff")
        assert next(frames) == b"x"
        with pytest.raises(ProtocolError):
            next(frames)


class TestErrors:
    def test_error_classes_by_code(self) -> None:
        error = protocol.error_of(-103, "/a", 4)
        assert (type(error), error.path, error.at) == (errors.BadVersionError, "/a", 4)

    def test_error_without_a_class_names_its_code(self) -> None:
        assert "-118" in str(protocol.error_of(-118, "/a"))


def test_damaged_frames_raise_protocol_errors_only(seed: int) -> None:
    chance = random.Random(seed)
    header = records.ReplyHeader(4, 5, 0)
    requests = [body(protocol.encode_request(1, ours)) for ours, _ in REQUESTS]
    requests.append(body(protocol.encode_request(1, records.MultiRequest(OPERATIONS))))
    responses = [(opcode, body(protocol.encode_response(header, opcode, each))) for opcode, each in RESPONSES]
    rejected = 0
    for _ in range(5000):
        opcode, frame = chance.choice(responses)
        try:
            protocol.decode_response(damaged(frame, chance), opcode)
        except ProtocolError:
            rejected += 1
        try:
            protocol.decode_request(damaged(chance.choice(requests), chance))
        except ProtocolError:
            rejected += 1
    assert rejected > 1000


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """A frame of which bytes are changed, or the end is missing."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        if data:
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data)
