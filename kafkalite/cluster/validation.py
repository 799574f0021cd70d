"""What a batch must pass before it is appended: Kafka's checks in Kafka's order (LogValidator.java, UnifiedLog.append).

`validate_now` reads only the batch and the topic's rules, so it can also run as a job; `admit` needs the log.
"""

from kafkalite import records
from kafkalite.cluster.append import Append
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import BatchError, ValidationResult
from kafkalite.records.batch_header import ATTRIBUTES_AT, CODEC_MASK, TRANSACTIONAL_BIT
from kafkalite.storage.log.log import Log

CODEC_AT = ATTRIBUTES_AT + 1  # the low byte of the attributes
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NONE, GZIP, LZ4, ZSTD = CODECS["uncompressed"], CODECS["gzip"], CODECS["lz4"], CODECS["zstd"]
AS_SENT = -1  # compression.type=producer
LOG_APPEND_TIME = "LogAppendTime"
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
AGES_MS = 2**62  # an age above this is no bound: now plus or minus it is still a timestamp

# Compressed bytes that take about a millisecond to decompress and walk; larger batches leave the loop. Index: codec id.
JOB_BYTES = (2**31, 64 * 1024, 256 * 1024, 512 * 1024, 192 * 1024, 2**31, 2**31, 2**31)
REWRITE_JOB_BYTES = 32 * 1024  # compressing is several times slower
# What a smaller batch may decompress to on the loop, also about a millisecond: a few KiB can hold gigabytes. What comes
# out larger is done again as a job, so the usual must fit: librdkafka's 10,000 records of 100 B are 1.07 MB. gzip takes
# four times as long per byte. Index: codec id.
LOOP_BYTES = (0, 320 * 1024, *(5 * 256 * 1024,) * 6)
REWRITE_LOOP_BYTES = 128 * 1024
BATCHES_PER_ITERATION = 4.0  # of LOOP_BYTES each, about a millisecond


class LoopBudget:
    """How much decompression one loop iteration may still do: `left`, in batches of LOOP_BYTES.

    Without it one request with 1,000 small batches that grow large would hold the loop for seconds.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BATCHES_PER_ITERATION

    def renew(self) -> None:
        """A loop iteration has ended."""
        self.left = BATCHES_PER_ITERATION


class BatchRules:
    """What a topic's settings ask of a batch, worked out once per change instead of once per batch.

    `codec`: id that batches are rewritten to, or AS_SENT; `level`: of that codec, None where it has none;
    `before_ms`, `after_ms`: how far a client's timestamp may be from now.
    """

    __slots__ = ("after_ms", "before_ms", "codec", "compacted", "level", "log_append_time", "size_max")

    def __init__(self, config: TopicConfig) -> None:
        levels = {
            GZIP: config.compression_gzip_level,
            LZ4: config.compression_lz4_level,
            ZSTD: config.compression_zstd_level,
        }
        self.codec = CODECS.get(config.compression_type, AS_SENT)
        self.level = levels.get(self.codec)
        self.compacted = config.compacted
        self.size_max = config.max_message_bytes
        self.log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        self.before_ms = min(config.message_timestamp_before_max_ms, AGES_MS)
        self.after_ms = min(config.message_timestamp_after_max_ms, AGES_MS)

    def rewrites(self, codec: int) -> bool:
        """Tell whether the topic wants another codec than the producer's."""
        return self.codec not in (AS_SENT, codec)


def validate_on_loop(
    append: Append, rules: BatchRules, now_ms: int, budget: LoopBudget
) -> ValidationResult | BatchError | None:
    """As `validate_now`, or None when that would hold the loop for more than a millisecond: for a large batch, for one
    that grows large, and for all compressed ones once the iteration's budget is used up.
    """
    batch = append.batch
    codec = batch[CODEC_AT] & CODEC_MASK if len(batch) > CODEC_AT else NONE
    if codec == NONE and rules.codec <= NONE:
        return validate_now(append, rules, now_ms)  # nothing to compress or decompress
    rewrites = rules.rewrites(codec)
    if budget.left <= 0 or len(batch) > (REWRITE_JOB_BYTES if rewrites else JOB_BYTES[codec]):
        return None
    bound = REWRITE_LOOP_BYTES if rewrites else LOOP_BYTES[codec]
    found = validate_now(append, rules, now_ms, bound)
    if not isinstance(found, ValidationResult):
        budget.left -= 1
        return found
    too_large = found.error == KafkaErrorCode.MESSAGE_TOO_LARGE and codec and len(batch) <= rules.size_max
    budget.left -= 1 if too_large else max(found.decompressed_bytes, len(batch)) / bound
    return None if too_large else found


def validate_now(
    append: Append, rules: BatchRules, now_ms: int, decompressed_max: int = 0
) -> ValidationResult | BatchError:
    """Check the batch by itself, and patch or rewrite it as the topic's settings ask.

    Runs on the loop or as a job; in both cases nobody else touches `append` meanwhile. Answers a BatchError when the
    batch is good but cannot be stored as the topic wants it. `decompressed_max`: bytes, 0 = the usual bound.
    """
    bounded = not rules.log_append_time  # timestamps are bounded only where they are the client's
    validation = records.validate_batch(
        append.batch,
        compacted=rules.compacted,
        size_max=rules.size_max,
        decompressed_max=decompressed_max,
        zstd_allowed=append.zstd_allowed,
        timestamp_min=now_ms - rules.before_ms if bounded else INT64_MIN,
        timestamp_max=now_ms + rules.after_ms if bounded else INT64_MAX,
    )
    if validation.error:
        return validation
    changed = False
    if rules.rewrites(validation.codec):
        try:
            append.batch = rewritten(append.batch, rules)
        except BatchError as error:
            return error
        changed = True
    if rules.log_append_time:
        append.log_append_time_ms = now_ms
        changed = records.set_log_append_time(append.batch, now_ms) or changed
    elif validation.max_timestamp != validation.header_max_timestamp:
        changed = records.set_max_timestamp(append.batch, validation.max_timestamp) or changed
    if changed:
        validation.refresh(append.batch)
    return validation


def rewritten(batch: memoryview, rules: BatchRules) -> memoryview:
    """The batch in the topic's codec; raises BatchError, also when it comes out larger than the topic allows."""
    new = records.recompress(batch, rules.codec, rules.level)
    if len(new) > rules.size_max:
        text = f"the batch has {len(new)} bytes in the topic's codec, allowed are {rules.size_max}"
        raise BatchError(KafkaErrorCode.MESSAGE_TOO_LARGE, text)
    return memoryview(bytearray(new))


def append_validated(
    append: Append, validation: ValidationResult | BatchError | None, log: Log, leader_epoch: int
) -> bool:
    """Put a validated batch at the end of the log, or finish the append with what speaks against it.

    Without an validation it is one that the broker made itself.
    A batch that this producer sent before is answered with its first offset and not appended again (KIP-98).
    """
    if isinstance(validation, BatchError):
        append.reject(validation.code, str(validation))
        return False
    if validation is not None:
        if validation.error:
            append.record_errors = validation.record_errors
            append.reject(validation.error, validation.message)
            return False
        if validation.attributes & TRANSACTIONAL_BIT and not append.transactional:
            append.reject(KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return False
    base_offset = log.append(append.batch, validation, leader_epoch)
    if base_offset < 0:
        append.reject(-base_offset)
        return False
    append.base_offset = base_offset
    return True
