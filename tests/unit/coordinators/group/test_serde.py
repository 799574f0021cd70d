"""Records of the machines as keys and values of `__consumer_offsets`, and back."""

import random
from typing import Any

import pytest

from kafkalite.coordinators.group.serde import DECODERS, ENCODERS, TOMBSTONES, GroupRecordSerde
from kafkalite.coordinators.runtime.loader import RecordError
from kafkalite.protocol.stored import consumer_group_records, record_types
from kafkalite.protocol.stored import group_records as stored
from kafkalite.state.groups import records as state
from kafkalite.state.groups.records import CLASSIC, CONSUMER, REGISTERED, ConsumerGroupTombstone
from tests.unit.protocol.values import TEXTS, seed

CODEC = GroupRecordSerde()
T1, T2 = b"1" * 16, b"2" * 16
MEMBER = state.ClassicMemberRecord("m", None, "c", "/h", 60_000, 10_000, b"\x00\x01subscribed", b"")
OWNED = [("b", 1), ("a", 7), ("a", 2)]
REGISTERED_MEMBER = state.RegisteredMember("m", "c", "/h", 10_000, 60_000, ("a", "b"), 4, 5, frozenset(OWNED))
RECORDS: list[Any] = [
    state.OffsetCommitted("g", "t", 3, 2**40, 7, "here", 1_700_000_000_000),
    state.OffsetCommitted("g", "t", 3, 5, -1, "", 1, -1, T1),
    state.OffsetCommitted("", "t", 0, 5, -1, "", 1, 2),  # an expiry: stored without epoch and topic id
    state.OffsetDeleted("g", "t", 3),
    state.ClassicGroupMetadata("g", "", 0, None, None, 1, ()),
    state.ClassicGroupMetadata("g", "consumer", 4, "range", "m", 1, (MEMBER, MEMBER._replace(group_instance_id="i"))),
    state.GroupDeleted("g", CLASSIC),
    state.GroupDeleted("g", CONSUMER),
    state.ConsumerGroupMetadata("g", 5, -(2**63)),
    state.ConsumerGroupMemberMetadata("g", "m"),
    state.ConsumerGroupMemberMetadata(
        "g", "m", "i", "r", "c", "/h", ("a", "b"), "a.*", 300_000, "uniform",
        state.ClassicMemberMetadata(45_000, (("range", b"x"), ("sticky", b""))),
    ),
    state.ConsumerGroupTargetAssignmentMetadata("g", 5, 1_700_000_000_000),
    state.ConsumerGroupTargetAssignmentMember("g", "m", {T1: frozenset((2, 0, 1)), T2: frozenset((5,))}),
    state.ConsumerGroupCurrentMemberAssignment("g", "m", 5, 4, 1, {T1: {0: 4, 7: 5}}, {T2: {1: 3}}),
    state.ConsumerGroupRegularExpression("g", "a.*", ("a", "ab"), 17, 1),
    *(
        ConsumerGroupTombstone("g", of, key)
        for of, key in (
            (state.ConsumerGroupPartitionMetadata, ""),
            (state.ConsumerGroupMemberMetadata, "m"),
            (state.ConsumerGroupTargetAssignmentMetadata, ""),
            (state.ConsumerGroupTargetAssignmentMember, "m"),
            (state.ConsumerGroupCurrentMemberAssignment, "m"),
            (state.ConsumerGroupRegularExpression, "a.*"),
        )
    ),
    state.GroupDefinition("g", 10_000, ("a", "b"), None, "sticky", ephemeral=True),
    state.GroupDefinition("g", -1, (), "a.*", "range", ephemeral=False, first_topics=(("a", 3), ("ab", 1))),
    state.GroupDefinition("g", -1, (), None, "range", ephemeral=False, first_topics=()),
    state.GroupDeleted("g", REGISTERED),
    state.GroupGeneration("g", 5, 1_700_000_000_000, (REGISTERED_MEMBER, REGISTERED_MEMBER._replace(consumer_id="o"))),
    state.GroupGeneration("g", 6, 1, ()),
    state.GroupGenerationDeleted("g"),
    state.StaticClaim("g", "m", frozenset({("b", 1), ("a", 7), ("a", 2)})),
    state.StaticClaimDeleted("g", "m"),
    state.RewindMark("g", "t", 3, 6),
    state.RewindMarkDeleted("g", "t", 3),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_record_survives_encoding_and_decoding(record: Any) -> None:
    assert CODEC.decode(*CODEC.encode(record)) == record


def test_the_bytes_of_a_commit_are_those_of_kafka() -> None:
    """Key: type 1; value: version 4, flexible. As in the log of an Apache Kafka 4.3."""
    key, value = CODEC.encode(state.OffsetCommitted("g", "t", 3, 9, 7, "me", 258))
    assert key.hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 03"
    assert value is not None
    assert value.hex(" ") == "00 04 00 00 00 00 00 00 00 09 00 00 00 07 03 6d 65 00 00 00 00 00 00 01 02 00"


def test_every_type_is_read() -> None:
    assert set(DECODERS) == set(TOMBSTONES) == set(stored.RECORDS.keys.values())


def test_every_record_of_the_machines_is_written() -> None:
    """But what only an older Kafka has written, and the marker, which is a batch of its own."""
    classes = {each for each in vars(state).values() if isinstance(each, type) and each.__module__ == state.__name__}
    records = {each for each in classes if not each.__name__.startswith("_")}
    parts = {state.ClassicMemberRecord, state.ClassicMemberMetadata, state.RegisteredMember}
    read_only = {state.ConsumerGroupPartitionMetadata, state.TransactionEnded}
    several = {state.OffsetsCommitted, state.PackedOffsets}
    assert set(ENCODERS) == records - parts - read_only - several


def test_a_commit_in_a_transaction_is_stored_as_a_commit() -> None:
    committed = state.OffsetCommitted("g", "t", 0, 5, -1, "", 1)
    pending = state.TransactionalOffset(7, committed)
    assert CODEC.encode(pending) == CODEC.encode(committed)
    assert (CODEC.producer(pending), CODEC.producer(committed)) == (7, -1)
    assert CODEC.in_transaction(7, committed) == pending
    deleted = state.OffsetDeleted("g", "t", 0)
    assert CODEC.in_transaction(7, deleted) == deleted


def test_equal_states_have_equal_bytes() -> None:
    """Whatever order a set or a mapping has."""
    rng = random.Random(seed())
    for _ in range(50):
        owned = {rng.randbytes(16): {rng.randrange(100): rng.randrange(9) for _ in range(8)} for _ in range(4)}
        shuffled = {
            topic: dict(rng.sample(list(of.items()), len(of))) for topic, of in rng.sample(list(owned.items()), 4)
        }
        one = state.ConsumerGroupCurrentMemberAssignment("g", "m", 5, 4, 0, owned, {})
        assert CODEC.encode(one) == CODEC.encode(one._replace(assigned=shuffled))
    in_another_order = REGISTERED_MEMBER._replace(owned=frozenset(reversed(OWNED)))
    generation = state.GroupGeneration("g", 5, 1, (REGISTERED_MEMBER,))
    assert CODEC.encode(generation) == CODEC.encode(generation._replace(members=(in_another_order,)))


def test_impossible_records_of_registered_groups_are_rejected() -> None:
    twice = state.GroupGeneration("g", 5, 1, (REGISTERED_MEMBER, REGISTERED_MEMBER))
    with pytest.raises(RecordError, match="duplicate"):
        CODEC.decode(*CODEC.encode(twice))
    unassigned = state.GroupDefinition("g", -1, (), None, "unheard of", ephemeral=False)
    with pytest.raises(RecordError, match="unheard of"):
        CODEC.decode(*CODEC.encode(unassigned))


def test_partitions_without_epochs_get_the_member_epoch() -> None:
    """As Kafka before 4.3 stores them."""
    partitions = consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
        topic_id=T1, partitions=[0, 2]
    )
    assert decode_current(partitions).assigned == {T1: {0: 5, 2: 5}}
    partitions.assignment_epochs = [3]
    with pytest.raises(RecordError, match="2 partitions have 1 epochs"):
        decode_current(partitions)


def decode_current(partitions: Any) -> Any:
    key = consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5, previous_member_epoch=4, state=0,
        assigned_partitions=[partitions], partitions_pending_revocation=[],
    )  # fmt: skip
    return CODEC.decode(*record_types.write(key, value))


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_kept(text: str) -> None:
    record = state.OffsetCommitted(text, text or "t", 0, 5, -1, text, 1)
    assert CODEC.decode(*CODEC.encode(record)) == record
