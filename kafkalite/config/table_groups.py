"""Keys of groups, offsets, transactions and share groups (GroupCoordinatorConfig and its like).

Those of transactions, of share groups and of streams groups have no effect: these are not served.
"""

from collections.abc import Callable, Iterator
from functools import partial

from kafkalite.config.keys import INT_MAX, Key, Standing, Type

BOOLEAN, STRING, INT, LONG, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST
idle = partial(Key, standing=Standing.WITHOUT_EFFECT)

# Of groups whose members talk to the broker by heartbeats alone: default, least and greatest of a group, their least.
TIMES = (
    ("session.timeout.ms", 45_000, 45_000, 60_000, 1, "A member's session"),
    ("heartbeat.interval.ms", 5000, 5000, 15_000, 1, "How often members report"),
    ("assignment.interval.ms", 1000, 0, 15_000, 0, "Time between two assignments"),
)
KINDS = ("consumer", "share", "streams")


def times(kind: str, key: Callable[..., Key]) -> Iterator[Key]:
    """The keys of `TIMES` for a kind of groups."""
    for what, default, least, most, low, doc in TIMES:
        yield key(f"group.{kind}.{what}", INT, default, f"{doc}.", low=low)
        yield key(f"group.{kind}.min.{what}", INT, least, f"{doc}: the least that a group may set.", low=low)
        yield key(f"group.{kind}.max.{what}", INT, most, f"{doc}: the greatest that a group may set.", low=low)


CLASSIC = (
    Key("group.min.session.timeout.ms", INT, 6000, "The shortest session a member may ask for."),
    Key("group.max.session.timeout.ms", INT, 1_800_000, "The longest session a member may ask for."),
    Key("group.initial.rebalance.delay.ms", INT, 3000, "How long an empty group waits for more members."),
    Key("group.max.size", INT, INT_MAX, "Members of a group.", low=1),
    Key("kafkalite.group.member.memory.max.bytes", LONG, 268_435_456,
        "Memory for all members of the classic protocol and the member ids given out: 1 KiB each and their metadata.",
        low=1),
)  # fmt: skip
CONSUMER = (
    Key("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"), "Protocols served.",
        allowed=("classic", "consumer", "streams", "share")),
    idle("group.coordinator.threads", INT, 4, "Threads of the coordinator.", low=1),
    idle("group.coordinator.background.threads", INT, 2, "Threads for what is not urgent.", low=1),
    idle("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, "Memory kept for appends.", low=524_288),
    idle("group.coordinator.append.linger.ms", INT, -1, "How long appends are gathered.", low=-1),
    *times("consumer", Key),
    Key("group.consumer.max.size", INT, INT_MAX, "Members of a group.", low=1),
    Key("group.consumer.assignors", LIST, ("uniform", "range"), "Assignors, the default first.",
        allowed=("uniform", "range")),
    Key("group.consumer.migration.policy", STRING, "bidirectional", "Which way groups may be converted.",
        allowed=("bidirectional", "upgrade", "downgrade", "disabled"), any_case=True),
    Key("group.consumer.regex.refresh.interval.ms", INT, 600_000, "How often patterns are looked at.", low=10_000),
)  # fmt: skip
SHARE = (
    idle("group.share.assignors", LIST, ("simple",), "Assignors of share groups."),
    *times("share", idle),
    idle("group.share.initialize.retry.interval.ms", INT, 30_000, "How often a lost beginning is tried anew.", low=1),
    idle("group.share.max.size", INT, 200, "Members of a share group.", low=1, high=1000),
    idle("group.share.delivery.count.limit", INT, 5, "How often a record is delivered.", low=2, high=10),
    idle("group.share.min.delivery.count.limit", INT, 2, "The least such limit of a group.", low=2, high=5),
    idle("group.share.max.delivery.count.limit", INT, 10, "The greatest such limit of a group.", low=5, high=25),
    idle("group.share.record.lock.duration.ms", INT, 30_000, "How long a delivery may take.", low=1000, high=3_600_000),
    idle("group.share.min.record.lock.duration.ms", INT, 15_000, "The shortest such time of a group.",
         low=1000, high=30_000),
    idle("group.share.max.record.lock.duration.ms", INT, 60_000, "The longest such time of a group.",
         low=30_000, high=3_600_000),
    idle("group.share.partition.max.record.locks", INT, 2000, "Deliveries open per partition.", low=100, high=10_000),
    idle("group.share.min.partition.max.record.locks", INT, 100, "The least such number of a group.",
         low=100, high=2000),
    idle("group.share.max.partition.max.record.locks", INT, 4000, "The greatest such number of a group.",
         low=2000, high=10_000),
    idle("group.share.max.share.sessions", INT, 2000, "Share sessions kept.", low=1),
    idle("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, "Memory kept for appends.", low=524_288),
    idle("share.coordinator.state.topic.num.partitions", INT, 50, "Partitions of the share state.", low=1),
    idle("share.coordinator.state.topic.replication.factor", Type.SHORT, 3, "Replicas of the share state.", low=1),
    idle("share.coordinator.state.topic.min.isr", Type.SHORT, 2, "In-sync replicas of the share state.", low=1),
    idle("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, "Segments of the share state.", low=1),
)  # fmt: skip
STREAMS = (
    *times("streams", idle),
    idle("group.streams.max.size", INT, INT_MAX, "Members of a streams group.", low=1),
    idle("group.streams.num.standby.replicas", INT, 0, "Standby tasks.", low=0),
    idle("group.streams.max.standby.replicas", INT, 2, "The most standby tasks of a group.", low=0),
    idle("group.streams.initial.rebalance.delay.ms", INT, 3000, "How long an empty group waits.", low=0),
)
# Stricter than Kafka, which starts with segments below 1 MiB or more than 10,000 partitions, too, and then refuses to
# make the topic whenever a client needs it (LogConfig.java, ReplicationControlManager.java).
OFFSETS = (
    Key("offsets.topic.num.partitions", INT, 50, "Partitions of the offsets topic.", low=1, high=10_000),
    Key("offsets.topic.replication.factor", Type.SHORT, 3, "Replicas of the offsets topic.", low=1),
    Key("offsets.topic.segment.bytes", INT, 104_857_600, "Segments of the offsets topic.", low=1_048_576),
    Key("offsets.topic.compression.codec", INT, 0, "Codec of the offsets topic.", low=0, high=4),
    Key("offsets.retention.minutes", INT, 10_080, "How long offsets of an empty group are kept.", low=1),
    Key("offsets.retention.check.interval.ms", LONG, 600_000, "How often that is looked at.", low=1),
    Key("offsets.commit.timeout.ms", INT, 5000, "How long a commit may take.", low=1),
    idle("offsets.commit.required.acks", Type.SHORT, -1, "Acknowledgements a commit waits for."),
    Key("offsets.load.buffer.size", INT, 5_242_880, "Bytes read at once while loading.", low=1),
    Key("offset.metadata.max.bytes", INT, 4096, "The longest text with an offset."),
)
TRANSACTIONS = (
    idle("transactional.id.expiration.ms", INT, 604_800_000, "After how long an idle id is forgotten.", low=1),
    idle("transaction.max.timeout.ms", INT, 900_000, "The longest transaction.", low=1),
    idle("transaction.state.log.num.partitions", INT, 50, "Partitions of the transaction topic.", low=1),
    idle("transaction.state.log.replication.factor", Type.SHORT, 3, "Replicas of the transaction topic.", low=1),
    idle("transaction.state.log.min.isr", INT, 2, "In-sync replicas of the transaction topic.", low=1),
    idle("transaction.state.log.segment.bytes", INT, 104_857_600, "Segments of the transaction topic.", low=1),
    idle("transaction.state.log.load.buffer.size", INT, 5_242_880, "Bytes read at once while loading.", low=1),
    idle("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, "How often late ones are sought.",
         low=1),
    idle("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, "How often idle ids are sought.",
         low=1),
    idle("transaction.partition.verification.enable", BOOLEAN, True, "Check that a partition is in the transaction."),
    idle("transaction.two.phase.commit.enable", BOOLEAN, False, "Allow transactions without a timeout."),
)  # fmt: skip

GROUP_KEYS = (*CLASSIC, *CONSUMER, *SHARE, *STREAMS, *OFFSETS, *TRANSACTIONS)
