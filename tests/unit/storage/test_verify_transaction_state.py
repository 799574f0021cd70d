"""`log verify` names the offsets of records of `__transaction_state` that stop the loading of their partition."""

from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.protocol.stored.record_types import write
from kafkalite.protocol.stored.transaction_records import TransactionLogKey, TransactionLogValue
from kafkalite.records import Builder
from kafkalite.storage.verify.verify import Violation, verify_log
from kafkalite.storage.verify.verify_transaction_state import STATES_ARE_READABLE
from tests.kit import logs

PRODUCER = 1


def stored(status: int = 5) -> tuple[bytes, bytes]:
    """A record with this status."""
    value = TransactionLogValue(
        producer_id=PRODUCER,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=status,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
    )
    key, encoded = write(TransactionLogKey(transactional_id="me"), value)
    assert encoded is not None
    return key, encoded


KEY, VALUE = stored()
RECORDS: list[tuple[bytes | None, bytes | None]] = [
    (KEY, VALUE),
    (KEY, None),
    (KEY, b"\x00\x07" + VALUE[2:]),
    (b"\x7f\x00future", VALUE),
    (None, VALUE),
    (KEY, VALUE[:-3]),
    stored(status=6),
]
TEXTS = [
    "offset 2: unreadable record (",
    "offset 3: record of unknown type 32512",
    "offset 4: record without a key",
    "offset 5: unreadable record (",
    "offset 6: status 6 of 'me' is unknown",
    "offset 7: a batch of a transaction",
]


def verified(directory: Path, topic: str) -> list[Violation]:
    """Violations of a partition with a batch of RECORDS, and a batch of a transaction."""
    log = logs.new_log(Disk(), str(directory / f"{topic}-0"), topic, 0, TopicConfig())
    plain, transactional = Builder(), Builder()
    for record in RECORDS:
        plain.append(1, *record)
    transactional.append(1, KEY, VALUE)
    entry = log.begin_verification(PRODUCER, 0, 0, False)
    fields = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0}
    assert log.append(bytearray(plain.build(0)), None, 0) == 0
    batch = bytearray(transactional.build(0, transactional=True, **fields))
    assert log.append(batch, None, 0, verification=entry) == len(RECORDS)
    assert log.write() == 0
    log.close()
    return [each for each in verify_log(Disk(), log.directory) if each.number == STATES_ARE_READABLE]


def test_unreadable_states_are_named_by_their_offsets(tmp_path: Path) -> None:
    found = verified(tmp_path, "__transaction_state")
    assert len(found) == len(TEXTS)
    for violation, text in zip(found, TEXTS, strict=True):
        assert violation.text.startswith(text)
    assert [each.position for each in found[:-1]] == [0] * 5 and found[-1].position > 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "orders"])
def test_other_topics_have_records_of_any_form(tmp_path: Path, topic: str) -> None:
    assert verified(tmp_path, topic) == []


def test_a_partition_without_batches_has_no_unreadable_states(tmp_path: Path) -> None:
    log = logs.new_log(Disk(), str(tmp_path / f"{'__transaction_state'}-0"), "__transaction_state", 0, TopicConfig())
    log.close()
    assert verify_log(Disk(), log.directory) == []
