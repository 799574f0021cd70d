"""kafkalite's own API keys: numbers, versions and headers, also in the documentation."""

from pathlib import Path

import pytest

from kafkalite._speedups import codec
from kafkalite.protocol.extensions.heartbeat_plus import HeartbeatPlusRequest, HeartbeatPlusResponse
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerResponse
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest
from kafkalite.protocol.schema import Message
from kafkalite.protocol.stored.group_records import RECORDS
from tests.kit.message_versions import EXTENSIONS_FROM, REQUESTS, RESPONSES
from tests.unit.protocol import guide

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocol-extensions.md"
MARK = "<!-- made from the message classes -->\n"
KEYS = sorted(key for key in REQUESTS if key >= EXTENSIONS_FROM)
OWN = [cls for key in KEYS for cls in (REQUESTS[key], RESPONSES[key])]


def made() -> str:
    """The part of the page that is made from the classes."""
    chapters = [guide.api(REQUESTS[key], RESPONSES[key]) for key in KEYS]
    records = [guide.record(cls) for number, cls in sorted(RECORDS.keys.items()) if number >= EXTENSIONS_FROM]
    return "\n".join(["", *chapters, "## Stored records\n", *records])


def test_extension_page_matches_the_message_classes() -> None:
    """Bring it up to date: python -m tests.unit.protocol.test_extensions."""
    assert PAGE.read_text().partition(MARK)[2] == made()


def test_extension_api_keys() -> None:
    names = {key: REQUESTS[key].__name__.removesuffix("Request") for key in KEYS}
    assert names == {
        10000: "ListGroupsPlus",
        10001: "CreateGroup",
        10002: "DeleteGroup",
        10003: "RegisterConsumer",
        10004: "HeartbeatPlus",
        10005: "RewindConsumer",
        10006: "ListSegments",
        10007: "DescribeCoordination",
    }
    assert all(cls.flexible == cls.versions[0] == 0 for cls in OWN)


@pytest.mark.parametrize("cls", OWN)
def test_every_extension_field_has_a_description(cls: type[Message]) -> None:
    assert guide.undescribed(cls) == []


def test_extension_message_bytes() -> None:
    """Request header v2 (tags after the client id), response header v1, compact strings, tags after every struct."""
    request = HeartbeatPlusRequest(group_id="g", consumer_id="me", generation_id=3, session_timeout_ms=6000)
    frame = bytes.fromhex("2714 0000 00000009 0001 63 00 02 67 03 6d65 00000003 00001770 00")
    assert codec.encode_request(request, 0, 9, "c") == frame
    header = codec.read_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (10004, 0, 9, "c")
    assert codec.decode(HeartbeatPlusRequest, 0, header.body) == request
    assert codec.response_header(HeartbeatPlusResponse, 0, 9) == bytes.fromhex("00000009 00")
    answer = HeartbeatPlusResponse(error_code=27, generation_id=4)
    assert codec.encode(answer, 0) == bytes.fromhex("001b 00000004 00")

    topic = RegisterConsumerResponse.OwnedTopic
    owned = topic(name="t", partitions=[topic.OwnedPartition(partition_index=1, start_offset=5)])
    assert codec.encode(RegisterConsumerResponse(generation_id=4, partitions=[owned]), 0) == bytes.fromhex(
        "0000 00000004 02 02 74 02 00000001 0000000000000005 00 00 00"
    )


def test_rewind_defaults_to_the_log_end() -> None:
    partition = RewindConsumerRequest.RewoundTopic.RewoundPartition(partition_index=0)
    assert (partition.offset, partition.timestamp) == (-1, -1)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + made())
