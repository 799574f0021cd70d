"""`.txnindex`: written, read, cut, searched as Kafka searches it, and refused when it is garbage."""

import errno
import os
import random
from pathlib import Path

import pytest

from kafkalite.storage.log.transaction_index import AbortedTransaction, BadTransactionIndex, TransactionIndex, pack
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.seeds import chosen_seed

SEED = chosen_seed()
ENTRIES = [
    AbortedTransaction(7, 10, 20, 12),
    AbortedTransaction(8, 12, 30, 31),
    AbortedTransaction(7, 40, 41, 42),
]


def index(directory: Path, disk: FaultyDisk | None = None, *, present: bool = False) -> TransactionIndex:
    return TransactionIndex(disk or FaultyDisk(), str(directory / "00000000000000000010.txnindex"), 10, present=present)


def test_entries_have_the_bytes_of_kafka() -> None:
    entry = AbortedTransaction(1, 2, 3, 4)
    assert pack([entry]).hex() == "0000" + "".join(f"{n:016x}" for n in entry)


def test_file_is_created_with_the_first_entry_and_removed_with_the_last(tmp_path: Path) -> None:
    made = index(tmp_path)
    assert not made and not os.listdir(tmp_path)
    made.append(ENTRIES[:1])
    made.append(ENTRIES[1:])
    assert made and len(made) == 3
    assert index(tmp_path, present=True).entries() == ENTRIES == made.entries()
    made.truncate(30)
    assert index(tmp_path, present=True).entries() == ENTRIES[:1] == made.entries()
    made.truncate(20)
    assert not made and not os.listdir(tmp_path)


def test_unloaded_index_is_read_again(tmp_path: Path) -> None:
    made = index(tmp_path)
    made.append(ENTRIES)
    made.unload()
    assert made and made.memory == 0
    assert made.entries() == ENTRIES and made.memory == 102


def test_failed_append_is_truncated(tmp_path: Path) -> None:
    disk = FaultyDisk()
    made = index(tmp_path, disk)
    made.append(ENTRIES[:1])
    disk.fail("write", errno.ENOSPC, allowed=20)
    with pytest.raises(OSError):
        made.append(ENTRIES[1:])
    made.truncate(21)
    assert index(tmp_path, present=True).entries() == ENTRIES[:1] == made.entries()
    made.append(ENTRIES[1:])
    assert index(tmp_path, present=True).entries() == ENTRIES


def test_written_entries_are_synced_once(tmp_path: Path) -> None:
    made = index(tmp_path)
    assert not made.take_unsynced()
    made.append(ENTRIES)
    assert [made.take_unsynced(), made.take_unsynced()] == [True, False]


def test_the_search_ends_where_nothing_was_open(tmp_path: Path) -> None:
    made = index(tmp_path)
    made.append(ENTRIES)
    assert made.collect(10, 12) == (ENTRIES[:1], False)
    assert made.collect(10, 13) == (ENTRIES[:2], False)
    assert made.collect(21, 42) == (ENTRIES[1:], False)
    assert made.collect(31, 43) == (ENTRIES[2:], True)
    assert made.collect(42, 50) == ([], True)


def test_any_range_equals_a_linear_search(tmp_path: Path) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    chance = random.Random(SEED)
    made, entries, last = index(tmp_path), [], 10
    for _ in range(40):
        first, last = chance.randint(0, last), last + chance.randint(1, 9)
        entries.append(AbortedTransaction(chance.randint(0, 9), first, last, chance.randint(first, last + 1)))
    made.append(entries)
    for _ in range(200):
        start = chance.randint(0, last)
        end = start + chance.randint(0, 50)
        found, more = made.collect(start, end)
        stop = next((i + 1 for i, entry in enumerate(entries) if i >= _first(entries, start)
                     and entry.last_stable_offset >= end), len(entries))  # fmt: skip
        touching = [entry for entry in entries[:stop] if entry.last_offset >= start and entry.first_offset < end]
        assert found == touching
        assert more == (not any(e.last_stable_offset >= end for e in entries[_first(entries, start) :]))


def _first(entries: list[AbortedTransaction], start: int) -> int:
    return next((i for i, entry in enumerate(entries) if entry.last_offset >= start), len(entries))


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        pack(ENTRIES)[:-1],
        b"\0\1" + pack(ENTRIES)[2:],
        pack([ENTRIES[1], ENTRIES[0]]),
        pack([AbortedTransaction(-1, 10, 20, 20)]),
        pack([AbortedTransaction(1, 20, 19, 20)]),
        pack([AbortedTransaction(1, 1, 9, 10)]),
        bytes(34 * 3),
        b"\xff" * 34,
    ],
)
def test_invalid_transaction_index_is_reported_with_its_path(tmp_path: Path, data: bytes) -> None:
    made = index(tmp_path, present=True)
    Path(made.path).write_bytes(data)
    with pytest.raises(BadTransactionIndex, match=r"00000000000000000010\.txnindex"):
        made.load()
    made.replace(ENTRIES)
    assert index(tmp_path, present=True).entries() == ENTRIES


def test_replaced_by_nothing_the_file_goes(tmp_path: Path) -> None:
    made = index(tmp_path)
    made.append(ENTRIES)
    made.replace([])
    assert not made and not os.listdir(tmp_path)
