"""What a batch must pass before it is appended: Kafka's checks in Kafka's order (LogValidator.java, UnifiedLog.append).

`inspect_now` reads only the batch and the topic's settings, so it can also run as a job; `admit` needs the log.
"""

from kafkalite import records
from kafkalite.cluster.append import Append
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import BatchError, Inspection
from kafkalite.storage.log import Log

ATTRIBUTES_AT = 22  # the low byte of the batch's attributes; bits 0-2 are the codec
CODEC_MASK = 0x07
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ZSTD = CODECS["zstd"]
LOG_APPEND_TIME = "LogAppendTime"
TIMESTAMP_MIN, TIMESTAMP_MAX = -(2**63), 2**63 - 1

# Compressed bytes that take about a millisecond to decompress and walk; larger batches leave the loop. Index: codec id.
JOB_BYTES = (2**31, 64 * 1024, 256 * 1024, 512 * 1024, 192 * 1024, 2**31, 2**31, 2**31)
REWRITE_JOB_BYTES = 32 * 1024  # compressing is several times slower
# What a smaller batch may decompress to on the loop, also about a millisecond: a few KiB can hold gigabytes.
LOOP_BYTES = 1024 * 1024
REWRITE_LOOP_BYTES = 128 * 1024


def worth_a_job(batch: memoryview, config: TopicConfig) -> bool:
    """Tell whether inspecting (and perhaps rewriting) this batch would hold the loop for more than a millisecond."""
    if len(batch) <= ATTRIBUTES_AT:
        return False
    codec = batch[ATTRIBUTES_AT] & CODEC_MASK
    if rewrites(codec, config):
        return len(batch) > REWRITE_JOB_BYTES
    return len(batch) > JOB_BYTES[codec]


def rewrites(codec: int, config: TopicConfig) -> bool:
    """Tell whether the topic wants another codec than the producer's."""
    return config.compression_type != "producer" and CODECS[config.compression_type] != codec


def inspect_on_loop(append: Append, config: TopicConfig, now_ms: int) -> Inspection | BatchError | None:
    """As `inspect_now`, or None when that would hold the loop: for a large batch, and for one that grows large."""
    if worth_a_job(append.batch, config):
        return None
    codec = append.batch[ATTRIBUTES_AT] & CODEC_MASK if len(append.batch) > ATTRIBUTES_AT else 0
    limit = REWRITE_LOOP_BYTES if rewrites(codec, config) else LOOP_BYTES
    found = inspect_now(append, config, now_ms, limit)
    too_large = isinstance(found, Inspection) and found.error == KafkaErrorCode.MESSAGE_TOO_LARGE
    return None if too_large and codec and len(append.batch) <= config.max_message_bytes else found


def inspect_now(append: Append, config: TopicConfig, now_ms: int, decompressed_max: int = 0) -> Inspection | BatchError:
    """Check the batch by itself, and patch or rewrite it as the topic's settings ask.

    Runs on the loop or as a job; in both cases nobody else touches `append` meanwhile. Answers a BatchError when the
    batch is good but cannot be stored as the topic wants it. `decompressed_max`: bytes, 0 = the usual bound.
    """
    inspection = inspect(append, config, now_ms, decompressed_max)
    if inspection.error:
        return inspection
    changed = False
    if rewrites(inspection.codec, config):
        try:
            append.batch = rewritten(append.batch, config)
        except BatchError as error:
            return error
        changed = True
    if config.message_timestamp_type == LOG_APPEND_TIME:
        append.log_append_time_ms = now_ms
        changed = records.set_log_append_time(append.batch, now_ms) or changed
    elif inspection.max_timestamp != inspection.header_max_timestamp:
        changed = records.set_max_timestamp(append.batch, inspection.max_timestamp) or changed
    if changed:
        inspection.refresh(append.batch)
    return inspection


def rewritten(batch: memoryview, config: TopicConfig) -> memoryview:
    """The batch in the topic's codec; raises BatchError, also when it comes out larger than the topic allows."""
    codec = CODECS[config.compression_type]
    size_max = config.max_message_bytes
    new = records.recompress(batch, codec, level_of(codec, config))
    if len(new) > size_max:
        text = f"the batch has {len(new)} bytes as {config.compression_type}, allowed are {size_max}"
        raise BatchError(KafkaErrorCode.MESSAGE_TOO_LARGE, text)
    return memoryview(bytearray(new))


def inspect(append: Append, config: TopicConfig, now_ms: int, decompressed_max: int = 0) -> Inspection:
    """All checks of a client's batch; timestamps are bounded only where they are the client's."""
    if config.message_timestamp_type == LOG_APPEND_TIME:
        timestamp_min, timestamp_max = TIMESTAMP_MIN, TIMESTAMP_MAX
    else:
        timestamp_min = max(TIMESTAMP_MIN, now_ms - config.message_timestamp_before_max_ms)
        timestamp_max = min(TIMESTAMP_MAX, now_ms + config.message_timestamp_after_max_ms)
    return records.inspect(
        append.batch,
        compacted="compact" in config.cleanup_policy,
        size_max=config.max_message_bytes,
        decompressed_max=decompressed_max,
        zstd_allowed=append.zstd_allowed,
        timestamp_min=timestamp_min,
        timestamp_max=timestamp_max,
    )


def level_of(codec: int, config: TopicConfig) -> int | None:
    """The topic's compression level for a codec; None where a codec has none."""
    levels = {
        CODECS["gzip"]: config.compression_gzip_level,
        CODECS["lz4"]: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)


def admit(append: Append, inspection: Inspection | BatchError, log: Log, leader_epoch: int) -> bool:
    """Put an inspected batch at the end of the log, or finish the append with what speaks against it.

    A batch that this producer sent before is answered with its first offset and not appended again (KIP-98).
    """
    if isinstance(inspection, BatchError):
        append.refuse(inspection.code, str(inspection))
        return False
    if inspection.error:
        append.record_errors = inspection.record_errors
        append.refuse(inspection.error, inspection.message)
        return False
    base_offset = log.append(append.batch, inspection, leader_epoch)
    if base_offset < 0:
        append.refuse(-base_offset)
        return False
    append.base_offset = base_offset
    append.end_offset = base_offset + inspection.last_offset_delta + 1
    return True
