"""Positions and masks of the v2 record batch header.

Cython has the same constants in `_speedups/wire/wire.pxd`; a test compares the two. Magic is at the same position in
every version, and so are the masks of the codec and the timestamp type. Source: DefaultRecordBatch.java.
"""

BATCH_LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
HEADER_SIZE = 61
HEADER_SIZE_TO_MAGIC = 17
LENGTH_OVERHEAD = 12  # bytes that the batch length does not count: base offset and itself
LEGACY_OVERHEAD = 14  # smallest length of magic 0

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
