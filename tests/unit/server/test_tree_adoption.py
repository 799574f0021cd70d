"""An adoption that is interrupted at any of its writes is continued by the next call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.producer_state import Producer, ProducerState
from kafkalite.clock import Then, await_outcome
from kafkalite.cluster.producer_id_blocks import RAISED_BY
from kafkalite.coordination import znodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.tree import Create, Operation, Set
from kafkalite.server.adoption import tree_adoption
from kafkalite.server.adoption.tree_adoption import TreeAdoption, TreeAdoptionError
from kafkalite.server.process.resources import ADOPTED, JOURNAL
from kafkalite.storage.log.producer_snapshots import write_packed
from kafkalite.testing.virtual_clock import VirtualClock

CLUSTER = "0j2CN7szSeKhqj3Oy8IKpQ"
ID = b"1" * 16
COPIED = {
    "/config/topics/a": znodes.encode_configs({"retention.ms": "5"}),
    "/brokers/topics/a": znodes.encode_topic(znodes.TopicNode(ID, {0: (1,), 1: (1,)})),
    "/brokers/topics/a/partitions": b"",
    "/brokers/topics/a/partitions/1": b"",
    "/brokers/topics/a/partitions/1/state": znodes.encode_state(znodes.PartitionState(1, 7, (1,))),
    "/latest_producer_id_block": znodes.encode_producer_ids(znodes.ProducerIdBlock(1, 2_000, 2_999)),
    "/kafkalite/groups/g": b"{}",
}
LEFT_OUT = {"/kafkalite/directories/x": b"", "/kafkalite/deleted/y": b"", "/config/changes/config_change_1": b"{}"}


class Interrupted:
    """A session whose write with this number fails; before or after it is committed."""

    def __init__(self, service: EmbeddedCoordination, number: int, *, committed: bool) -> None:
        self._session: Any = service.connect()
        self._left, self._committed = number, committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def multi(self, operations: Sequence[Operation], then: Then) -> None:
        self._left -= 1
        if self._left:
            self._session.multi(operations, then)
            return
        if self._committed:
            self._session.multi(operations, lambda outcome: outcome.result())
        raise ConnectionLossError("/")


def filled(directory: Path) -> None:
    """A log directory with the journal of a broker alone."""
    service = EmbeddedCoordination.open(Disk(), str(directory / JOURNAL), VirtualClock())
    nodes = {**COPIED, **LEFT_OUT, znodes.CLUSTER_ID: znodes.encode_cluster_id(CLUSTER)}
    above = {each: b"" for path in nodes for each in znodes.parents(path)}
    operations = [Create(path, data) for path, data in sorted({**above, **nodes}.items())]
    service.connect().multi(operations, lambda outcome: outcome.result())
    service.close()


def contents(service: EmbeddedCoordination) -> dict[str, bytes]:
    return {path: node.data for path, node in service.tree.walk()}


async def adopted(directory: Path, target: Any) -> int:
    return (await TreeAdoption(Disk(), VirtualClock(), str(directory), target).run()).written


async def test_the_tree_of_a_cluster_has_all_topics_with_their_states(tmp_path: Path) -> None:
    filled(tmp_path)
    target = EmbeddedCoordination(VirtualClock())
    await adopted(tmp_path, target.connect())
    found = contents(target)
    assert COPIED.items() <= found.items() and znodes.decode_cluster_id(found[znodes.CLUSTER_ID]) == CLUSTER
    assert LEFT_OUT.keys().isdisjoint(found)
    state = znodes.decode_state("", found["/brokers/topics/a/partitions/0/state"])
    assert state == znodes.PartitionState(1, 0, (1,)), "the embedded tree has no state of a new partition"
    assert not (tmp_path / JOURNAL).exists() and (tmp_path / ADOPTED).exists()
    with pytest.raises(TreeAdoptionError, match=r"has no kafkalite\.journal: a cluster has adopted it already"):
        await adopted(tmp_path, target.connect())


@pytest.mark.parametrize("committed", [False, True])
async def test_an_interrupted_adoption_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    monkeypatch.setattr(tree_adoption, "BATCH_NODES", 3)
    whole = EmbeddedCoordination(VirtualClock())
    (tmp_path / "whole").mkdir()
    filled(tmp_path / "whole")
    writes = -(-await adopted(tmp_path / "whole", whole.connect()) // 3)
    assert writes > 3
    for number in range(1, writes + 1):
        directory = tmp_path / str(number)
        directory.mkdir()
        filled(directory)
        target = EmbeddedCoordination(VirtualClock())
        with pytest.raises(ConnectionLossError):
            await adopted(directory, Interrupted(target, number, committed=committed))
        assert not (directory / JOURNAL).exists(), "the broker must not run alone again"
        if committed or number > 1:
            assert "/brokers/topics/a" in contents(target), "a broker refuses the tree, as it has topics and no id"
        await adopted(directory, target.connect())
        assert contents(target) == contents(whole) and (directory / ADOPTED).exists()


async def test_a_copy_of_an_adopted_directory_is_refused(tmp_path: Path) -> None:
    target = EmbeddedCoordination(VirtualClock())
    for name in ("one", "copy"):
        (tmp_path / name).mkdir()
        filled(tmp_path / name)
    await adopted(tmp_path / "one", target.connect())
    with pytest.raises(TreeAdoptionError, match="was not adopted: a copy of it was"):
        await adopted(tmp_path / "copy", target.connect())
    assert (tmp_path / "copy" / JOURNAL).exists()


async def test_a_node_that_others_have_written_is_not_replaced(tmp_path: Path) -> None:
    filled(tmp_path)
    target = EmbeddedCoordination(VirtualClock())
    session = target.connect()
    nodes = [Create("/config", b""), Create("/config/topics", b""), Create("/config/topics/a", b"other")]
    await await_outcome(lambda then: session.multi(nodes, then))
    with pytest.raises(TreeAdoptionError, match="the tree has another /config/topics/a"):
        await adopted(tmp_path, session)
    assert (tmp_path / JOURNAL).exists()
    fixed = Set("/config/topics/a", COPIED["/config/topics/a"])
    await await_outcome(lambda then: session.multi([fixed], then))
    assert await adopted(tmp_path, session)


def with_producer(directory: Path, name: str, producer_id: int) -> None:
    """A directory of a partition whose snapshot has this producer."""
    partition = directory / name
    partition.mkdir()
    producers = ProducerState()
    producers.load([Producer(producer_id, 0, last_timestamp=1)])
    write_packed(Disk(), str(partition), 1, producers.pack())


@pytest.mark.parametrize("name", ["a-0", f"a-0.{'0' * 32}-stray"])
async def test_producer_ids_begin_above_those_of_the_logs(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    with_producer(tmp_path, name, 7_000)
    target = EmbeddedCoordination(VirtualClock())
    await adopted(tmp_path, target.connect())
    block = znodes.decode_producer_ids(contents(target)[znodes.PRODUCER_ID_BLOCK])
    assert block is not None and block.last == 7_000 + RAISED_BY, (
        "an older copy of the journal has assigned up to 2,999"
    )


async def test_passwords_without_effect_are_left_out(tmp_path: Path) -> None:
    filled(tmp_path)
    stored = {
        "num.io.threads": "4",
        "ssl.key.password": "secret",
        "listener.name.x.scram-sha-256.sasl.jaas.config": "secret",
    }
    service = EmbeddedCoordination.open(Disk(), str(tmp_path / JOURNAL), VirtualClock())
    nodes = [Create(znodes.BROKER_CONFIGS), Create(znodes.broker_config_path(1), znodes.encode_configs(stored))]
    service.connect().multi(nodes, lambda outcome: outcome.result())
    service.close()
    target = EmbeddedCoordination(VirtualClock())
    result = await TreeAdoption(Disk(), VirtualClock(), str(tmp_path), target.connect()).run()
    found = contents(target)
    assert znodes.decode_configs("", found[znodes.broker_config_path(1)]) == {"num.io.threads": "4"}
    assert not any(b"secret" in data for data in found.values())
    assert [key for _, key in result.passwords] == sorted(stored.keys() - {"num.io.threads"}, reverse=True)
