"""What a migration of offsets copies, keeps and refuses, from what both storages have."""

import pytest
from kafkalite_sdk.admin import Committed
from kafkalite_sdk.zk.groups import Owner, RegisteredConsumer, StoredOffset, ZooKeeperGroup
from kafkalite_sdk.zk.offsets.migration import Confirmed, MigrationPlan, Step, Storage

from kafkalite.coordination.znodes.consumers import Registration, StreamId
from kafkalite.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OWNED_AT = 10  # transaction of the owner's node


def plan(
    to: Storage,
    zookeeper: dict[TopicPartition, tuple[int, int]],
    broker: dict[TopicPartition, int],
    *,
    owned: tuple[TopicPartition, ...] = (),
    members: tuple[str, ...] = (),
    problems: dict[str, str] | None = None,
) -> MigrationPlan:
    """A plan; `zookeeper` has offsets, and the transactions that wrote them."""
    consumers = {"g_a": RegisteredConsumer(Registration({"t": 1}), 1)} if owned else {}
    owners = {each: Owner(StreamId("g_a", 0), 1, OWNED_AT) for each in owned}
    stored = {each: StoredOffset(*one) for each, one in zookeeper.items()}
    versions = dict.fromkeys(stored, 3)
    group = ZooKeeperGroup("g", consumers, owners, stored, versions, (), problems or {})
    return MigrationPlan(group, to, {each: Committed(offset) for each, offset in broker.items()}, members)


@pytest.mark.parametrize("to", list(Storage))
@pytest.mark.parametrize(
    ("source", "target", "step"),
    [
        (7, None, Step.COPY),
        (7, 6, Step.COPY),
        (0, None, Step.COPY),
        (7, 7, Step.EQUAL),
        (7, 8, Step.AHEAD),
        (None, 8, Step.NO_SOURCE),
        (2**62 + 1, 2**62, Step.COPY),
    ],
)
def test_steps(to: Storage, source: int | None, target: int | None, step: Step) -> None:
    zookeeper, broker = (source, target) if to is Storage.BROKER else (target, source)
    found = plan(to, {} if zookeeper is None else {T0: (zookeeper, 5)}, {} if broker is None else {T0: broker})
    (offsets,) = found.partitions.values()
    assert (offsets.zookeeper, offsets.broker, found.step(offsets)) == (zookeeper, broker, step)
    assert offsets.difference == (None if None in (zookeeper, broker) else broker - zookeeper)  # type: ignore[operator]
    assert found.copies(Confirmed()) == ({T0: source} if step is Step.COPY else {})


def test_larger_offsets_of_the_target_are_a_choice() -> None:
    found = plan(Storage.BROKER, {T0: (5, 1), T1: (5, 1)}, {T0: 9, T1: 3})
    (refused,) = found.refusals(Confirmed())
    assert "broker has larger offsets of 1 partition(s): t-0 (9 > 5)" in refused and "--if-ahead keep" in refused
    assert found.refusals(Confirmed(if_ahead="keep")) == []
    assert found.copies(Confirmed(if_ahead="keep")) == {T1: 5}
    assert found.copies(Confirmed(if_ahead="overwrite")) == {T0: 5, T1: 5}


def test_registered_consumers_have_to_be_confirmed() -> None:
    found = plan(Storage.ZOOKEEPER, {T0: (5, 1)}, {T0: 9}, owned=(T0,))
    (refused,) = found.refusals(Confirmed())
    assert "1 consumer(s) are registered" in refused and "g_a" in refused and "--consumers-commit-to-both" in refused
    assert found.refusals(Confirmed(commit_to_both=True)) == []


def test_consumers_that_commit_to_zookeeper_alone_are_known() -> None:
    """The owner has written the offset since it owns the partition, and the broker has none: not dual commit."""
    behind = plan(Storage.BROKER, {T0: (5, OWNED_AT + 1)}, {}, owned=(T0,))
    (refused,) = behind.refusals(Confirmed(commit_to_both=True))
    assert "commit to ZooKeeper alone: t-0 (g_a-0)" in refused and "dual.commit.enabled=true" in refused
    assert behind.refusals(Confirmed()) == [refused], "one reason is enough"
    equal = plan(Storage.BROKER, {T0: (5, OWNED_AT + 1)}, {T0: 5}, owned=(T0,))
    earlier = plan(Storage.BROKER, {T0: (5, OWNED_AT - 1)}, {}, owned=(T0,))
    for each in (equal, earlier):
        assert each.refusals(Confirmed(commit_to_both=True)) == []


def test_members_of_the_broker_commit_to_the_broker_alone() -> None:
    for to in Storage:
        found = plan(to, {T0: (5, 1)}, {T0: 5}, members=("m-1",))
        (refused,) = found.refusals(Confirmed(commit_to_both=True, if_ahead="keep"))
        assert "the broker's group has 1 member(s)" in refused and "m-1" in refused


def test_an_owner_with_dual_commit_may_be_ahead() -> None:
    found = plan(Storage.BROKER, {T0: (5, 1), T1: (5, 1)}, {T0: 6, T1: 5}, owned=(T0, T1))
    assert found.refusals(Confirmed(commit_to_both=True)) == []
    assert found.copies(Confirmed(commit_to_both=True, if_ahead="overwrite")) == {}, "a commit is not taken back"


def test_invalid_offsets_of_the_source_are_named() -> None:
    path = "/consumers/g/offsets/t/1"
    found = plan(Storage.BROKER, {T0: (5, 1)}, {}, problems={path: "b'x' is not an offset", "/consumers/g/ids/x": "?"})
    (refused,) = found.refusals(Confirmed())
    assert refused.startswith(f"{path}: b'x' is not an offset; ")
    back = plan(Storage.ZOOKEEPER, {}, {T0: 5}, problems={path: "b'x' is not an offset"})
    assert back.refusals(Confirmed()) == []
