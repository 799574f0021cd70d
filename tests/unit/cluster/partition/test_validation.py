"""Which batches are inspected on the loop, and which would hold it."""

import dataclasses
import random

import pytest

from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.validation import (
    BATCHES_PER_ITERATION,
    LOOP_BYTES,
    REWRITE_LOOP_BYTES,
    BatchRules,
    LoopBudget,
    validate_now,
    validate_on_loop,
)
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import ValidationResult, compression
from tests.kit.record_engines import build, with_fields

CONFIG: TopicConfig = BrokerConfig({}).topic_defaults
NOW_MS = 1_700_000_000_000
COMPRESSED = (compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)


def appended(batch: bytes) -> Append:
    return Append(memoryview(bytearray(batch)), 1, lambda _: None)


def zeros(size: int, codec: int) -> bytes:
    return build(*((NOW_MS, None, bytes(1000)) for _ in range(size // 1000)), codec=codec)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_small_batch_that_decompresses_to_many_bytes_is_validated_in_a_job(codec: int) -> None:
    """It would hold the loop; as a job it is found good."""
    append = appended(zeros(2 * LOOP_BYTES[codec], codec))
    assert validate_on_loop(append, BatchRules(CONFIG), NOW_MS, LoopBudget()) is None
    found = validate_now(append, BatchRules(CONFIG), NOW_MS)
    assert isinstance(found, ValidationResult) and found.error == 0


@pytest.mark.parametrize("codec", COMPRESSED)
def test_small_batch_is_validated_on_the_loop(codec: int) -> None:
    found = validate_on_loop(appended(zeros(LOOP_BYTES[codec] // 8, codec)), BatchRules(CONFIG), NOW_MS, LoopBudget())
    assert isinstance(found, ValidationResult) and found.error == 0


def test_batch_to_recompress_is_validated_in_a_job_from_a_smaller_size() -> None:
    config = dataclasses.replace(CONFIG, compression_type="gzip")
    assert (
        validate_on_loop(
            appended(zeros(2 * REWRITE_LOOP_BYTES, compression.ZSTD)), BatchRules(config), NOW_MS, LoopBudget()
        )
        is None
    )


@pytest.mark.parametrize("codec", [compression.NONE, *COMPRESSED])
def test_a_batch_that_is_itself_too_large_is_refused_at_once(codec: int) -> None:
    config = dataclasses.replace(CONFIG, max_message_bytes=500)
    batch = build((NOW_MS, None, random.Random(1).randbytes(2000)), codec=codec)
    found = validate_on_loop(appended(batch), BatchRules(config), NOW_MS, LoopBudget())
    assert isinstance(found, ValidationResult) and found.error == KafkaErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("size", [0, 1, 22, 23, 60])
def test_truncated_header_is_rejected_at_once(size: int) -> None:
    found = validate_on_loop(appended(zeros(1000, compression.NONE)[:size]), BatchRules(CONFIG), NOW_MS, LoopBudget())
    assert isinstance(found, ValidationResult) and found.error == KafkaErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_rejected_at_once(codec: int) -> None:
    found = validate_on_loop(
        appended(with_fields(zeros(1000, compression.NONE), attributes=codec)), BatchRules(CONFIG), NOW_MS, LoopBudget()
    )
    assert isinstance(found, ValidationResult) and found.error


@pytest.mark.parametrize("codec", COMPRESSED)
def test_batches_are_validated_in_jobs_once_the_loop_budget_is_used_up(codec: int) -> None:
    budget, rules = LoopBudget(), BatchRules(CONFIG)
    half = zeros(LOOP_BYTES[codec] // 2, codec)
    found = [validate_on_loop(appended(half), rules, NOW_MS, budget) for _ in range(20)]
    on_loop = sum(each is not None for each in found)
    assert BATCHES_PER_ITERATION * 2 <= on_loop <= BATCHES_PER_ITERATION * 2 + 1 and None not in found[:on_loop]
    assert validate_on_loop(appended(zeros(1000, compression.NONE)), rules, NOW_MS, budget) is not None
    budget.renew()
    assert validate_on_loop(appended(half), rules, NOW_MS, budget) is not None


@pytest.mark.parametrize("codec", COMPRESSED)
def test_batches_that_grow_large_use_the_budget_up(codec: int) -> None:
    budget = LoopBudget()
    bomb = zeros(2 * LOOP_BYTES[codec], codec)
    for _ in range(int(BATCHES_PER_ITERATION)):
        assert budget.left > 0
        assert validate_on_loop(appended(bomb), BatchRules(CONFIG), NOW_MS, budget) is None
    assert budget.left <= 0
