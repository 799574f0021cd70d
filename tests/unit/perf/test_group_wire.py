"""The hand-written requests of groups as kio reads them; answers, members and loads with a broker of ours."""

import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from kafkalite.testing.thread import BrokerThread
from perf import group_wire as wire
from perf.checks import VerificationError
from perf.members import ClassicMember, Crowd, commit_all, crowd, find
from perf.wire import Pipe, call, connect, paced

FLEXIBLE = {wire.OFFSET_COMMIT, wire.OFFSET_FETCH, wire.CONSUMER_HEARTBEAT}
TOPIC_ID = bytes(range(16))
AT_ONCE = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}


def read(request: bytes) -> Any:
    """The request as kio reads it: size, header and body fit."""
    size, key, version = struct.unpack_from(">ihh", request)
    assert size == len(request) - 4
    head = struct.calcsize(">ihhih") + len(b"perf") + (key in FLEXIBLE)
    entity, used = entity_reader(load_request_schema(key, version))(request, head)
    assert used == len(request) - head
    return entity


def test_a_commit() -> None:
    commit = read(wire.offset_commit("g", "t", {0: 7, 300: 8}))
    (topic,) = commit.topics
    assert (commit.group_id, commit.generation_id_or_member_epoch, commit.member_id, topic.name) == ("g", -1, "", "t")
    assert [(part.partition_index, part.committed_offset) for part in topic.partitions] == [(0, 7), (300, 8)]


def test_a_fetch_of_two_groups() -> None:
    fetch = read(wire.offset_fetch(["a", "b"], "t", [3, 4]))
    assert [(group.group_id, group.member_id, group.member_epoch) for group in fetch.groups] == [
        ("a", None, -1),
        ("b", None, -1),
    ]
    assert all(group.topics[0].partition_indexes == (3, 4) for group in fetch.groups)


def test_what_a_classic_member_asks() -> None:
    join = read(wire.join("g", "m", "t"))
    assert (join.group_id, join.member_id, join.protocol_type, join.protocols[0].name) == (
        "g",
        "m",
        "consumer",
        "range",
    )
    sync = read(wire.sync("g", 3, "m", "t", {"m": [1, 2], "n": [3]}))
    assert [each.member_id for each in sync.assignments] == ["m", "n"]
    fast_heartbeat = read(wire.heartbeat("g", 3, "m"))
    assert (fast_heartbeat.group_id, fast_heartbeat.generation_id, fast_heartbeat.member_id) == ("g", 3, "m")
    assert read(wire.leave("g", "m")).member_id == "m"
    assert read(wire.find_coordinator("g")).key == "g"


def test_what_a_member_of_a_consumer_group_asks() -> None:
    first = read(wire.consumer_heartbeat("g", "m", 0, topic="t", owned={}))
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ("t",), ())
    later = read(wire.consumer_heartbeat("g", "m", 4, owned={TOPIC_ID: [1, 2]}))
    assert later.subscribed_topic_names is None
    assert [(each.topic_id.bytes, each.partitions) for each in later.topic_partitions] == [(TOPIC_ID, (1, 2))]
    assert read(wire.consumer_heartbeat("g", "m", 4)).topic_partitions is None


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with BrokerThread(str(tmp_path / "data"), AT_ONCE) as thread:
        thread.create_topic("t", 40)
        host, port = thread.address.rsplit(":", 1)
        thread.host, thread.port = host, int(port)  # type: ignore[attr-defined]
        yield thread


def test_what_was_committed_is_found(broker: Any) -> None:
    with closing(connect(broker.host, broker.port)) as connection:
        find(connection, "a")
        commit_all(connection, "t", {"a": {0: 5, 1: 6}, "b": {0: 9}})
        found = wire.fetched(call(connection, wire.offset_fetch(["a", "b", "c"], "t", [0, 1])))
        assert found == [("a", {0: 5, 1: 6}, 0), ("b", {0: 9, 1: -1}, 0), ("c", {0: -1, 1: -1}, 0)]
        with pytest.raises(VerificationError, match="error 3"):
            commit_all(connection, "no-such-topic", {"a": {0: 5}})


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_members_settle_change_and_rest(broker: Any, kind: str) -> None:
    with closing(crowd(kind, broker, "g", "t", 10, 40)) as members:
        members.wait_until_stable()
        before = owners(members)
        for number in range(3):
            members.change(number)
        after = owners(members)
        assert before.keys() == after.keys() == set(range(40))
        assert members.members[0].generation > 1
        error_at = wire.ERROR_AT if kind == "classic" else wire.FLEXIBLE_ERROR_AT
        pipes = [
            Pipe(broker.host, broker.port, [member.heartbeat()], error_at, member.connection)
            for member in members.members
        ]
        assert len(paced(pipes, 2_000.0, 100)) == 100
        members.members[3].leaving = True
        members.wait_until_stable()
        if kind == "classic":  # a new member has made a new generation: what was written before is of the old one
            with pytest.raises(VerificationError, match="error 22"):
                Pipe(broker.host, broker.port, pipes[0]._requests, error_at, members.members[0].connection)


def owners(members: Crowd) -> dict[int, int]:
    return {part: number for number, member in enumerate(members.members) for part in member.owned}


def test_a_member_that_is_refused_ends_the_run(broker: Any) -> None:
    member = ClassicMember("", "t", 40, connect(broker.host, broker.port))
    with closing(Crowd([member], 40)) as members, pytest.raises(VerificationError, match="error 24"):
        members.wait_until_stable()
