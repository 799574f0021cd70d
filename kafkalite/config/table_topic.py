"""A topic's keys, and the broker's keys that give them their defaults (Kafka's LogConfig.java and synonyms)."""

from kafkalite.config.keys import INT_MAX, LONG_MAX, Key, Standing, Synonym, Type

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    Type.BOOLEAN,
    Type.STRING,
    Type.INT,
    Type.LONG,
    Type.DOUBLE,
    Type.LIST,
)
IDLE, REFUSED = Standing.WITHOUT_EFFECT, Standing.REFUSED
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SEGMENT_BYTES_MIN = 1024 * 1024


def synonyms(name: str) -> tuple[Synonym, ...]:
    """One broker's key of the same unit."""
    return (Synonym(name),)


TOPIC_KEYS = (
    Key("cleanup.policy", LIST, ("delete",), "Remove old segments, keep each key's last value, both, or (empty) none.",
        allowed=("compact", "delete"), synonyms=synonyms("log.cleanup.policy")),
    Key("compression.gzip.level", INT, -1, "Level of gzip when this broker compresses; -1: zlib's default.", low=-1,
        high=9, synonyms=synonyms("compression.gzip.level")),
    Key("compression.lz4.level", INT, 9, "Level of lz4 when this broker compresses.", low=1, high=17,
        synonyms=synonyms("compression.lz4.level")),
    Key("compression.type", STRING, "producer", "The codec in which batches are stored; producer keeps the sender's.",
        allowed=CODECS, synonyms=synonyms("compression.type")),
    Key("compression.zstd.level", INT, 3, "Level of zstd when this broker compresses.", low=-131072, high=22,
        synonyms=synonyms("compression.zstd.level")),
    Key("delete.retention.ms", LONG, 86_400_000, "How long tombstones stay in a compacted topic.", low=0,
        synonyms=synonyms("log.cleaner.delete.retention.ms")),
    Key("file.delete.delay.ms", LONG, 60_000, "How long a deleted segment's files stay on the disk.", low=0,
        synonyms=synonyms("log.segment.delete.delay.ms")),
    Key("flush.messages", LONG, LONG_MAX, "After how many records the log is synced to the disk.", low=1,
        synonyms=synonyms("log.flush.interval.messages")),
    Key("flush.ms", LONG, LONG_MAX, "After how long the log is synced.", low=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms"))),
    Key("follower.replication.throttled.replicas", LIST, (), "Replicas whose fetching is throttled.", standing=IDLE),
    Key("index.interval.bytes", INT, 4096, "After how many bytes of records the indexes get an entry.", low=0,
        synonyms=synonyms("log.index.interval.bytes")),
    Key("leader.replication.throttled.replicas", LIST, (), "Replicas whose serving is throttled.", standing=IDLE),
    Key("local.retention.bytes", LONG, -2, "Local part of a topic in remote storage.", low=-2, standing=IDLE,
        synonyms=synonyms("log.local.retention.bytes")),
    Key("local.retention.ms", LONG, -2, "Local part of a topic in remote storage.", low=-2, standing=IDLE,
        synonyms=synonyms("log.local.retention.ms")),
    Key("max.compaction.lag.ms", LONG, LONG_MAX, "How long a record may stay uncompacted.", low=1,
        synonyms=synonyms("log.cleaner.max.compaction.lag.ms")),
    Key("max.message.bytes", INT, 1_048_588, "The largest batch taken, as it comes (compressed).", low=0,
        synonyms=synonyms("message.max.bytes")),
    Key("message.timestamp.after.max.ms", LONG, 3_600_000, "How far ahead of this broker's clock a record may be.",
        low=0, synonyms=synonyms("log.message.timestamp.after.max.ms")),
    Key("message.timestamp.before.max.ms", LONG, LONG_MAX, "How far behind this broker's clock a record may be.",
        low=0, synonyms=synonyms("log.message.timestamp.before.max.ms")),
    Key("message.timestamp.type", STRING, "CreateTime", "Whose clock stamps records: the producer's or the broker's.",
        allowed=("CreateTime", "LogAppendTime"), synonyms=synonyms("log.message.timestamp.type")),
    Key("min.cleanable.dirty.ratio", DOUBLE, 0.5, "How much of a log must be dirty before it is compacted.", low=0,
        high=1, synonyms=synonyms("log.cleaner.min.cleanable.ratio")),
    Key("min.compaction.lag.ms", LONG, 0, "How long a record stays uncompacted at least.", low=0,
        synonyms=synonyms("log.cleaner.min.compaction.lag.ms")),
    Key("min.insync.replicas", INT, 1, "How many replicas must have a batch before acks=all is answered.", low=1,
        synonyms=synonyms("min.insync.replicas")),
    Key("preallocate", BOOLEAN, False, "Reserve the bytes of a new segment on the disk.", standing=IDLE,
        synonyms=synonyms("log.preallocate")),
    Key("remote.copy.disable", BOOLEAN, False, "Copy no more to remote storage.", standing=IDLE),
    Key("remote.log.delete.on.disable", BOOLEAN, False, "Delete the remote part when it is disabled.", standing=IDLE),
    Key("remote.storage.enable", BOOLEAN, False, "Keep old segments in remote storage.", standing=REFUSED),
    Key("retention.bytes", LONG, -1, "How large a partition may grow before its oldest segments go; -1 is no limit.",
        synonyms=synonyms("log.retention.bytes")),
    Key("retention.ms", LONG, 604_800_000, "How old a segment may be before it goes; -1 is no limit.", low=-1,
        synonyms=(Synonym("log.retention.ms"), Synonym("log.retention.minutes", MINUTE_MS),
                  Synonym("log.retention.hours", HOUR_MS))),
    Key("segment.bytes", INT, 1_073_741_824, "How large a segment may be.", low=SEGMENT_BYTES_MIN,
        synonyms=synonyms("log.segment.bytes")),
    Key("segment.index.bytes", INT, 10_485_760, "How large the indexes of a segment may be.", low=4,
        synonyms=synonyms("log.index.size.max.bytes")),
    Key("segment.jitter.ms", LONG, 0, "The most that is taken at random off segment.ms, so that not all roll at once.",
        low=0, synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS))),
    Key("segment.ms", LONG, 604_800_000, "After how long a new segment is begun.", low=1,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS))),
    Key("unclean.leader.election.enable", BOOLEAN, False, "Let a replica lead that may miss acknowledged records.",
        standing=IDLE, synonyms=synonyms("unclean.leader.election.enable")),
)  # fmt: skip

# Broker's keys whose default, limits or unit differ from those of the topic's key (or of which there are several).
SPECIAL_DEFAULT_KEYS = (
    Key("log.flush.interval.ms", LONG, None, "After how long logs are synced; unset: log.flush.scheduler.interval.ms."),
    Key("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often is looked for logs that must be synced."),
    Key("log.retention.ms", LONG, None, "How old a segment may be; unset: log.retention.minutes.", low=-1),
    Key("log.retention.minutes", INT, None, "How old a segment may be; unset: log.retention.hours.", low=-1),
    Key("log.retention.hours", INT, 168, "How old a segment may be; -1 is no limit.", low=-1),
    Key("log.roll.ms", LONG, None, "After how long a new segment is begun; unset: log.roll.hours.", low=1),
    Key("log.roll.hours", INT, 168, "After how long a new segment is begun.", low=1),
    Key("log.roll.jitter.ms", LONG, None, "The most taken off log.roll.ms; unset: log.roll.jitter.hours.", low=0),
    Key("log.roll.jitter.hours", INT, 0, "The most taken off log.roll.hours.", low=0),
    Key("log.local.retention.ms", LONG, -2, "Local part of topics in remote storage.", low=-2, standing=IDLE),
    Key("log.local.retention.bytes", LONG, -2, "Local part of topics in remote storage.", low=-2, standing=IDLE),
)  # fmt: skip


def default_keys() -> tuple[Key, ...]:
    """The broker's keys that stand behind the topics' keys."""
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
            standing=key.standing,
        )
        for key in TOPIC_KEYS
        if key.synonyms and key.synonyms[0].name not in special
    )
    return (*mirrored, *SPECIAL_DEFAULT_KEYS)
