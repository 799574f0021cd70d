"""Defines the keys of topics, and the broker keys that are their defaults (Kafka's LogConfig.java and synonyms)."""

from kafkalite.config.keys import INT_MAX, LONG_MAX, Key, Support, Synonym, Type

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    Type.BOOLEAN,
    Type.STRING,
    Type.INT,
    Type.LONG,
    Type.DOUBLE,
    Type.LIST,
)
IDLE, REFUSED = Support.WITHOUT_EFFECT, Support.REFUSED
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SEGMENT_BYTES_MIN = 1024 * 1024
JAVA_ARRAY_MAX = 2**31 - 9  # the largest array of bytes in Java


def synonyms(name: str) -> tuple[Synonym, ...]:
    """Return one broker key of the same unit."""
    return (Synonym(name),)


TOPIC_KEYS = (
    Key("cleanup.policy", LIST, ("delete",),
        "What happens to old segments: delete, compact (keep the last value of each key), both, or none (empty).",
        allowed=("compact", "delete"), synonyms=synonyms("log.cleanup.policy")),
    Key("compression.gzip.level", INT, -1, "Compression level for gzip, if the broker compresses; -1: zlib's default.",
        low=-1, high=9, synonyms=synonyms("compression.gzip.level")),
    Key("compression.lz4.level", INT, 9, "Compression level for lz4, if the broker compresses.", low=1, high=17,
        synonyms=synonyms("compression.lz4.level")),
    Key("compression.type", STRING, "producer",
        "Compression type of stored batches; producer: as the producer sends them.", allowed=CODECS,
        synonyms=synonyms("compression.type")),
    Key("compression.zstd.level", INT, 3, "Compression level for zstd, if the broker compresses.", low=-131072, high=22,
        synonyms=synonyms("compression.zstd.level")),
    Key("delete.retention.ms", LONG, 86_400_000, "How long tombstones are kept in a compacted topic, in ms.", low=0,
        synonyms=synonyms("log.cleaner.delete.retention.ms")),
    Key("file.delete.delay.ms", LONG, 60_000, "Delay before the files of a deleted segment are removed, in ms.", low=0,
        synonyms=synonyms("log.segment.delete.delay.ms")),
    Key("flush.messages", LONG, LONG_MAX, "Number of records after which the log is flushed (fsync).", low=1,
        synonyms=synonyms("log.flush.interval.messages")),
    Key("flush.ms", LONG, LONG_MAX, "Time after which the log is flushed (fsync), in ms.", low=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms"))),
    Key("errors.deadletterqueue.group.enable", BOOLEAN, False,
        "Whether share groups may write undeliverable records to the topic.", support=IDLE),
    Key("follower.replication.throttled.replicas", LIST, (),
        "Replicas that are throttled when their follower fetches, PARTITION:BROKER,... or *; see "
        "follower.replication.throttled.rate."),
    Key("index.interval.bytes", INT, 4096, "Number of bytes between two entries of the offset index.", low=0,
        synonyms=synonyms("log.index.interval.bytes")),
    Key("kafkalite.retention.policy", STRING, "",
        "Entry point of the group kafkalite.retention_policies that deletes more segments than retention.ms and "
        "retention.bytes do; empty: none."),
    Key("leader.replication.throttled.replicas", LIST, (),
        "Replicas that are throttled when their leader sends, PARTITION:BROKER,... or *; see "
        "leader.replication.throttled.rate."),
    Key("local.retention.bytes", LONG, -2,
        "Size of the part of a partition that is kept locally with remote storage, in bytes.", low=-2, support=IDLE,
        synonyms=synonyms("log.local.retention.bytes")),
    Key("local.retention.ms", LONG, -2, "How long segments are kept locally with remote storage, in ms.", low=-2,
        support=IDLE, synonyms=synonyms("log.local.retention.ms")),
    Key("max.compaction.lag.ms", LONG, LONG_MAX, "Maximum time a record remains uncompacted, in ms.", low=1,
        synonyms=synonyms("log.cleaner.max.compaction.lag.ms")),
    Key("max.message.bytes", INT, 1_048_588, "Maximum size of a record batch, in bytes (after compression).", low=0,
        synonyms=synonyms("message.max.bytes")),
    Key("max.decompressed.message.bytes", INT, JAVA_ARRAY_MAX,
        "Maximum decompressed size of a record, in bytes.", low=1, high=JAVA_ARRAY_MAX, support=IDLE,
        synonyms=synonyms("max.decompressed.message.bytes")),
    Key("message.timestamp.after.max.ms", LONG, 3_600_000,
        "How far a record's timestamp may be ahead of the broker's clock, in ms.", low=0,
        synonyms=synonyms("log.message.timestamp.after.max.ms")),
    Key("message.timestamp.before.max.ms", LONG, LONG_MAX,
        "How far a record's timestamp may be behind the broker's clock, in ms.", low=0,
        synonyms=synonyms("log.message.timestamp.before.max.ms")),
    Key("message.timestamp.type", STRING, "CreateTime",
        "Timestamp of records: set by the producer (CreateTime) or by the broker (LogAppendTime).",
        allowed=("CreateTime", "LogAppendTime"), synonyms=synonyms("log.message.timestamp.type")),
    Key("min.cleanable.dirty.ratio", DOUBLE, 0.5, "Ratio of dirty to total bytes from which a log is compacted.", low=0,
        high=1, synonyms=synonyms("log.cleaner.min.cleanable.ratio")),
    Key("min.compaction.lag.ms", LONG, 0, "Minimum time a record remains uncompacted, in ms.", low=0,
        synonyms=synonyms("log.cleaner.min.compaction.lag.ms")),
    Key("min.insync.replicas", INT, 1,
        "Minimum number of in-sync replicas that must have a batch before acks=all is acknowledged.", low=1,
        synonyms=synonyms("min.insync.replicas")),
    Key("preallocate", BOOLEAN, False, "Whether disk space is allocated when a segment is created.", support=IDLE,
        synonyms=synonyms("log.preallocate")),
    Key("remote.log.copy.disable", BOOLEAN, False, "Whether copying to remote storage is disabled.", support=IDLE),
    Key("remote.copy.lag.bytes", LONG, -1,
        "Size of the later records from which a segment is copied to remote storage, in bytes.", low=-1, support=IDLE,
        synonyms=synonyms("log.remote.copy.lag.bytes")),
    Key("remote.copy.lag.ms", LONG, 0, "Age from which a segment is copied to remote storage, in ms.", low=-1,
        support=IDLE, synonyms=synonyms("log.remote.copy.lag.ms")),
    Key("remote.log.delete.on.disable", BOOLEAN, False,
        "Whether remote segments are deleted when remote storage is disabled.", support=IDLE),
    Key("remote.storage.enable", BOOLEAN, False, "Whether old segments are kept in remote storage.", support=REFUSED),
    Key("retention.bytes", LONG, -1,
        "Maximum size of a partition before its oldest segments are deleted, in bytes; -1: no limit.",
        synonyms=synonyms("log.retention.bytes")),
    Key("retention.ms", LONG, 604_800_000, "How long a segment is kept, in ms; -1: no limit.", low=-1,
        synonyms=(Synonym("log.retention.ms"), Synonym("log.retention.minutes", MINUTE_MS),
                  Synonym("log.retention.hours", HOUR_MS))),
    Key("segment.bytes", INT, 1_073_741_824, "Maximum size of a segment, in bytes.", low=SEGMENT_BYTES_MIN,
        synonyms=synonyms("log.segment.bytes")),
    Key("segment.index.bytes", INT, 10_485_760, "Maximum size of each index of a segment, in bytes.", low=4,
        synonyms=synonyms("log.index.size.max.bytes")),
    Key("segment.jitter.ms", LONG, 0,
        "Maximum random time subtracted from segment.ms, in ms; spreads the rolling of segments.", low=0,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS))),
    Key("segment.ms", LONG, 604_800_000, "Time after which a new segment is rolled, in ms.", low=1,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS))),
    Key("unclean.leader.election.enable", BOOLEAN, False,
        "Whether a replica outside the ISR becomes the leader if no other can: acknowledged records may be lost.",
        synonyms=synonyms("unclean.leader.election.enable")),
)  # fmt: skip

# Keys of Kafka 3.9 that Kafka 4 has not, and one that earlier versions of kafkalite had by mistake: accepted without
# effect, and described only where a topic has them.
FORMER_TOPIC_KEYS = (
    Key("message.downconversion.enable", BOOLEAN, True,
        "Whether old consumers get batches converted to their format.", support=IDLE),
    Key("message.format.version", STRING, None, "Format of stored batches, as a version of Kafka.", support=IDLE),
    Key("message.timestamp.difference.max.ms", LONG, LONG_MAX,
        "How far a record's timestamp may differ from the broker's clock, in ms.", low=0, support=IDLE),
    Key("remote.copy.disable", BOOLEAN, False, "Another name of remote.log.copy.disable.", support=IDLE),
)  # fmt: skip

# Broker's keys whose default, limits or unit differ from those of the topic's key (or of which there are several).
SPECIAL_DEFAULT_KEYS = (
    Key("log.flush.interval.ms", LONG, None,
        "Time after which a log is flushed (fsync), in ms; unset: log.flush.scheduler.interval.ms."),
    Key("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often logs are checked for a due flush, in ms."),
    Key("log.retention.ms", LONG, None,
        "How long a segment is kept, in ms; -1: no limit; unset: log.retention.minutes.", low=-1),
    Key("log.retention.minutes", INT, None,
        "How long a segment is kept, in minutes; -1: no limit; unset: log.retention.hours.", low=-1),
    Key("log.retention.hours", INT, 168, "How long a segment is kept, in hours; -1: no limit.", low=-1),
    Key("log.roll.ms", LONG, None, "Time after which a new segment is rolled, in ms; unset: log.roll.hours.", low=1),
    Key("log.roll.hours", INT, 168, "Time after which a new segment is rolled, in hours.", low=1),
    Key("log.roll.jitter.ms", LONG, None,
        "Maximum random time subtracted from log.roll.ms, in ms; unset: log.roll.jitter.hours.", low=0),
    Key("log.roll.jitter.hours", INT, 0, "Maximum random time subtracted from log.roll.hours, in hours.", low=0),
    Key("log.local.retention.ms", LONG, -2, "How long segments are kept locally with remote storage, in ms.", low=-2,
        support=IDLE),
    Key("log.local.retention.bytes", LONG, -2,
        "Size of the part of a partition that is kept locally with remote storage, in bytes.", low=-2, support=IDLE),
)  # fmt: skip


def default_keys() -> tuple[Key, ...]:
    """Return the broker keys that are defaults of topic keys."""
    special = {key.name: key for key in SPECIAL_DEFAULT_KEYS}
    mirrored = (
        Key(
            key.synonyms[0].name,
            key.type,
            key.default,
            key.doc,
            low=key.low,
            high=min(key.high, INT_MAX) if key.type is INT else key.high,
            allowed=key.allowed,
            support=key.support,
        )
        for key in TOPIC_KEYS
        if key.synonyms and key.synonyms[0].name not in special
    )
    return (*mirrored, *SPECIAL_DEFAULT_KEYS)
