"""Defines the keys of groups, offsets, transactions and share groups (GroupCoordinatorConfig and others).

Keys of share groups and streams groups have no effect: these are not served.
"""

from collections.abc import Callable, Iterator
from functools import partial

from kafkalite.config.keys import INT_MAX, Key, Support, Type

BOOLEAN, STRING, INT, LONG, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST
idle = partial(Key, support=Support.WITHOUT_EFFECT)

# Times of group types whose members only send heartbeats: name, default, smallest and largest value of a group, lower
# limit of those, noun and description.
TIMES = (
    ("session.timeout.ms", 45_000, 45_000, 60_000, 1, "session timeout",
     "Time without a heartbeat after which a member is removed from the group"),
    ("heartbeat.interval.ms", 5000, 5000, 15_000, 1, "heartbeat interval", "How often members send heartbeats"),
    ("assignment.interval.ms", 1000, 0, 15_000, 0, "assignment interval", "Minimum time between two assignments"),
)  # fmt: skip
GROUP_TYPES = ("consumer", "share", "streams")


def times(group_type: str, key: Callable[..., Key]) -> Iterator[Key]:
    """Yield the keys of `TIMES` for a group type."""
    for name, default, smallest, largest, low, noun, doc in TIMES:
        yield key(f"group.{group_type}.{name}", INT, default, f"{doc}, in ms.", low=low)
        yield key(f"group.{group_type}.min.{name}", INT, smallest, f"Minimum {noun} of a group, in ms.", low=low)
        yield key(f"group.{group_type}.max.{name}", INT, largest, f"Maximum {noun} of a group, in ms.", low=low)


CLASSIC = (
    Key("group.min.session.timeout.ms", INT, 6000, "Minimum session timeout of a classic group member, in ms."),
    Key("group.max.session.timeout.ms", INT, 1_800_000, "Maximum session timeout of a classic group member, in ms."),
    Key("group.initial.rebalance.delay.ms", INT, 3000,
        "How long the first rebalance of an empty group waits for more members, in ms."),
    Key("group.max.size", INT, INT_MAX, "Maximum number of members of a classic group.", low=1),
    Key("kafkalite.group.member.memory.max.bytes", LONG, 268_435_456,
        "Memory for members of classic groups and for pending member ids, in bytes; each counts as 1 KiB and its "
        "metadata.", low=1),
    Key("kafkalite.group.peer.timeout.ms", INT, 5000,
        "How long a request for groups waits for another broker of the cluster, in ms.", low=1),
)  # fmt: skip
CONSUMER = (
    Key("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"),
        "Rebalance protocols that are enabled.", allowed=("classic", "consumer", "streams", "share")),
    idle("group.coordinator.threads", INT, 4, "Number of group coordinator threads.", low=1),
    idle("group.coordinator.background.threads", INT, 2, "Number of background threads of the group coordinator.",
         low=1),
    idle("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588,
         "Maximum size of an append buffer that is kept for reuse, in bytes.", low=524_288),
    idle("group.coordinator.append.linger.ms", INT, -1,
         "How long the group coordinator collects writes into one append, in ms; -1: adaptive.", low=-1),
    *times("consumer", Key),
    Key("group.consumer.max.size", INT, INT_MAX, "Maximum number of members of a consumer group.", low=1),
    Key("group.consumer.assignors", LIST, ("uniform", "range"), "Server-side assignors; the first is the default.",
        allowed=("uniform", "range")),
    Key("group.consumer.migration.policy", STRING, "bidirectional",
        "Allowed conversions between classic and consumer groups.",
        allowed=("bidirectional", "upgrade", "downgrade", "disabled"), any_case=True),
    Key("group.consumer.regex.refresh.interval.ms", INT, 600_000,
        "How often regular expressions of subscriptions are evaluated again, in ms.", low=10_000),
)  # fmt: skip
SHARE = (
    idle("errors.deadletterqueue.auto.create.topics.enable", BOOLEAN, False,
         "Whether topics for undeliverable records of share groups are created automatically."),
    idle("errors.deadletterqueue.topic.name.prefix", STRING, "dlq.",
         "Prefix of the topics for undeliverable records of share groups."),
    idle("group.consumer.assignor.offload.enable", BOOLEAN, True,
         "Whether assignments of consumer groups are computed in another thread."),
    idle("group.share.assignor.offload.enable", BOOLEAN, True,
         "Whether assignments of share groups are computed in another thread."),
    idle("group.streams.assignor.offload.enable", BOOLEAN, True,
         "Whether assignments of streams groups are computed in another thread."),
    idle("group.share.assignors", LIST, ("simple",), "Assignors of share groups."),
    *times("share", idle),
    idle("group.share.initialize.retry.interval.ms", INT, 30_000,
         "Time after which a failed initialization of share group state is retried, in ms.", low=1),
    idle("group.share.max.size", INT, 200, "Maximum number of members of a share group.", low=1, high=1000),
    idle("group.share.delivery.count.limit", INT, 5, "Maximum number of delivery attempts of a record.", low=2,
         high=10),
    idle("group.share.min.delivery.count.limit", INT, 2, "Minimum delivery count limit of a group.", low=2, high=5),
    idle("group.share.max.delivery.count.limit", INT, 10, "Maximum delivery count limit of a group.", low=5, high=25),
    idle("group.share.record.lock.duration.ms", INT, 30_000, "How long an acquired record stays locked, in ms.",
         low=1000, high=3_600_000),
    idle("group.share.min.record.lock.duration.ms", INT, 15_000, "Minimum record lock duration of a group, in ms.",
         low=1000, high=30_000),
    idle("group.share.max.record.lock.duration.ms", INT, 60_000, "Maximum record lock duration of a group, in ms.",
         low=30_000, high=3_600_000),
    idle("group.share.partition.max.record.locks", INT, 2000, "Maximum number of locked records per share partition.",
         low=100, high=10_000),
    idle("group.share.min.partition.max.record.locks", INT, 100,
         "Minimum limit of locked records per share partition of a group.", low=100, high=2000),
    idle("group.share.max.partition.max.record.locks", INT, 4000,
         "Maximum limit of locked records per share partition of a group.", low=2000, high=10_000),
    idle("group.share.max.share.sessions", INT, 2000, "Maximum number of share sessions.", low=1),
    idle("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588,
         "Maximum size of an append buffer that is kept for reuse, in bytes.", low=524_288),
    idle("share.coordinator.state.topic.num.partitions", INT, 50, "Number of partitions of the share state topic.",
         low=1),
    idle("share.coordinator.state.topic.replication.factor", Type.SHORT, 3,
         "Replication factor of the share state topic; share groups are not served.", low=1),
    idle("share.coordinator.state.topic.min.isr", Type.SHORT, 2,
         "min.insync.replicas of the share state topic; share groups are not served.", low=1),
    idle("share.coordinator.state.topic.segment.bytes", INT, 104_857_600,
         "Maximum size of a segment of the share state topic, in bytes.", low=1),
)  # fmt: skip
STREAMS = (
    *times("streams", idle),
    idle("group.streams.max.size", INT, INT_MAX, "Maximum number of members of a streams group.", low=1),
    idle("group.streams.num.standby.replicas", INT, 0, "Number of standby replicas of each task.", low=0),
    idle("group.streams.max.standby.replicas", INT, 2,
         "Maximum number of standby replicas of each task that a group may set.", low=0),
    idle("group.streams.initial.rebalance.delay.ms", INT, 3000,
         "How long the first rebalance of an empty group waits for more members, in ms.", low=0),
)  # fmt: skip
# Stricter than Kafka, which starts with segments below 1 MiB or more than 10,000 partitions, too, and then refuses to
# make the topic whenever a client needs it (LogConfig.java, ReplicationControlManager.java).
OFFSETS = (
    Key("offsets.topic.num.partitions", INT, 50, "Number of partitions of the offsets topic.", low=1, high=10_000),
    Key("offsets.topic.replication.factor", Type.SHORT, 3, "Replication factor of the offsets topic.", low=1),
    Key("offsets.topic.segment.bytes", INT, 104_857_600, "Maximum size of a segment of the offsets topic, in bytes.",
        low=1_048_576),
    Key("offsets.topic.compression.codec", INT, 0,
        "Compression codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", low=0, high=4),
    Key("offsets.retention.minutes", INT, 10_080, "How long the offsets of an empty group are kept, in minutes.",
        low=1),
    Key("offsets.retention.check.interval.ms", LONG, 600_000, "How often expired offsets are removed, in ms.", low=1),
    Key("offsets.commit.timeout.ms", INT, 5000, "Timeout of an offset commit, in ms.", low=1),
    idle("offsets.commit.required.acks", Type.SHORT, -1,
         "Acknowledgements required before an offset commit is answered; here always those of the ISR."),
    Key("offsets.load.buffer.size", INT, 5_242_880, "Number of bytes read at once while the offsets topic is loaded.",
        low=1),
    Key("offset.metadata.max.bytes", INT, 4096, "Maximum size of the metadata string of a committed offset, in bytes."),
)  # fmt: skip
TRANSACTIONS = (
    Key("transactional.id.expiration.ms", INT, 604_800_000,
        "Time after which an idle transactional id expires, in ms.", low=1),
    Key("transaction.max.timeout.ms", INT, 900_000,
        "Maximum transaction timeout, in ms; a producer that requests more gets INVALID_TRANSACTION_TIMEOUT.", low=1),
    Key("transaction.state.log.num.partitions", INT, 50, "Number of partitions of the transaction topic.", low=1,
        high=10_000),
    Key("transaction.state.log.replication.factor", Type.SHORT, 3, "Replication factor of the transaction topic.",
        low=1),
    Key("transaction.state.log.min.isr", INT, 2, "min.insync.replicas of the transaction topic.", low=1),
    Key("transaction.state.log.segment.bytes", INT, 104_857_600,
        "Maximum size of a segment of the transaction topic, in bytes.", low=1_048_576),
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880,
        "Number of bytes read at once while the transaction topic is loaded.", low=1),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000,
        "When the abort of a timed-out transaction that found no new producer id is tried again, in ms. Timeouts are "
        "exact.", low=1),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000,
        "How often expired transactional ids are removed, in ms.", low=1),
    Key("transaction.partition.verification.enable", BOOLEAN, True,
        "Whether the broker verifies that a partition is part of the transaction."),
    Key("add.partitions.to.txn.retry.backoff.ms", INT, 20,
        "Pause between attempts to add a partition whose previous transaction is still being completed, in ms.", low=1),
    Key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100,
        "How long a batch waits until its partition can be added to the transaction, in ms.", low=0),
    Key("transaction.two.phase.commit.enable", BOOLEAN, False,
        "Whether transactions without a timeout (two-phase commit, KIP-939) are allowed.", support=Support.REFUSED),
)  # fmt: skip

GROUP_KEYS = (*CLASSIC, *CONSUMER, *SHARE, *STREAMS, *OFFSETS, *TRANSACTIONS)
