"""Kafka's nodes: the bytes of its own encoder, and garbage is refused."""

import random
import re
from collections.abc import Callable

import pytest

from kafkalite.coordination import bulk_reads, znodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.tree import Create
from kafkalite.coordination.znodes import PartitionState, ProducerIdBlock, TopicNode
from kafkalite.testing.virtual_clock import VirtualClock

TOPIC_ID = bytes.fromhex("d8b2dc1ea94943149ca1a2ff2f0d1a51")
TEXTS = [
    (znodes.encode_cluster_id("MkU3OEVBNTcwNTJENDM2Qg"), b'{"version":"1","id":"MkU3OEVBNTcwNTJENDM2Qg"}'),
    (
        znodes.encode_topic(TopicNode(TOPIC_ID, {0: (1, 2, 3), 1: (2, 3, 1)})),
        b'{"version":3,"topic_id":"2LLcHqlJQxScoaL_Lw0aUQ","partitions":{"0":[1,2,3],"1":[2,3,1]},'
        b'"adding_replicas":{},"removing_replicas":{}}',
    ),
    (
        znodes.encode_state(PartitionState(1, 0, (1, 2, 3), 1)),
        b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2,3]}',
    ),
    (
        znodes.encode_state(PartitionState(-1, 4, (2,), 7, recovering=True)),
        b'{"version":1,"leader":-1,"leader_epoch":4,"controller_epoch":7,"isr":[2],"leader_recovery_state":1}',
    ),
    (
        znodes.encode_state(PartitionState(1, 4, (1,), 7, False, (55,), (3,), (-1,))),
        b'{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":7,"isr":[1],"isr_epochs":[55],'
        b'"eligible_replicas":[3],"eligible_epochs":[-1]}',
    ),
    (
        znodes.encode_configs({"retention.ms": "1000", "x": 'ä"'}),
        '{"version":1,"config":{"retention.ms":"1000","x":"ä\\""}}'.encode(),
    ),
    (znodes.encode_config_change("topics/foo"), b'{"version":2,"entity_path":"topics/foo"}'),
    (
        znodes.encode_producer_ids(ProducerIdBlock(1, 0, 999)),
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("written", "expected"), TEXTS)
def test_bytes_are_kafkas(written: bytes, expected: bytes) -> None:
    assert written == expected


def test_written_values_are_read_back() -> None:
    topic = TopicNode(TOPIC_ID, {0: (1,), 10: (2, 1)}, {0: (3,)}, {10: (1,)})
    assert znodes.decode_topic("/t", znodes.encode_topic(topic)) == topic
    for fields in ((), ((7, -1),), ((7, -1), (4, 2), (9, -1))):
        state = PartitionState(3, 9, (3, 1), 2, True, *fields)
        assert znodes.decode_state("/s", znodes.encode_state(state)) == state
    for eligible in ('"eligible_replicas":[3],"eligible_epochs":[1]', '"eligible_replicas":[2],"eligible_epochs":[]'):
        with pytest.raises(znodes.ZnodeError, match="eligible"):
            znodes.decode_state("/s", b'{"leader":3,"leader_epoch":9,"isr":[3],%s}' % eligible.encode())
    block = ProducerIdBlock(2, 1000, 1999)
    assert znodes.decode_producer_ids(znodes.encode_producer_ids(block)) == block
    assert znodes.decode_producer_ids(b"") is None
    assert znodes.decode_directory("/d", znodes.encode_directory(4, "dir")) == {4: "dir"}
    assert znodes.decode_configs("/c", znodes.encode_configs({"a": "b"})) == {"a": "b"}
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("x")) == "x"


def test_older_versions_are_read() -> None:
    old = znodes.decode_topic("/t", b'{"version":1,"partitions":{"0":[1]}}')
    assert old == TopicNode(None, {0: (1,)}, {}, {})


DECODERS: list[Callable[[bytes], object]] = [
    znodes.decode_cluster_id,
    lambda data: znodes.decode_topic("/t", data),
    lambda data: znodes.decode_state("/s", data),
    lambda data: znodes.decode_configs("/c", data),
    lambda data: znodes.decode_producer_ids(data) or data,
    lambda data: znodes.decode_directory("/d", data),
]


@pytest.mark.parametrize("decode", DECODERS)
def test_garbage_is_refused_with_one_line_that_names_the_node(decode: Callable[[bytes], object]) -> None:
    for data in (b"{", b"[]", b"1", b"\xff\xfe", b"{}", b'{"version":1}', b"[" * 100_000):
        with pytest.raises(znodes.ZnodeError, match=r"^/[^\n]*$"):
            decode(data)


def reads(decode: Callable[[bytes], object], data: bytes) -> bool:
    try:
        decode(data)
    except znodes.ZnodeError:
        return False
    return True


@pytest.mark.fuzz
def test_changed_nodes_are_read_or_refused(chance: random.Random, fuzz_inputs: int) -> None:
    good = [(written, decode) for written, _ in TEXTS for decode in DECODERS if reads(decode, written)]
    values = [
        b"null",
        b"-1",
        b'"x"',
        b"[]",
        b"{}",
        b"true",
        b"1e99",
        b"99999999999999999999999999",
        b'["a"]',
        b'{"a":1}',
    ]
    outcomes = {True: 0, False: 0}
    for _ in range(max(500, fuzz_inputs // 100)):
        data, decode = chance.choice(good)
        if chance.random() < 0.7:
            spans = [match.span(1) for match in re.finditer(rb":([^,{}\[\]]+|\[[^]]*\])", data)]
            start, end = chance.choice(spans)
            data = data[:start] + chance.choice(values) + data[end:]
        else:
            at = chance.randrange(len(data))
            data = data[:at] + chance.randbytes(1) + data[at + 1 :]
        try:
            decode(data)
            outcomes[True] += 1
        except znodes.ZnodeError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 20


def test_topics_live_in_the_tree() -> None:
    service = EmbeddedCoordination(VirtualClock())
    session = service.connect()
    bulk_reads.ensure_nodes(session, znodes.PERSISTENT, lambda outcome: outcome.result())
    bulk_reads.ensure_nodes(session, znodes.PERSISTENT, lambda outcome: outcome.result())
    assert all(service.tree.exists(path) for path in znodes.PERSISTENT)
    empty = {path for path, _ in service.tree.walk()}
    node, states = TopicNode(TOPIC_ID, {0: (1,)}), {0: PartitionState(1, 0, (1,))}
    session.multi(znodes.create_topic("t", node, {"a": "b"}, states), lambda outcome: outcome.result())
    session.multi((znodes.note_directory(TOPIC_ID, 0, 1, "here"),), lambda outcome: outcome.result())
    notice = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics/t"), sequence=True)
    session.multi((notice,), lambda outcome: outcome.result())
    grown = TopicNode(TOPIC_ID, {0: (1,), 1: (1,)})
    session.multi(znodes.grow_topic("t", grown, {1: PartitionState(1, 0, (1,))}, 0), lambda outcome: outcome.result())
    found: list[bulk_reads.TopicRecord] = []
    bulk_reads.read_topics(session, lambda outcome: found.extend(outcome.result()))
    (record,) = found
    assert record.name == "t" and record.node == grown._replace(adding={}, removing={}) and record.version == 1
    assert record.configs == {"a": "b"} and record.directories == {0: {1: "here"}}
    assert record.states == {partition: (PartitionState(1, 0, (1,)), 0) for partition in (0, 1)}
    nodes = [*znodes.delete_states("t", (0, 1)), *znodes.delete_notes(TOPIC_ID, (0,))]
    recorded = [*nodes, *znodes.delete_empty_topic("t", TOPIC_ID), znodes.record_deletion(TOPIC_ID)]
    session.multi(recorded, lambda outcome: outcome.result())
    changes = {path for path, _ in service.tree.walk() if path.startswith(znodes.CONFIG_CHANGE_PREFIX)}
    deleted = {znodes.deleted_topic_path(TOPIC_ID)}
    assert {path for path, _ in service.tree.walk()} == empty | changes | deleted and len(changes) == 1


def test_unreadable_topic_is_reported() -> None:
    session = EmbeddedCoordination(VirtualClock()).connect()
    bulk_reads.ensure_nodes(session, znodes.PERSISTENT, lambda outcome: outcome.result())
    session.multi((Create("/brokers/topics/t", b"{}"),), lambda outcome: outcome.result())
    outcomes = []
    bulk_reads.read_topics(session, outcomes.append)
    with pytest.raises(znodes.ZnodeError, match="/brokers/topics/t: "):
        outcomes[0].result()
