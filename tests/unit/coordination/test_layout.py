"""Kafka's nodes: the bytes of its own encoder, and garbage is refused."""

import random
import re
from collections.abc import Callable

import pytest

from kafkalite.coordination import layout, reading
from kafkalite.coordination.embedded import Embedded
from kafkalite.coordination.layout import PartitionState, ProducerIdBlock, TopicNode
from kafkalite.coordination.tree import Create
from kafkalite.testing.clock import VirtualClock

TOPIC_ID = bytes.fromhex("d8b2dc1ea94943149ca1a2ff2f0d1a51")
TEXTS = [
    (layout.encode_cluster_id("MkU3OEVBNTcwNTJENDM2Qg"), b'{"version":"1","id":"MkU3OEVBNTcwNTJENDM2Qg"}'),
    (
        layout.encode_topic(TopicNode(TOPIC_ID, {0: (1, 2, 3), 1: (2, 3, 1)})),
        b'{"version":3,"topic_id":"2LLcHqlJQxScoaL_Lw0aUQ","partitions":{"0":[1,2,3],"1":[2,3,1]},'
        b'"adding_replicas":{},"removing_replicas":{}}',
    ),
    (
        layout.encode_state(PartitionState(1, 0, (1, 2, 3), 1)),
        b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2,3]}',
    ),
    (
        layout.encode_state(PartitionState(-1, 4, (2,), 7, recovering=True)),
        b'{"version":1,"leader":-1,"leader_epoch":4,"controller_epoch":7,"isr":[2],"leader_recovery_state":1}',
    ),
    (
        layout.encode_configs({"retention.ms": "1000", "x": 'ä"'}),
        '{"version":1,"config":{"retention.ms":"1000","x":"ä\\""}}'.encode(),
    ),
    (layout.encode_config_change("topics/foo"), b'{"version":2,"entity_path":"topics/foo"}'),
    (
        layout.encode_producer_ids(ProducerIdBlock(1, 0, 999)),
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("written", "expected"), TEXTS)
def test_bytes_are_kafkas(written: bytes, expected: bytes) -> None:
    assert written == expected


def test_what_is_written_is_read_back() -> None:
    topic = TopicNode(TOPIC_ID, {0: (1,), 10: (2, 1)}, {0: (3,)}, {10: (1,)})
    assert layout.decode_topic("/t", layout.encode_topic(topic)) == topic
    state = PartitionState(3, 9, (3, 1), 2, True)
    assert layout.decode_state("/s", layout.encode_state(state)) == state
    block = ProducerIdBlock(2, 1000, 1999)
    assert layout.decode_producer_ids(layout.encode_producer_ids(block)) == block
    assert layout.decode_producer_ids(b"") is None
    assert layout.decode_directory("/d", layout.encode_directory(4, "dir")) == {4: "dir"}
    assert layout.decode_configs("/c", layout.encode_configs({"a": "b"})) == {"a": "b"}
    assert layout.decode_cluster_id(layout.encode_cluster_id("x")) == "x"


def test_older_versions_are_read() -> None:
    old = layout.decode_topic("/t", b'{"version":1,"partitions":{"0":[1]}}')
    assert old == TopicNode(None, {0: (1,)}, {}, {})


DECODERS: list[Callable[[bytes], object]] = [
    layout.decode_cluster_id,
    lambda data: layout.decode_topic("/t", data),
    lambda data: layout.decode_state("/s", data),
    lambda data: layout.decode_configs("/c", data),
    lambda data: layout.decode_producer_ids(data) or data,
    lambda data: layout.decode_directory("/d", data),
]


@pytest.mark.parametrize("decode", DECODERS)
def test_garbage_is_refused_with_one_line_that_names_the_node(decode: Callable[[bytes], object]) -> None:
    for data in (b"{", b"[]", b"1", b"\xff\xfe", b"{}", b'{"version":1}', b"[" * 100_000):
        with pytest.raises(layout.LayoutError, match=r"^/[^\n]*$"):
            decode(data)


def reads(decode: Callable[[bytes], object], data: bytes) -> bool:
    try:
        decode(data)
    except layout.LayoutError:
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
        except layout.LayoutError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 20


def test_topics_live_in_the_tree() -> None:
    service = Embedded(VirtualClock())
    session = service.connect()
    reading.ensure_nodes(session, layout.PERSISTENT, lambda outcome: outcome.result())
    reading.ensure_nodes(session, layout.PERSISTENT, lambda outcome: outcome.result())
    assert all(service.tree.exists(path) for path in layout.PERSISTENT)
    empty = {path for path, _ in service.tree.walk()}
    node, states = TopicNode(TOPIC_ID, {0: (1,)}), {0: PartitionState(1, 0, (1,))}
    session.multi(layout.create_topic("t", node, {"a": "b"}, states), lambda outcome: outcome.result())
    session.multi((layout.note_directory(TOPIC_ID, 0, 1, "here"),), lambda outcome: outcome.result())
    session.multi(layout.configure_topic("t", {"c": "d"}), lambda outcome: outcome.result())
    grown = TopicNode(TOPIC_ID, {0: (1,), 1: (1,)})
    session.multi(layout.grow_topic("t", grown, {1: PartitionState(1, 0, (1,))}, 0), lambda outcome: outcome.result())
    found: list[reading.TopicRecord] = []
    reading.read_topics(session, lambda outcome: found.extend(outcome.result()))
    (record,) = found
    assert record.name == "t" and record.node == grown._replace(adding={}, removing={}) and record.version == 1
    assert record.configs == {"c": "d"} and record.directories == {0: {1: "here"}}
    assert record.states == {partition: (PartitionState(1, 0, (1,)), 0) for partition in (0, 1)}
    nodes = [*layout.delete_states("t", (0, 1)), *layout.delete_notes(TOPIC_ID, (0,))]
    recorded = [*nodes, *layout.delete_empty_topic("t", TOPIC_ID), layout.record_deletion(TOPIC_ID)]
    session.multi(recorded, lambda outcome: outcome.result())
    changes = {path for path, _ in service.tree.walk() if path.startswith(layout.CONFIG_CHANGE_PREFIX)}
    deleted = {layout.deleted_topic_path(TOPIC_ID)}
    assert {path for path, _ in service.tree.walk()} == empty | changes | deleted and len(changes) == 1


def test_a_topic_that_cannot_be_read_is_told() -> None:
    session = Embedded(VirtualClock()).connect()
    reading.ensure_nodes(session, layout.PERSISTENT, lambda outcome: outcome.result())
    session.multi((Create("/brokers/topics/t", b"{}"),), lambda outcome: outcome.result())
    outcomes = []
    reading.read_topics(session, outcomes.append)
    with pytest.raises(layout.LayoutError, match="/brokers/topics/t: "):
        outcomes[0].result()
