"""What must hold 10 virtual seconds after the last fault of a simulated cluster.

The checks read the tree, the log directories and responses, and of the brokers their images only.
"""

from __future__ import annotations

from pathlib import Path

from kafkalite.coordination import znodes
from kafkalite.coordination.znodes.brokers import registration_path
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.foreign_program import FOREIGN_TOPICS
from tests.story.cluster.world import ClusterWorld
from tests.story.sdk.simulated_producer import named

STRAY, DELETED = "-stray", "-delete"
EPOCHS, METADATA = "leader-epoch-checkpoint", "partition.metadata"


def check_controllers(world: ClusterWorld) -> None:
    """One controller writes in each epoch, and each epoch is won once."""
    assert not world.trace.violations, world.trace.violations


def check_sessions(world: ClusterWorld) -> None:
    """No session was continued, and closed, by a copy of the log directory of its broker."""
    assert not world.zookeeper.moved, f"sessions were taken over (session, from, to): {world.zookeeper.moved}"


def check_producer_ids(world: ClusterWorld) -> None:
    """Each producer id in the logs that were read last is that of one producer."""
    for producer_id, values in world.values.items():
        names = {named(value)[0] for value in values}
        assert len(names) == 1 or producer_id < 0, f"producer id {producer_id} was assigned to {sorted(names)}"


def check_topics(world: ClusterWorld, administrator: Administrator) -> None:
    """Acknowledged changes of topics are in the tree, and every topic of the tree is whole."""
    assert not administrator.early, f"acknowledged too early: {administrator.early}"
    topics = world.topics()
    for name, partitions in administrator.exists.items():
        assert name in topics, f"{name} was created and is gone"
        assert len(topics[name].replicas) >= partitions, f"{name} has lost partitions: {topics[name]}"
    left = administrator.deleted & topics.keys()
    assert not left, f"{left} were deleted and exist"
    for name in topics:
        states = world.states(name)
        led = [leader for leader, _, _ in states.values() if leader in world.brokers]
        assert len(led) == len(states), f"{name} has partitions without a leader: {states}"
        check_leader_epochs(world, name)
    waiting, _ = world.zookeeper.tree.children(znodes.DELETE_TOPICS)
    assert not waiting, f"deletions of topics are not complete: {waiting}"


def check_leader_epochs(world: ClusterWorld, topic: str) -> None:
    """No leader has restarted within a leader epoch: its state was written after its registration."""
    for partition, (leader, *_) in world.states(topic).items():
        written = world.zookeeper.tree.get(znodes.state_path(topic, partition))[1].mzxid
        registered = world.zookeeper.tree.get(registration_path(leader))[1].czxid
        assert registered < written, f"{topic}-{partition}: broker {leader} has restarted in the same leader epoch"


def check_images(world: ClusterWorld) -> None:
    """The image of every broker equals the tree."""
    tree = {name: world.states(name) for name in world.topics()}
    for broker_id, broker in world.brokers.items():
        image = {
            name: {
                at: (one.leader, one.leader_epoch, one.partition_epoch)
                for at, one in enumerate(topic.partitions)
            }
            for name, topic in broker.running.image.topics.items()
            if name not in FOREIGN_TOPICS
        }  # fmt: skip
        different = {name for name in tree.keys() | image.keys() if tree.get(name) != image.get(name)}
        assert not different, f"broker {broker_id}: " + ", ".join(
            f"{name}: image {image.get(name)}, tree {tree.get(name)}" for name in sorted(different)
        )


async def check_answers(world: ClusterWorld) -> None:
    """Every broker names the leaders of the tree, and each leader serves its partitions."""
    tree = {name: {at: state[0] for at, state in world.states(name).items()} for name in world.topics()}
    for broker_id in world.brokers:
        response = await world.metadata(broker_id, *tree)
        answers = {
            topic.name: {part.partition_index: part.leader_id for part in topic.partitions} for topic in response.topics
        }
        assert answers == tree, f"broker {broker_id}: {answers}, tree {tree}"
    await world.logs(list(tree))


def check_directories(world: ClusterWorld, directory: Path, with_records: set[str]) -> None:
    """Each log directory has the partitions that its broker leads, and no others but strays.

    A partition without records may lack its files: on a full disk the next append creates them. A directory without
    `partition.metadata` is left of such a creation.

    Arguments:
        world: its brokers run.
        directory: with the log directories of the brokers.
        with_records: partitions with records, as TOPIC-N.
    """
    expected: dict[int, set[str]] = {broker_id: set() for broker_id in world.brokers}
    for name in world.topics():
        for partition, (leader, _, _) in world.states(name).items():
            expected[leader].add(f"{name}-{partition}")
    for broker_id, partitions in expected.items():
        logs = [path.parent.name for path in (directory / str(broker_id)).glob(f"*/{METADATA}")]
        found = {name for name in logs if not name.endswith((STRAY, DELETED))}
        found = {name for name in found if name.rpartition("-")[0] not in FOREIGN_TOPICS}
        lost = (partitions - found) & with_records
        assert not lost, f"broker {broker_id} has lost the logs of {sorted(lost)}"
        assert found <= partitions, f"broker {broker_id} has the logs of others: {sorted(found - partitions)}"
        for name in sorted(partitions & found):
            epochs = directory / str(broker_id) / name / EPOCHS
            entries = epochs.read_text().splitlines()[2:] if epochs.exists() else []  # lost by a power failure
            assert not any(entry.startswith("-") for entry in entries), f"broker {broker_id}, {name}: {entries}"
