"""ListOffsets v0, which no codec of Kafka 4 has: bytes written by hand from the message definitions of Kafka 3.9."""

from kafkalite._speedups import codec
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

Topic = ListOffsetsRequest.ListOffsetsTopic
FoundTopic = ListOffsetsResponse.ListOffsetsTopicResponse


def test_request_bytes() -> None:
    """Replica id, topics with their name, partitions with index, timestamp and the largest number of offsets."""
    partition = Topic.ListOffsetsPartition(partition_index=3, timestamp=-1, max_num_offsets=7)
    request = ListOffsetsRequest(replica_id=-1, topics=[Topic(name="t", partitions=[partition])])
    encoded = bytes.fromhex("ffffffff 00000001 0001 74 00000001 00000003 ffffffffffffffff 00000007")
    assert codec.encode(request, 0) == encoded
    assert codec.decode(ListOffsetsRequest, 0, encoded) == request


def test_response_bytes() -> None:
    """Topics with their name, partitions with index, error code and offsets."""
    partition = FoundTopic.ListOffsetsPartitionResponse(partition_index=3, error_code=0, old_style_offsets=[9, 4])
    response = ListOffsetsResponse(topics=[FoundTopic(name="t", partitions=[partition])])
    encoded = bytes.fromhex("00000001 0001 74 00000001 00000003 0000 00000002 0000000000000009 0000000000000004")
    assert codec.encode(response, 0) == encoded
    assert codec.decode(ListOffsetsResponse, 0, encoded) == response
