"""Validates batches before they are appended: Kafka's checks in Kafka's order (LogValidator.java, UnifiedLog.append).

`validate_now` uses only the batch and the rules of the topic, so it can also run as a job; `append_to_log` uses the
log.
"""

from typing import TYPE_CHECKING, Protocol

from kafkalite import records
from kafkalite._speedups.storage.log_core import UNVERIFIED_BATCH
from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import BatchError, ValidationResult
from kafkalite.records.batch_header import ATTRIBUTES_AT, CODEC_MASK, TRANSACTIONAL_BIT
from kafkalite.storage.log.log import Log

if TYPE_CHECKING:
    from kafkalite._speedups.storage.producer_state import Verification

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
# Bound on the decompressed size of a smaller batch on the loop, also about a millisecond, because a few KiB can contain
# gigabytes. A batch above it is validated again in a job, so usual batches must fit: 10,000 records of 100 B from
# librdkafka are 1.07 MB. gzip takes four times as long per byte. Index: codec id.
LOOP_BYTES = (0, 320 * 1024, *(5 * 256 * 1024,) * 6)
REWRITE_LOOP_BYTES = 128 * 1024
BATCHES_PER_ITERATION = 4.0  # of LOOP_BYTES each, about a millisecond


class LoopBudget:
    """The decompression that one loop iteration may still do: `left`, in batches of LOOP_BYTES.

    Without it, a request with 1,000 small batches that decompress to many bytes would block the loop for seconds.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BATCHES_PER_ITERATION

    def renew(self) -> None:
        """Begin the next loop iteration."""
        self.left = BATCHES_PER_ITERATION


class BatchRules:
    """The rules of a topic for its batches, computed once per change of its settings.

    Attributes:
        codec: id of the codec that batches are compressed with, or AS_SENT.
        level: compression level of that codec, None if it has none.
        compacted: whether every record needs a key.
        size_max: bound on the bytes of a batch.
        log_append_time: whether the broker sets the timestamps.
        before_ms, after_ms: how far the timestamp of a client may be from the current time.
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
        """Whether the topic uses another codec than the producer."""
        return self.codec not in (AS_SENT, codec)


def validate_on_loop(
    append: Append, rules: BatchRules, now_ms: int, budget: LoopBudget
) -> ValidationResult | BatchError | None:
    """Return the result of `validate_now`, or None if validation would block the loop for more than a millisecond.

    That is so for a large batch, for a batch that decompresses to many bytes, and for every compressed batch once the
    budget of the loop iteration is used up.

    Arguments:
        append: with the batch to validate.
        rules: of the topic.
        now_ms: the current time in ms since 1970.
        budget: of the loop iteration; reduced.
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
    """Validate a batch without the log, and patch or recompress it as the topic requires.

    Runs on the loop or as a job; `append` is not used elsewhere meanwhile. Returns a BatchError if the batch is valid,
    but cannot be recompressed.

    Arguments:
        append: with the batch to validate.
        rules: of the topic.
        now_ms: the current time in ms since 1970.
        decompressed_max: bound on the decompressed bytes, 0 for the usual bound.
    """
    bounded = not rules.log_append_time  # only timestamps of clients are bounded
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
    """The batch in the codec of the topic. Raises BatchError, also if it is then larger than the topic allows."""
    new = records.recompress(batch, rules.codec, rules.level)
    if len(new) > rules.size_max:
        text = f"the batch has {len(new)} bytes in the topic's codec, allowed are {rules.size_max}"
        raise BatchError(KafkaErrorCode.MESSAGE_TOO_LARGE, text)
    return memoryview(bytearray(new))


class Leadership(Protocol):
    """What an append needs of the leadership of its partition.

    Attributes:
        leader_epoch: of this broker's leadership.
    """

    leader_epoch: int

    @property
    def is_unconfirmed(self) -> bool:
        """Whether no follower has fetched in this leader epoch."""


def append_to_log(
    append: Append,
    validation: ValidationResult | BatchError | None,
    log: Log,
    leadership: Leadership,
    verification: "Verification | None" = None,
) -> bool | None:
    """Append a validated batch to the log, or reject it.

    Returns whether it was appended; None: it is neither appended nor rejected, because the coordinator must verify or
    add the partition first.

    A batch that its producer has sent before is not appended again; its first offset is the result (KIP-98). A sequence
    out of order is NOT_LEADER_OR_FOLLOWER before a follower has confirmed the leadership.

    Deviation: Kafka returns OUT_OF_ORDER_SEQUENCE_NUMBER in any case. A slow broker may learn that it was elected when
    another one leads already, and has acknowledged the batch before this one. librdkafka's producer ends with a fatal
    error then.

    Arguments:
        append: with the batch.
        validation: the result of `validate_now`; None for an `OwnAppend`.
        log: of the partition.
        leadership: of this broker.
        verification: of a transactional batch of a client, once the coordinator has confirmed it.
    """
    if isinstance(validation, BatchError):
        append.reject(validation.code, str(validation))
        return False
    if validation is None:
        assert isinstance(append, OwnAppend), "batches of clients are validated"
        base_offset = log.append(
            append.batch, None, leadership.leader_epoch, append.verification, append.marker_version
        )
    else:
        if validation.error:
            append.record_errors = validation.record_errors
            append.reject(validation.error, validation.message)
            return False
        if validation.attributes & TRANSACTIONAL_BIT and append.transaction is None:
            append.reject(KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return False
        base_offset = log.append(append.batch, validation, leadership.leader_epoch, verification)
    if base_offset < 0:
        if base_offset == UNVERIFIED_BATCH:
            return None
        is_gap = base_offset == -KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        unconfirmed = is_gap and leadership.is_unconfirmed
        append.reject(KafkaErrorCode.NOT_LEADER_OR_FOLLOWER if unconfirmed else -base_offset)
        return False
    append.base_offset = base_offset
    return True
