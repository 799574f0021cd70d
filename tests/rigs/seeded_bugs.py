"""Bugs put into a copy of the source on purpose: for each, the test that must catch it.

    python -m tests.rigs.seeded_bugs [NAME ...]      # all, or those named; exits 1 where one was not caught

A patch names the text it replaces, and fails where that is gone: then the patch must be adapted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CRASHES = "tests/rigs/test_crash_steps.py::test_a_crash_at_every_step"
MOVES = "tests/rigs/test_move_crashes.py::test_a_crash_at_every_step_of_a_move"
LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", ".git", ".venv", "build", "perf", "*.c", ".pytest_cache", "docs", "sdk"
)
DEADLINE_S = 300
SEED = "1"
TESTS_FAILED = 1


@dataclass(frozen=True)
class Bug:
    """What is replaced by what in which file, the test that must fail for it, and what that failure must say.

    `rebuild`: the extensions that must be compiled again.
    """

    name: str
    file: str
    good: str
    bad: str
    test: str
    says: str
    rebuild: str = ""


BUGS = (
    Bug(
        "deletion before readers end",
        "kafkalite/storage/log/segment.py",
        "        self.file = self.offset_index = self.time_index = None\n",
        "        if self.file is not None:\n            self.file.close()\n"
        "        self.file = self.offset_index = self.time_index = None\n",
        "tests/unit/storage/test_log.py::test_a_region_outlives_the_deletion_of_its_segment",
        "Bad file descriptor",
    ),
    Bug(
        "ack before sync",
        "kafkalite/cluster/partition/partition.py",
        "            elif log.log_end_offset >= self.hold_at:\n",
        "            elif log.log_end_offset >= 2**63 - 1:\n",
        "tests/unit/cluster/partition/test_flush.py::test_response_and_high_watermark_wait_for_the_flush",
        "assert",
    ),
    Bug(
        "skip directory fsync of a new partition",
        "kafkalite/storage/log_creation.py",
        "[*(new.directory(path) for new in made), path]",
        "[new.directory(path) for new in made]",
        f"{CRASHES}[delete_topic-power]",
        "AssertionError",
    ),
    Bug(
        "a moved log is renamed before its copy is marked as complete",
        "kafkalite/storage/log_move/complete_mark.py",
        "    disk.write_atomic(os.path.join(directory, MARK), TEXT, sync=True)\n",
        "",
        f"{MOVES}[one_move-kill]",
        "is gone",
    ),
    Bug(
        "a copy gets its name before the old name is off the disk",
        "kafkalite/storage/log_move/log_swap.py",
        "(self._disk.sync_dir, self._source, then=partial(self._current_renamed",
        "(self._disk.exists, self._source, then=partial(self._current_renamed",
        f"{MOVES}[one_move-power]",
        "is also in another log directory",
    ),
    Bug(
        "a copy replaces the log before it is on the disk",
        "kafkalite/storage/log_move/copy_jobs.py",
        "        sync_and_close(target)\n",
        "        target.close()\n",
        f"{MOVES}[one_move-power]",
        "AssertionError",
    ),
    Bug(
        "recovery point ahead of fsync",
        "kafkalite/storage/log/flush_plan.py",
        "offset = log.log_end_offset if active and log.active.size else log.active.base_offset",
        "offset = log.log_end_offset",
        f"{CRASHES}[checkpoint-power]",
        "AssertionError",
    ),
    Bug(
        "a leader epoch is recorded late, with its first batch",
        "kafkalite/storage/log/log.py",
        "        if leader_epoch > self.epochs.latest:\n",
        "        if False:\n",
        "tests/unit/storage/test_truncation.py::test_an_epoch_without_batches_at_the_log_end_is_removed_in_any_case",
        "assert",
    ),
    Bug(
        "an epoch without batches at the log end is kept",
        "kafkalite/storage/log/log.py",
        "            self._truncate_epochs(self.log_end_offset)\n",
        "",
        f"{CRASHES}[replicate_and_truncate-kill]",
        "an epoch without batches",
    ),
    Bug(
        "a log restarts before its recovery point is lowered",
        "kafkalite/storage/log/log.py",
        "self._truncation_offset = self.synced = min(self.synced, offset, self.segments[0].base_offset)",
        "self._truncation_offset = self.synced",
        f"{CRASHES}[replicate_and_restart-power]",
        "Error",
    ),
    Bug(
        "index off by one",
        "kafkalite/storage/log/segment.py",
        "self.indexes[1].append(self.max_timestamp, self.max_timestamp_offset)",
        "self.indexes[1].append(self.max_timestamp, self.max_timestamp_offset + 1)",
        f"{CRASHES}[roll-kill]",
        "number=6",
    ),
    Bug(
        "no CRC check on recovery",
        "kafkalite/_speedups/storage/recovery_scan.pyx",
        "        if crc32c(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != header.crc:\n            return SCAN_BAD\n",
        "",
        "tests/rigs/test_torn_tail.py::test_the_tail_is_torn_at_every_byte[zero-filled-nothing-synced]",
        "cut at",
        "recovery_scan",
    ),
    Bug(
        "an append and a marker keep the attempts of their transaction",
        "kafkalite/_speedups/storage/producer_state.pyx",
        "            self.verifications.pop(header.producer_id, None)\n",
        "            pass\n",
        "tests/unit/storage/test_verifications.py::test_marker_ends_the_attempts_before_it",
        "assert",
        "producer_state",
    ),
    Bug(
        "any attempt of a producer opens its transaction",
        "kafkalite/_speedups/storage/producer_state.pyx",
        "        if self.verifications.get(producer_id) is not verification:\n",
        "        if producer_id not in self.verifications:\n",
        "tests/unit/storage/test_verifications.py::test_late_answer_does_not_open_the_next_transaction",
        "assert",
        "producer_state",
    ),
    Bug(
        "a TV2 marker has the epoch of an open transaction",
        "kafkalite/_speedups/storage/producer_state.pyx",
        "(version >= TV2 and header",
        "(version > TV2 and header",
        "tests/unit/storage/test_verifications.py::test_tv2_marker_has_a_greater_epoch",
        "assert",
        "producer_state",
    ),
    Bug(
        "the stable offset passes a marker above the high watermark",
        "kafkalite/_speedups/storage/producer_state.pyx",
        "        self.ended.append((first, offset))\n",
        "",
        "tests/unit/storage/test_transactions.py::test_a_transaction_is_unstable_until_the_high_watermark_has_passed_its_marker",
        "assert",
        "producer_state",
    ),
    Bug(
        "sequence window of four",
        "kafkalite/_speedups/storage/producer_state.pxd",
        "BATCHES_KEPT = 5",
        "BATCHES_KEPT = 4",
        "tests/unit/storage/test_producers.py::test_in_order_is_appended_and_repeats_get_their_first_offset",
        "assert",
        "producer_state,segment_core,log_core,recovery_scan",
    ),
    Bug(
        "producer ids of an older journal are assigned again",
        "kafkalite/server/startup/start_alone.py",
        "    older.ids = await store.raise_producer_ids(largest_id(resources.disk, loaded), later=later)\n",
        "",
        "tests/story/server/test_assigned_producer_ids.py::test_an_older_journal_assigns_no_id_again[True]",
        "assert 0 == 1",
    ),
    Bug(
        "producer ids of adopted logs are assigned again",
        "kafkalite/server/adoption/topic_adoption.py",
        "        await store.raise_producer_ids(max(found, default=-1))\n",
        "",
        "tests/story/server/test_assigned_producer_ids.py::test_an_adoption_raises_the_ids_of_the_journal",
        "assert",
    ),
    Bug(
        "cleaner drops a live tombstone",
        "kafkalite/storage/compaction/cleaning_jobs.py",
        "Rules(plan.now_ms, plan.config.delete_retention_ms,",
        "Rules(plan.now_ms, 0,",
        "tests/unit/storage/test_cleaner.py::test_cleaning_matches_the_oracle_and_is_checkpointed",
        "assert",
    ),
    Bug(
        "commits are answered before they are appended",
        "kafkalite/coordinators/runtime/shard.py",
        "            self._append("
        "incarnation, PendingAppend(effects.answers, now.ms), effects.records, now, transaction)\n",
        "            ready, late = effects.answers, PendingAppend([], now.ms)\n"
        "            soon = self._clock.monotonic() + 0.05\n"
        "            self._clock.call_at(soon, "
        "self._append, incarnation, late, effects.records, now, transaction)\n",
        "tests/torture/test_groups_sigkill.py::test_groups_continue_after_sigkill",
        "are those after no beginning of",
    ),
)


class PatchError(Exception):
    """The text that a bug replaces is not there, or not once."""


def plant(bug: Bug, tree: Path) -> None:
    """Put the bug into a copy of the source. Raises PatchError."""
    path = tree / bug.file
    text = path.read_text()
    if text.count(bug.good) != 1:
        raise PatchError(f"{bug.name}: {bug.file} has {text.count(bug.good)} times {bug.good!r}, not once")
    path.write_text(text.replace(bug.good, bug.bad))


def copy_source(tree: Path) -> None:
    """Copy what the tests need, the compiled extensions too."""
    for name in ("kafkalite", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, tree)


def rebuild(tree: Path, extensions: str) -> None:
    """Compile the extensions named (with commas between) in a tree."""
    environment = {**os.environ, "KAFKALITE_ONLY": extensions, "PYTHONPATH": str(tree)}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=True, timeout=DEADLINE_S)


def run(tree: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run one test in a tree."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "KAFKALITE_ENGINE": "c",
        "KAFKALITE_SEED": SEED,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Without xdist, its options in pyproject.toml are errors.
    alone = ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--strict-markers"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", *alone, "--crash-stride", "1", test]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)


def caught(bug: Bug) -> str:
    """Plant the bug and run its test; answer "" where it fails as it must, else what happened instead."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-bug-") as directory:
        tree = Path(directory)
        copy_source(tree)
        plant(bug, tree)
        if bug.rebuild:
            rebuild(tree, bug.rebuild)
        done = run(tree, bug.test)
    if done.returncode != TESTS_FAILED:
        return f"{bug.name}: {bug.test} ended with {done.returncode}\n{done.stdout[-1_000:]}{done.stderr[-1_000:]}"
    if bug.says not in done.stdout:
        return f"{bug.name}: {bug.test} failed, but says nothing of {bug.says!r}\n{done.stdout[-2_000:]}"
    return ""


def main(wanted: list[str]) -> int:
    failures = 0
    for bug in BUGS:
        if not wanted or bug.name in wanted:
            said = caught(bug)
            failures += bool(said)
            print(said or f"{bug.name}: caught by {bug.test}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
