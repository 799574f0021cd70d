"""Request and response headers of both versions, and the special rule of ApiVersions."""

import pytest

from kafkalite._speedups import codec
from kafkalite.errors import DecodeError, EncodeError
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.metadata import MetadataRequest
from tests.unit.protocol.kio_twin import kio_encode
from tests.unit.protocol.values import KAFKAS_CASES, ids

REQUEST = MetadataRequest(topics=None)


@pytest.mark.parametrize(("cls", "version"), KAFKAS_CASES, ids=ids(KAFKAS_CASES))
def test_header_versions_match_kio(cls, version) -> None:
    from tests.unit.protocol.kio_twin import kio_class

    theirs = kio_class(cls, version).__header_schema__
    if cls.__name__.endswith("Response"):
        expected = kio_encode(theirs, theirs(correlation_id=77))
        assert codec.response_header(cls, version, 77) == expected
        assert codec.read_response_header(cls, version, expected + b"rest") == (77, b"rest")
        return
    values = {"request_api_key": cls.api_key, "request_api_version": version, "correlation_id": 77, "client_id": "me"}
    expected = kio_encode(theirs, theirs(**values))
    message = cls()
    frame = codec.encode_request(message, version, 77, "me")
    assert frame == expected + codec.encode(message, version)
    header = codec.read_request_header(frame)
    assert (header.api_key, header.api_version) == (cls.api_key, version)
    assert (header.correlation_id, header.client_id) == (77, "me")
    assert codec.decode(cls, version, header.body) == message


@pytest.mark.parametrize("client_id", [None, "", "Zürich"])
@pytest.mark.parametrize("version", [4, 12])
def test_client_id_in_request_headers(client_id, version) -> None:
    header = codec.read_request_header(codec.encode_request(REQUEST, version, -1, client_id))
    assert (header.client_id, header.correlation_id) == (client_id, -1)


def test_request_body_is_a_writable_slice_of_the_frame() -> None:
    frame = bytearray(codec.encode_request(REQUEST, 4, 1, "x"))
    body = codec.read_request_header(memoryview(frame)).body
    body[-1] ^= 0xFF
    assert frame[-1] == body[-1]


def test_tagged_fields_of_headers_are_skipped() -> None:
    frame = bytes.fromhex("0001 000c 00000007 0001 61 01 09 02 ffff") + b"body"
    header = codec.read_request_header(frame)
    assert (header.api_key, header.client_id, bytes(header.body)) == (1, "a", b"body")
    assert codec.read_response_header(FetchResponse, 12, bytes.fromhex("00000007 01 09 01 ff") + b"body") == (
        7,
        b"body",
    )


def test_api_versions_request_of_an_unknown_version() -> None:
    """The header of a version yet unknown is read as the newest known; the answer has header and body of v0."""
    frame = bytes.fromhex("0012 0063 00000005 0001 61 00") + b"\x07whatever"
    header = codec.read_request_header(frame)
    assert (header.api_version, header.correlation_id, header.client_id) == (99, 5, "a")
    with pytest.raises(DecodeError, match="version"):
        codec.decode(ApiVersionsRequest, 99, header.body)
    own = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)
    answer = ApiVersionsResponse(error_code=35, api_keys=[own])
    head = codec.response_header(ApiVersionsResponse, 0, header.correlation_id)
    assert codec.encode(answer, 0, head) == bytes.fromhex("00000005 0023 00000001 0012 0000 0004")
    assert codec.response_header(ApiVersionsResponse, 4, 5) == bytes.fromhex("00000005")


def test_unknown_api_key_has_header_version_1() -> None:
    header = codec.read_request_header(bytes.fromhex("7fff 0000 00000001 ffff 01020304"))
    assert (header.api_key, header.client_id, bytes(header.body)) == (0x7FFF, None, b"\x01\x02\x03\x04")


@pytest.mark.parametrize("size", range(10))
def test_truncated_header_raises_decode_error(size) -> None:
    with pytest.raises(DecodeError, match="truncated") as caught:
        codec.read_request_header(bytes.fromhex("0001 000c 00000007 0001 61 00")[:size])
    assert caught.value.field == "header"


def test_client_id_above_the_string_limit_raises_encode_error() -> None:
    with pytest.raises(EncodeError, match="client_id"):
        codec.encode_request(REQUEST, 4, 1, "x" * 32768)
    with pytest.raises(EncodeError, match="client_id"):
        codec.encode_request(REQUEST, 4, 1, "\ud800")


def test_body_of_a_fetch_response_is_not_copied() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    frame = codec.encode_request(request, 18, 1, None)
    assert codec.read_request_header(frame).body.obj is frame
