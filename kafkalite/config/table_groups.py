"""Keys of groups, offsets, transactions and share groups (GroupCoordinatorConfig and its like).

Those of transactions, of share groups and of streams groups have no effect: these are not served.
"""

from functools import partial

from kafkalite.config.keys import INT_MAX, Key, Standing, Type

BOOLEAN, STRING, INT, LONG, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST
idle = partial(Key, standing=Standing.WITHOUT_EFFECT)

CLASSIC = (
    Key("group.min.session.timeout.ms", INT, 6000, "The shortest session a member may ask for."),
    Key("group.max.session.timeout.ms", INT, 1_800_000, "The longest session a member may ask for."),
    Key("group.initial.rebalance.delay.ms", INT, 3000, "How long an empty group waits for more members."),
    Key("group.max.size", INT, INT_MAX, "Members of a group.", low=1),
)
CONSUMER = (
    Key("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"), "Protocols served.",
        allowed=("classic", "consumer", "streams", "share")),
    idle("group.coordinator.threads", INT, 4, "Threads of the coordinator.", low=1),
    idle("group.coordinator.append.linger.ms", INT, -1, "How long appends are gathered.", low=-1),
    Key("group.consumer.session.timeout.ms", INT, 45_000, "A member's session.", low=1),
    Key("group.consumer.min.session.timeout.ms", INT, 45_000, "The shortest session of a group.", low=1),
    Key("group.consumer.max.session.timeout.ms", INT, 60_000, "The longest session of a group.", low=1),
    Key("group.consumer.heartbeat.interval.ms", INT, 5000, "How often members report.", low=1),
    Key("group.consumer.min.heartbeat.interval.ms", INT, 5000, "The shortest interval of a group.", low=1),
    Key("group.consumer.max.heartbeat.interval.ms", INT, 15_000, "The longest interval of a group.", low=1),
    Key("group.consumer.max.size", INT, INT_MAX, "Members of a group.", low=1),
    Key("group.consumer.assignors", LIST, ("uniform", "range"), "Assignors, the default first.",
        allowed=("uniform", "range")),
    Key("group.consumer.migration.policy", STRING, "bidirectional", "Which way groups may be converted.",
        allowed=("bidirectional", "upgrade", "downgrade", "disabled")),
    Key("group.consumer.assignment.interval.ms", INT, 1000, "Time between two assignments.", low=0),
    Key("group.consumer.regex.refresh.interval.ms", INT, 600_000, "How often patterns are looked at.", low=1),
)  # fmt: skip
SHARE_AND_STREAMS = (
    idle("group.share.session.timeout.ms", INT, 45_000, "A share member's session.", low=1),
    idle("group.share.heartbeat.interval.ms", INT, 5000, "How often share members report.", low=1),
    idle("group.share.max.size", INT, 200, "Members of a share group.", low=1),
    idle("group.share.delivery.count.limit", INT, 5, "How often a record is delivered.", low=2),
    idle("group.share.record.lock.duration.ms", INT, 30_000, "How long a delivery may take.", low=1000),
    idle("group.share.partition.max.record.locks", INT, 2000, "Deliveries open per partition.", low=100),
    idle("group.share.max.share.sessions", INT, 2000, "Share sessions kept.", low=1),
    idle("share.coordinator.state.topic.num.partitions", INT, 50, "Partitions of the share state.", low=1),
    idle("share.coordinator.state.topic.replication.factor", Type.SHORT, 3, "Replicas of the share state.", low=1),
    idle("share.coordinator.state.topic.min.isr", Type.SHORT, 2, "In-sync replicas of the share state.", low=1),
    idle("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, "Segments of the share state.", low=1),
    idle("group.streams.session.timeout.ms", INT, 45_000, "A streams member's session.", low=1),
    idle("group.streams.heartbeat.interval.ms", INT, 5000, "How often streams members report.", low=1),
    idle("group.streams.num.standby.replicas", INT, 0, "Standby tasks.", low=0),
    idle("group.streams.initial.rebalance.delay.ms", INT, 3000, "How long an empty group waits.", low=0),
)
OFFSETS = (
    Key("offsets.topic.num.partitions", INT, 50, "Partitions of the offsets topic.", low=1),
    Key("offsets.topic.replication.factor", Type.SHORT, 3, "Replicas of the offsets topic.", low=1),
    Key("offsets.topic.segment.bytes", INT, 104_857_600, "Segments of the offsets topic.", low=1),
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

GROUP_KEYS = (*CLASSIC, *CONSUMER, *SHARE_AND_STREAMS, *OFFSETS, *TRANSACTIONS)
