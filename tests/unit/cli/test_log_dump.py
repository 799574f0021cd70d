"""`kafkalite log dump` on directories built by hand: valid ones, and each type of damage with its position."""

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from crc32c import crc32c

from kafkalite.cli.main import main
from kafkalite.records import Builder, set_max_timestamp

NAME = "00000000000000000000"
T0 = 1_700_000_000_000
INDEX_AT = 1  # batch that the index names
PER_BATCH = 3


def batch(base_offset: int, *, records: int = PER_BATCH, codec: int = 0, leader_epoch: int = 0) -> bytes:
    builder = Builder()
    for i in range(records):
        offset = base_offset + i
        builder.append(T0 + offset, b"key-%d" % offset, b"value-%d" % offset, [("n", b"%d" % i)])
    return builder.build(codec, base_offset=base_offset, leader_epoch=leader_epoch)


def partition(at: Path, batches: list[bytes], name: str = NAME) -> Path:
    """The directory of a partition with one segment, an index entry for its second batch and two files of text."""
    at.mkdir(parents=True, exist_ok=True)
    (at / f"{name}.log").write_bytes(b"".join(batches))
    base = int(name)
    last = base + 2 * PER_BATCH - 1
    (at / f"{name}.index").write_bytes(struct.pack(">ii", last - base, len(batches[0])))
    (at / f"{name}.timeindex").write_bytes(struct.pack(">qi", T0 + last, last - base))
    (at / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (at / "partition.metadata").write_text("version: 0\ntopic_id: 377HDq6gTzKDLPeUGOHV6A")
    return at


@pytest.fixture
def batches() -> list[bytes]:
    return [batch(0), batch(3, codec=3), batch(6)]


@pytest.fixture
def orders(tmp_path: Path, batches: list[bytes]) -> Path:
    return partition(tmp_path / "orders-0", batches)


def dump(*args: object) -> Result:
    return CliRunner().invoke(main, ["log", "dump", *map(str, args)])


def wrong(*args: object) -> list[tuple[str, int | None, str]]:
    """(file, position, text) of everything that is wrong; the exit code has to agree."""
    done = dump(*args, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(Path(e["file"]).name, e["position"], e["text"]) for e in events if e["type"] == "wrong"]
    assert done.exit_code == (1 if found else 0), done.output
    assert events[-1]["type"] == "summary" and events[-1]["wrong"] == len(found)
    return found


def test_good_files_are_shown(orders: Path, batches: list[bytes]) -> None:
    done = dump(orders)
    assert done.exit_code == 0
    assert "no defects" in done.stdout
    assert "5 files, 4 entries, 3 batches, 9 records" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if "none" in line or "lz4" in line]
    assert [row[:5] for row in rows] == [
        ["0", "0-2", "3", str(len(batches[0])), "none"],
        [str(len(batches[0])), "3-5", "3", str(len(batches[1])), "lz4"],
        [str(len(batches[0]) + len(batches[1])), "6-8", "3", str(len(batches[2])), "none"],
    ]
    assert f"offset 5  position {len(batches[0])}" in done.stdout
    assert f"timestamp {T0 + 5}  offset 5" in done.stdout
    assert "topic id 377HDq6gTzKDLPeUGOHV6A" in done.stdout


def test_records_option_shows_every_record(orders: Path) -> None:
    assert "value-4" not in dump(orders).stdout
    assert 'key "key-4"  value "value-4"  headers [["n", "1"]]' in dump(orders, "--records").stdout
    events = [json.loads(line) for line in dump(orders, "--records", "--json").stdout.splitlines()]
    assert [event["offset"] for event in events if event["type"] == "record"] == list(range(9))


def test_a_summary_has_one_line_for_each_file(orders: Path) -> None:
    lines = dump(orders, "--summary").stdout.splitlines()
    assert len(lines) == 5 + 2
    assert [line for line in lines if line.endswith("3 batches, 9 records") and ".log" in line]


def test_all_partitions_of_a_broker_are_read(tmp_path: Path, batches: list[bytes]) -> None:
    for name in ("orders-0", "orders-1", "orders-2.0123456789abcdef0123456789abcdef-delete"):
        partition(tmp_path / name, batches)
    (tmp_path / "meta.properties").write_text("version=0\n")
    events = [json.loads(line) for line in dump(tmp_path, "--json").stdout.splitlines()]
    assert {Path(e["file"]).parent.name for e in events if e["type"] == "file"} == {"orders-0", "orders-1"}


def test_a_flipped_byte_is_found_and_the_rest_is_read(orders: Path, batches: list[bytes]) -> None:
    log = orders / f"{NAME}.log"
    data = bytearray(log.read_bytes())
    at = len(batches[0])
    data[at + 70] ^= 0x10
    log.write_bytes(data)
    found = wrong(orders)
    assert ("CRC" in found[0][2] or "corrupt" in found[0][2]) and found[0][:2] == (log.name, at)
    shown = [json.loads(line) for line in dump(orders, "--json").stdout.splitlines()]
    assert [e["base_offset"] for e in shown if e["type"] == "batch"] == [0, 6]


def test_a_torn_tail_is_found(orders: Path, batches: list[bytes]) -> None:
    log = orders / f"{NAME}.log"
    log.write_bytes(log.read_bytes()[:-7])
    at = len(batches[0]) + len(batches[1])
    size = len(batches[2])
    assert wrong(orders) == [(log.name, at, f"a batch of {size} bytes is truncated to {size - 7}")]


def test_bytes_that_are_not_a_batch_end_the_dump_of_a_file(orders: Path) -> None:
    log = orders / f"{NAME}.log"
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + b"\x00" * 100)
    found = wrong(orders)
    assert {(name, at) for name, at, _ in found} == {(log.name, size)}
    assert found[-1][2] == "the remaining 100 bytes cannot be read"


def test_gap_is_wrong_unless_the_topic_is_compacted(tmp_path: Path) -> None:
    batches = [batch(0), batch(3), batch(9)]
    orders = partition(tmp_path / "orders-0", batches)
    at = len(batches[0]) + len(batches[1])
    (tmp_path / "meta.properties").write_text("version=0\n")
    assert wrong(orders) == [(f"{NAME}.log", at, "a gap: offsets 6 to 8 are missing")]
    assert wrong(orders, "--compacted") == []
    assert wrong(partition(tmp_path / "__consumer_offsets-0", batches)) == []


def test_the_first_gap_outside_a_log_directory_names_the_option_for_compacted_topics(tmp_path: Path) -> None:
    orders = partition(tmp_path / "orders-0", [batch(0), batch(9), batch(15)])
    partition(orders, [batch(24), batch(27)], name=f"{24:020d}")
    hint = "; if the topic is compacted, gaps are no defect: add --compacted"
    assert [text for name, _, text in wrong(orders) if name.endswith(".log")] == [
        f"a gap: offsets 3 to 8 are missing{hint}",
        "a gap: offsets 12 to 14 are missing",
        "starts at offset 24, the previous segment ends at 17",
    ]
    later = partition(tmp_path / "later-0", [batch(0), batch(3)])
    partition(later, [batch(12), batch(15)], name=f"{12:020d}")
    assert [text for _, _, text in wrong(later)] == [f"starts at offset 12, the previous segment ends at 5{hint}"]


def test_repeated_offsets_are_wrong(tmp_path: Path) -> None:
    batches = [batch(0), batch(3), batch(5)]
    orders = partition(tmp_path / "orders-0", batches)
    at = len(batches[0]) + len(batches[1])
    assert wrong(orders, "--compacted") == [(f"{NAME}.log", at, "duplicate offset 5, expected 6")]


def test_decreasing_leader_epoch_is_wrong(tmp_path: Path) -> None:
    batches = [batch(0, leader_epoch=4), batch(3, leader_epoch=4), batch(6, leader_epoch=2)]
    orders = partition(tmp_path / "orders-0", batches)
    assert wrong(orders) == [(f"{NAME}.log", len(batches[0]) * 2, "leader epoch 2 follows 4")]


def test_segments_must_be_contiguous(orders: Path) -> None:
    (orders.parent / "meta.properties").write_text("version=0\n")
    partition(orders, [batch(12), batch(15)], name=f"{12:020d}")
    assert wrong(orders) == [(f"{12:020d}.log", None, "starts at offset 12, the previous segment ends at 8")]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ((5, 1), "no batch starts there"),
        ((4, None), "the batch there ends with offset 5"),
    ],
)
def test_index_entries_must_point_to_batches(
    orders: Path, batches: list[bytes], entry: tuple[int, int | None], text: str
) -> None:
    position = len(batches[0]) if entry[1] is None else entry[1]
    (orders / f"{NAME}.index").write_bytes(struct.pack(">ii", entry[0], position))
    said = f"the entry maps offset {entry[0]} to position {position}, but {text}"
    assert wrong(orders) == [(f"{NAME}.index", 0, said)]


def test_index_entries_must_be_increasing_and_complete(orders: Path, batches: list[bytes]) -> None:
    entry = struct.pack(">ii", 5, len(batches[0]))
    (orders / f"{NAME}.index").write_bytes(entry + entry + b"\x01\x02\x03")
    text = f"offset 5, position {len(batches[0])} is not above the previous entry"
    assert wrong(orders) == [
        (f"{NAME}.index", 8, text),
        (f"{NAME}.index", 16, "the size is not a multiple of 8"),
    ]


def test_preallocated_index_space_is_not_an_entry(orders: Path) -> None:
    for name in (f"{NAME}.index", f"{NAME}.timeindex"):
        with (orders / name).open("ab") as file:
            file.write(bytes(24 * 100))
    assert wrong(orders) == []


def test_time_index_must_agree_with_the_batches(orders: Path) -> None:
    (orders / f"{NAME}.timeindex").write_bytes(struct.pack(">qiqi", T0 + 5, 2, T0 + 99, 99))
    said = [(at, text.partition(", but ")[2]) for _, at, text in wrong(orders)]
    assert said == [(0, f"the batch has the maximum {T0 + 2}"), (12, "no batch has this offset")]


def test_index_without_log_file_is_wrong(orders: Path) -> None:
    partition(orders, [batch(9), batch(12)], name=f"{9:020d}")
    (orders / f"{9:020d}.log").unlink()
    texts = {name: text for name, _, text in wrong(orders)}
    assert texts == {
        f"{9:020d}.index": f"the index has no segment {9:020d}.log",
        f"{9:020d}.timeindex": f"the index has no segment {9:020d}.log",
    }


def test_text_files_and_snapshots_are_checked(orders: Path) -> None:
    (orders / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    (orders / "partition.metadata").write_text("version: 7\n")
    (orders / f"{9:020d}.snapshot").write_bytes(bytes(10))
    names = {name for name, _, _ in wrong(orders)}
    assert names == {"leader-epoch-checkpoint", "partition.metadata", f"{9:020d}.snapshot"}


def test_aborted_transactions_are_shown_and_checked(orders: Path) -> None:
    entries = [(0, 7, 0, 4, 5), (0, 8, 3, 2, 5)]
    (orders / f"{NAME}.txnindex").write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    assert wrong(orders) == [(f"{NAME}.txnindex", 34, "offsets 3 to 2 are out of order")]
    assert "producer id 7  first offset 0  last offset 4" in dump(orders).stdout


def test_a_wrong_max_timestamp_is_found(tmp_path: Path, batches: list[bytes]) -> None:
    changed = bytearray(batches[2])
    set_max_timestamp(changed, T0 + 5000)
    orders = partition(tmp_path / "orders-0", [*batches[:2], bytes(changed)])
    at = len(batches[0]) + len(batches[1])
    text = f"max timestamp is {T0 + 5000}, the records' highest is {T0 + 8}"
    assert wrong(orders) == [(f"{NAME}.log", at, text)]


def test_records_that_break_the_framing_are_found(tmp_path: Path, batches: list[bytes]) -> None:
    claims_more = bytearray(batches[2])
    claims_more[57:61] = struct.pack(">i", PER_BATCH + 1)
    claims_more[17:21] = struct.pack(">I", crc32c(bytes(claims_more[21:])))
    orders = partition(tmp_path / "orders-0", [*batches[:2], bytes(claims_more)])
    for options in ([], ["--compacted"], ["--records"]):
        found = wrong(orders, *options)
        assert [(name, at) for name, at, _ in found] == [(f"{NAME}.log", len(batches[0]) + len(batches[1]))]


def test_entries_from_before_magic_2_are_shown(tmp_path: Path) -> None:
    body = struct.pack(">bbqi", 1, 0, T0, -1) + struct.pack(">i", 3) + b"old"
    entry = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "meta.properties").write_text("version=0\n")
    log = tmp_path / "orders-0" / f"{NAME}.log"
    log.write_bytes(entry + batch(1))
    assert wrong(log) == []
    assert 'key null  value "old"' in dump(log, "--records").stdout
    log.write_bytes(entry[:-1] + b"!" + batch(1))
    found = wrong(log)
    assert [(name, at) for name, at, _ in found] == [(log.name, 0), (log.name, len(entry))]
    assert "CRC" in found[0][2] and found[1][2] == "a gap: offsets 0 are missing"


def test_single_file_is_dumped(orders: Path) -> None:
    assert wrong(orders / f"{NAME}.log") == []
    assert wrong(orders / f"{NAME}.index") == []


@pytest.mark.parametrize("location", ["nowhere", "notes.txt", "empty"])
def test_other_files_are_rejected_in_one_line(tmp_path: Path, location: str) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    done = dump(tmp_path / location)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1 and location in done.stderr


def run_dump(path: Path, stdout: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "kafkalite", "log", "dump", str(path), "--records"]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE)


def test_closed_output_is_not_reported_as_damage(tmp_path: Path) -> None:
    """`log dump ... | head` ends as by SIGPIPE, not with the exit code of damaged files (NEWCOMER 1.15.8)."""
    path = partition(tmp_path / "orders-0", [batch(PER_BATCH * number) for number in range(2)])
    reader, writer = os.pipe()
    os.close(reader)
    with run_dump(path, writer) as process:
        os.close(writer)
        assert process.communicate()[1] == b""
    assert process.returncode == 141


def test_full_output_is_not_reported_as_damage(tmp_path: Path) -> None:
    path = partition(tmp_path / "orders-0", [batch(PER_BATCH * number) for number in range(2)])
    with open("/dev/full", "wb") as full, run_dump(path, full.fileno()) as process:
        said = (process.communicate()[1]).decode()
    assert (process.returncode, said) == (2, "kafkalite: standard output: No space left on device\n")
