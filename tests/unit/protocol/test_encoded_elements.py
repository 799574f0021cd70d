"""Arrays that were encoded in pieces: the message is the same as from structs, and a wrong piece is refused."""

from typing import Any

import pytest

from kafkalite._speedups.codec import Encoded, encode, encode_elements, encode_parts
from kafkalite.errors import EncodeError
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.protocol.messages.metadata import MetadataResponse

Topic = FetchResponse.FetchableTopicResponse
Data = Topic.PartitionData


class Region:
    """Bytes that lie in a file."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.length = len(content)

    def read(self) -> bytes:
        return self.content


def partition(index: int, records: Any) -> Data:
    return Data(partition_index=index, high_watermark=7, records=records)


def response(topics: list[Any]) -> FetchResponse:
    return FetchResponse(session_id=1, responses=topics)


def topic(partitions: list[Any], name: str = "t") -> Topic:
    return Topic(topic=name, topic_id=bytes(range(16)), partitions=partitions)


@pytest.mark.parametrize("version", range(4, 19))
def test_encoded_elements_of_nested_arrays_equal_the_whole_array(version: int) -> None:
    first, second, third = partition(0, b"abc"), partition(1, [Region(b"x" * 20_000)]), partition(2, Region(b"yz"))
    expected = encode(response([topic([first, second, third]), topic([], "u")]), version)
    partitions: list[Any] = [encode_elements(part, FetchResponse, version) for part in ([first], [second, third])]
    assert [piece.count for piece in partitions] == [1, 2]
    topics: list[Any] = [encode_elements([topic(partitions), topic([], "u")], FetchResponse, version)]
    assert encode(response(topics), version) == expected
    parts = encode_parts(response(topics), version, b"header")
    assert b"".join(part if isinstance(part, bytes) else part.read() for part in parts) == b"header" + expected
    assert sum(isinstance(part, Region) for part in parts) == 2


def test_encoded_elements_of_an_unknown_array_are_rejected() -> None:
    for elements, message, version in (
        ([], FetchResponse, 12),
        ([partition(0, b"")], MetadataResponse, 12),
        ([partition(0, b"")], FetchResponse, 99),
        ([partition(0, b""), topic([])], FetchResponse, 12),
        ([partition(1 << 40, b"")], FetchResponse, 12),
    ):
        with pytest.raises(EncodeError):
            encode_elements(elements, message, version)


def test_encoded_elements_in_another_array_are_rejected() -> None:
    piece: Encoded = encode_elements([partition(0, b"")], FetchResponse, 12)
    wrong: list[list[Any]] = [[piece], [topic([piece, partition(1, b"")])]]
    for topics in wrong:
        with pytest.raises(EncodeError):
            encode(response(topics), 12)
    with pytest.raises(EncodeError):
        encode(response([topic([piece])]), 11)
