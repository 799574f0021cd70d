"""What a batch must pass before it is appended: Kafka's checks in Kafka's order (LogValidator.java, UnifiedLog.append).

`inspect_now` reads only the batch and the topic's settings, so it can also run as a job; `admit` needs the log.
"""

from kafkalite._speedups import records
from kafkalite._speedups.records import Inspection
from kafkalite.cluster.append import Append
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log import Log

ATTRIBUTES_AT = 22  # the low byte of the batch's attributes; bits 0-2 are the codec
CODEC_MASK = 0x07
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ZSTD = CODECS["zstd"]

# Compressed bytes that take about a millisecond to decompress and walk; larger batches leave the loop. Index: codec id.
JOB_BYTES = (2**31, 64 * 1024, 256 * 1024, 512 * 1024, 192 * 1024, 2**31, 2**31, 2**31)
REWRITE_JOB_BYTES = 32 * 1024  # compressing is several times slower


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


def inspect_now(append: Append, config: TopicConfig, now_ms: int) -> Inspection | None:
    """Check the batch by itself and patch what the topic's settings ask for; None when it was refused.

    Runs on the loop or as a job; in both cases nobody else touches `append` meanwhile.
    """
    inspection = records.inspect(
        append.batch, compacted="compact" in config.cleanup_policy, size_max=config.max_message_bytes
    )
    return inspection


def admit(append: Append, inspection: Inspection, log: Log, leader_epoch: int) -> bool:
    """Put an inspected batch at the end of the log, or finish the append with what speaks against it."""
    if inspection.error:
        append.record_errors = inspection.record_errors
        append.refuse(inspection.error, inspection.message)
        return False
    return True
