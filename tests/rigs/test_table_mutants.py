"""Each of the five rules of exactly-once tables is broken once: the tests of crashes and writers must notice it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark_kafkalite.tables import CommitRefusedError, ManifestTable, TableError, manifest, rules
from pyspark_kafkalite.tables.disk import Disk

from kafkalite.model import TopicPartition
from tests.rigs.table_disk import CrashingDisk
from tests.rigs.table_job import verify_visible
from tests.rigs.test_table_crashes import live
from tests.story.tables import test_manifest_table as story

HISTORIES = 60


def found_by_crashes(directory: Path) -> None:
    """Run histories until one fails."""
    for number in range(HISTORIES):
        live(directory / str(number), number)


def plant(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, function: Callable[..., object]) -> None:
    monkeypatch.setattr(owner, name, function)


def test_rule_1_mutant_commits_a_repeated_batch_again(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, rules, "is_repeated", lambda *_: False)
    with pytest.raises(CommitRefusedError):  # rule 2 refuses what rule 1 should skip: the job never continues
        found_by_crashes(ram)


def test_rules_1_and_2_mutant_duplicates_rows(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, rules, "is_repeated", lambda *_: False)
    plant(monkeypatch, rules, "check_continuity", lambda *_: ())
    with pytest.raises(AssertionError, match="a row is visible twice"):
        found_by_crashes(ram)


def test_rule_2_mutant_accepts_a_new_checkpoint(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, rules, "check_continuity", lambda *_: ())
    plant(monkeypatch, rules, "check_owner", lambda *_: None)
    with pytest.raises(AssertionError, match="a row is visible twice"):
        found_by_crashes(ram)


def test_rule_2_mutant_accepts_a_second_job_on_other_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, rules, "check_owner", lambda *_: None)
    table = ManifestTable(tmp_path / "table")
    table.commit(story.batch(table, "A", 0, {0: (0, 10)}))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), pytest.raises(CommitRefusedError):
        table.commit(story.batch(table, "B", 0, {2: (0, 3)}))


def test_rule_3_mutant_replaces_the_commit_of_another_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replacing(self: Disk, source: Path, target: Path) -> None:
        if target.parent.name == "_commits":
            target.unlink(missing_ok=True)
        os.link(source, target)

    root = tmp_path / "table"
    table = ManifestTable(root)
    table.commit(story.batch(table, "A", 0, {0: (0, 10), 1: (5, 8)}))
    plant(monkeypatch, Disk, "link", replacing)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        story.test_of_two_writers_at_one_moment_one_commits(root, table)


@pytest.mark.parametrize("directory", ["_commits", "table"])
def test_rule_3_mutant_does_not_flush_a_directory(ram: Path, monkeypatch: pytest.MonkeyPatch, directory: str) -> None:
    real = CrashingDisk.flush_directory

    def skipping(self: CrashingDisk, path: Path) -> None:
        if path.name != directory:
            real(self, path)

    plant(monkeypatch, CrashingDisk, "flush_directory", skipping)
    with pytest.raises((AssertionError, TableError)):
        found_by_crashes(ram)


def test_rule_3_mutant_publishes_a_commit_that_may_not_be_durable(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish_last(self: ManifestTable) -> int:
        return self._publish(self._read[-1]) if self._read else 0

    plant(monkeypatch, ManifestTable, "_publish_last", publish_last)
    with pytest.raises((AssertionError, TableError)):
        found_by_crashes(ram)


def test_rule_4_mutant_publishes_before_the_commit(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = ManifestTable._create

    def publishing(self: ManifestTable, commit: manifest.Commit) -> bool:
        for each in commit.files:
            self._link(each)
        return create(self, commit)

    plant(monkeypatch, ManifestTable, "_create", publishing)
    with pytest.raises(AssertionError, match="visible before its commit"):
        found_by_crashes(ram)


def test_rule_4_mutant_writes_attempts_where_readers_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "ATTEMPTS", "attempts")
    root = tmp_path / "table"
    table = ManifestTable(root)
    table.commit(story.batch(table, "A", 0, {0: (0, 10), 1: (5, 8)}))
    with pytest.raises(AssertionError):
        story.test_attempts_are_invisible_until_their_commit(root, table)


def test_rule_4_mutant_removes_attempts_before_they_are_published(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, ManifestTable, "_publish_last", lambda self: 0)
    with pytest.raises((AssertionError, TableError)):
        found_by_crashes(ram)


def test_rule_5_mutant_resumes_from_the_offsets_of_the_first_commit(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(self: ManifestTable) -> dict[TopicPartition, int]:
        return {each.name: each.end for each in self.commits()[0].ranges}

    plant(monkeypatch, ManifestTable, "end_offsets", first)
    with pytest.raises(CommitRefusedError):
        found_by_crashes(ram)


def test_histories_without_a_mutant_pass(ram: Path) -> None:
    """What finds the mutants finds nothing else."""
    found_by_crashes(ram)
    verify_visible(ram / "0" / "table")
