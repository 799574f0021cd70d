"""ZooKeeper's wire protocol without I/O, for clients and servers: frames, headers, requests, responses, events.

    frames = FrameReader(limit=1 << 20)
    for frame in frames.feed(received):                 # raises ProtocolError
        header, request = decode_request(frame)         # a server; a client: decode_header, then decode_response
    sent = encode_response(ReplyHeader(header.xid, zxid, 0), Create2Response("/a", stat))

1. A frame is a size of 4 bytes and a record. The first frame of each side is a ConnectRequest or ConnectResponse
   without a header; all later ones begin with a RequestHeader or ReplyHeader.
2. What a peer sends is checked: every decoder raises ProtocolError, and no other exception.
3. A response with an error has no body.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from aiozk import protocol as declared  # type: ignore[import-untyped]
from aiozk.protocol.acl import ACL, ID  # type: ignore[import-untyped]
from aiozk.protocol.part import Part  # type: ignore[import-untyped]
from aiozk.protocol.primitives import Bool, Int, Long, UString  # type: ignore[import-untyped]
from aiozk.protocol.stat import Stat as DeclaredStat  # type: ignore[import-untyped]
from aiozk.protocol.transaction import MultiHeader as DeclaredMultiHeader  # type: ignore[import-untyped]

from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.tree import CHANGED, CHILDREN, CREATED, DELETED, Stat
from kafkalite.coordination.zookeeper import records
from kafkalite.coordination.zookeeper.codec import (
    SIZE,
    Codec,
    Parts,
    ProtocolError,
    decode_value,
    encode_value,
    record_codec,
)

EVENT_XID = declared.WATCH_XID
PING_XID = declared.PING_XID
AUTH_XID = declared.AUTH_XID
NO_ZXID = -1

REQUEST_BYTES_MAX = 0xFFFFF
"""jute.maxbuffer: a server rejects larger requests."""

MULTI_OPCODE = declared.TransactionRequest.opcode
ERROR_OPCODE = -1
CONNECTED_STATE = declared.WatchEvent.CONNECTED
EVENT_KINDS = {
    declared.WatchEvent.CREATED: CREATED,
    declared.WatchEvent.DELETED: DELETED,
    declared.WatchEvent.DATA_CHANGED: CHANGED,
    declared.WatchEvent.CHILDREN_CHANGED: CHILDREN,
}
EVENT_TYPES = {kind: number for number, kind in EVENT_KINDS.items()}

NESTED = {ACL: records.Acl, ID: records.Id, DeclaredStat: Stat}


def _codec(declaration: Any, record: Any) -> Codec:
    """Return the codec of a declared record, or of one whose parts are given."""
    is_record = isinstance(declaration, type) and issubclass(declaration, Part)
    return record_codec(declaration.parts if is_record else declaration, record, NESTED)


# What aiozk lacks: the headers, which it packs elsewhere, the path of SyncResponse, and readOnly of ConnectResponse.
HEADER: Parts = (("xid", Int), ("opcode", Int))
REPLY_HEADER: Parts = (("xid", Int), ("zxid", Long), ("error", Int))
SYNC_RESPONSE: Parts = (("path", UString),)
CONNECT_RESPONSE: Parts = (*declared.ConnectResponse.parts, ("read_only", Bool))

CONNECT_REQUEST_CODEC = _codec(declared.ConnectRequest, records.ConnectRequest)
CONNECT_RESPONSE_CODEC = _codec(CONNECT_RESPONSE, records.ConnectResponse)
HEADER_CODEC = _codec(HEADER, records.RequestHeader)
REPLY_HEADER_CODEC = _codec(REPLY_HEADER, records.ReplyHeader)
MULTI_HEADER_CODEC = _codec(DeclaredMultiHeader, records.MultiHeader)
EVENT_CODEC = _codec(declared.WatchEvent, records.EventRecord)
ERROR_CODEC = _codec((("error", Int),), records.OperationError)

REPLY_HEADER_BYTES = 16
HEADER_BYTES = 8


class Row(NamedTuple):
    """A request and its response: the codecs, and the record of the request."""

    record: Any
    request: Codec
    response: Codec


def _row(request: Any, record: Any, response: Any = (), response_record: Any = records.EmptyResponse) -> Row:
    return Row(record, _codec(request, record), _codec(response, response_record))


def _multi_codecs() -> Row:
    return Row(
        records.MultiRequest,
        Codec(_encode_multi_request, _decode_multi_request),
        Codec(_encode_multi_response, _decode_multi_response),
    )


def _encode_multi_request(out: list[bytes], request: records.MultiRequest) -> None:
    for operation in request.operations:
        opcode = OPCODES[type(operation)]
        MULTI_HEADER_CODEC.encode(out, (opcode, False, -1))
        ROWS[opcode].request.encode(out, operation)
    MULTI_HEADER_CODEC.encode(out, (-1, True, -1))


def _decode_multi_request(data: bytes, offset: int) -> tuple[records.MultiRequest, int]:
    operations: list[records.OperationRequest] = []
    while True:
        header, offset = MULTI_HEADER_CODEC.decode(data, offset)
        if header.done:
            return records.MultiRequest(tuple(operations)), offset
        operation, offset = _row_of_operation(header.opcode).request.decode(data, offset)
        operations.append(operation)


def _encode_multi_response(out: list[bytes], response: records.MultiResponse) -> None:
    for opcode, result in response.results:
        error = result.error if isinstance(result, records.OperationError) else 0
        MULTI_HEADER_CODEC.encode(out, (opcode, False, error))
        _codec_of_result(opcode).encode(out, result)
    MULTI_HEADER_CODEC.encode(out, (-1, True, -1))


def _decode_multi_response(data: bytes, offset: int) -> tuple[records.MultiResponse, int]:
    results: list[records.OperationResult] = []
    while True:
        header, offset = MULTI_HEADER_CODEC.decode(data, offset)
        if header.done:
            return records.MultiResponse(tuple(results)), offset
        result, offset = _codec_of_result(header.opcode).decode(data, offset)
        results.append(records.OperationResult(header.opcode, result))


def _codec_of_result(opcode: int) -> Codec:
    return ERROR_CODEC if opcode == ERROR_OPCODE else _row_of_operation(opcode).response


def _row_of_operation(opcode: int) -> Row:
    if opcode not in OPERATION_OPCODES:
        raise ProtocolError(f"the opcode {opcode} is not one of a multi")
    return ROWS[opcode]


ROWS: dict[int, Row] = {
    declared.CreateRequest.opcode: _row(
        declared.CreateRequest, records.CreateRequest, declared.CreateResponse, records.CreateResponse
    ),
    declared.Create2Request.opcode: _row(
        declared.Create2Request, records.Create2Request, declared.Create2Response, records.Create2Response
    ),
    declared.DeleteRequest.opcode: _row(declared.DeleteRequest, records.DeleteRequest),
    declared.ExistsRequest.opcode: _row(
        declared.ExistsRequest, records.ExistsRequest, declared.ExistsResponse, records.StatResponse
    ),
    declared.GetDataRequest.opcode: _row(
        declared.GetDataRequest, records.GetDataRequest, declared.GetDataResponse, records.GetDataResponse
    ),
    declared.SetDataRequest.opcode: _row(
        declared.SetDataRequest, records.SetDataRequest, declared.SetDataResponse, records.StatResponse
    ),
    declared.GetACLRequest.opcode: _row(
        declared.GetACLRequest, records.GetAclRequest, declared.GetACLResponse, records.GetAclResponse
    ),
    declared.SetACLRequest.opcode: _row(
        declared.SetACLRequest, records.SetAclRequest, declared.SetACLResponse, records.StatResponse
    ),
    declared.GetChildrenRequest.opcode: _row(
        declared.GetChildrenRequest, records.GetChildrenRequest, declared.GetChildrenResponse,
        records.GetChildrenResponse,
    ),
    declared.GetChildren2Request.opcode: _row(
        declared.GetChildren2Request, records.GetChildren2Request, declared.GetChildren2Response,
        records.GetChildren2Response,
    ),
    declared.SyncRequest.opcode: _row(declared.SyncRequest, records.SyncRequest, SYNC_RESPONSE, records.SyncResponse),
    declared.PingRequest.opcode: _row(declared.PingRequest, records.PingRequest),
    declared.CheckVersionRequest.opcode: _row(declared.CheckVersionRequest, records.CheckVersionRequest),
    MULTI_OPCODE: _multi_codecs(),
    declared.CheckWatchesRequest.opcode: _row(declared.CheckWatchesRequest, records.CheckWatchesRequest),
    declared.RemoveWatchesRequest.opcode: _row(declared.RemoveWatchesRequest, records.RemoveWatchesRequest),
    declared.AuthRequest.opcode: _row(declared.AuthRequest, records.AuthRequest),
    declared.SetWatchesRequest.opcode: _row(declared.SetWatchesRequest, records.SetWatchesRequest),
    declared.CloseRequest.opcode: _row(declared.CloseRequest, records.CloseRequest),
}  # fmt: skip
"""Codecs by opcode."""

OPCODES: dict[Any, int] = {row.record: opcode for opcode, row in ROWS.items()}
"""Opcode by the record of the request."""

OPERATION_OPCODES = {
    OPCODES[each]
    for each in (
        records.CreateRequest,
        records.Create2Request,
        records.DeleteRequest,
        records.SetDataRequest,
        records.CheckVersionRequest,
    )
}


# Frames.


class FrameReader:
    """Divides a stream of bytes into frames.

    Arguments:
        limit: largest accepted frame, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames, without their sizes, that are complete with these bytes. Raises ProtocolError."""
        self._received += data
        start = 0
        try:
            while len(self._received) - start >= SIZE.size:
                size = SIZE.unpack_from(self._received, start)[0]
                if not 0 <= size <= self._limit:
                    raise ProtocolError(f"a frame of {size} bytes, the limit is {self._limit}")
                end = start + SIZE.size + size
                if end > len(self._received):
                    break
                frame = bytes(memoryview(self._received)[start + SIZE.size : end])
                start = end
                yield frame
        finally:
            del self._received[:start]


def _framed(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


# The client's side.


def encode_connect(request: records.ConnectRequest) -> bytes:
    """Return the first frame of a client."""
    return _framed(encode_value(CONNECT_REQUEST_CODEC, request))


def decode_connected(frame: bytes) -> records.ConnectResponse:
    """Return the first record of a server; servers before 3.4 send no `read_only`. Raises ProtocolError."""
    response: records.ConnectResponse = decode_value(CONNECT_RESPONSE_CODEC, frame + b"\0")
    return response


def encode_request(xid: int, request: Any) -> bytes:
    """Return the frame of a request. Raises ProtocolError: a value does not fit."""
    opcode = OPCODES[type(request)]
    return _framed(encode_value(HEADER_CODEC, (xid, opcode)) + encode_value(ROWS[opcode].request, request))


def decode_header(frame: bytes) -> records.ReplyHeader:
    """Return the header of a response or an event. Raises ProtocolError."""
    header: records.ReplyHeader = decode_value(REPLY_HEADER_CODEC, frame)
    return header


def decode_response(frame: bytes, opcode: int) -> Any:
    """Return the record behind the header: the response to a request with this opcode. Raises ProtocolError."""
    return decode_value(ROWS[opcode].response, frame, REPLY_HEADER_BYTES)


def decode_event(frame: bytes) -> records.EventRecord:
    """Return the event behind a header with EVENT_XID. Raises ProtocolError."""
    event: records.EventRecord = decode_value(EVENT_CODEC, frame, REPLY_HEADER_BYTES)
    return event


# The server's side.


def decode_connect(frame: bytes) -> records.ConnectRequest:
    """Return the first record of a client; clients before 3.4 send no `read_only`. Raises ProtocolError."""
    request: records.ConnectRequest = decode_value(CONNECT_REQUEST_CODEC, frame + b"\0")
    return request


def encode_connected(response: records.ConnectResponse) -> bytes:
    """Return the first frame of a server."""
    return _framed(encode_value(CONNECT_RESPONSE_CODEC, response))


class UnknownOpcodeError(ProtocolError):
    """A request that has no codec here; a server answers the error -6 (UNIMPLEMENTED)."""

    def __init__(self, header: records.RequestHeader) -> None:
        super().__init__(f"unknown opcode {header.opcode}")
        self.header = header


def decode_request(frame: bytes) -> tuple[records.RequestHeader, Any]:
    """Return the header and the record of a request. Raises UnknownOpcodeError, ProtocolError."""
    header: records.RequestHeader = decode_value(HEADER_CODEC, frame)
    if header.opcode not in ROWS:
        raise UnknownOpcodeError(header)
    return header, decode_value(ROWS[header.opcode].request, frame, HEADER_BYTES)


def encode_response(header: records.ReplyHeader, opcode: int, response: Any = None) -> bytes:
    """Return the frame of a response.

    Arguments:
        header: its `error` is 0 if there is a response. A failed multi has a MultiResponse, too, and the error 0.
        opcode: of the request.
        response: the record; None = without a body, because of an error.
    """
    body = b"" if response is None else encode_value(ROWS[opcode].response, response)
    return _framed(encode_value(REPLY_HEADER_CODEC, header) + body)


def encode_event(kind: str, path: str) -> bytes:
    """Return the frame of a watch's event; `kind` is that of a WatchEvent of `coordination.tree`."""
    header = records.ReplyHeader(EVENT_XID, NO_ZXID, 0)
    event = records.EventRecord(EVENT_TYPES[kind], CONNECTED_STATE, path)
    return _framed(encode_value(REPLY_HEADER_CODEC, header) + encode_value(EVENT_CODEC, event))


# Errors.


def _subclasses(base: type[CoordinationError]) -> Iterator[type[CoordinationError]]:
    for each in base.__subclasses__():
        yield each
        yield from _subclasses(each)


ERRORS = {each.code: each for each in _subclasses(CoordinationError)}
"""Error classes by ZooKeeper's code (KeeperException.Code)."""


def error_of(code: int, path: str = "", at: int = 0) -> CoordinationError:
    """Return the exception for an error code; `path` and `at` as in CoordinationError."""
    if code in ERRORS:
        return ERRORS[code](path, at)
    return CoordinationError(path, at, f"error {code} of ZooKeeper")
