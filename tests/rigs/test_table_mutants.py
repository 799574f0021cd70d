"""Each of the five rules of exactly-once tables is broken once: the tests of crashes and writers must notice it."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from pyspark_kafkalite.tables import CommitRefusedError, ManifestTable, TableError, commit_rules, manifest
from pyspark_kafkalite.tables.disk import Disk

from kafkalite.model import TopicPartition
from tests.rigs.table_disk import CrashingDisk
from tests.rigs.table_job import verify_visible
from tests.rigs.test_table_crashes import crashes_while_hiding, live
from tests.story.tables import test_manifest_table as story

HISTORIES = 40
TWICE = "a row is visible twice|additional Counter[(]{"

pytestmark = pytest.mark.usefixtures("frequent_snapshots")


def found_by_crashes(directory: Path) -> None:
    """Run histories until one fails."""
    for number in range(HISTORIES):
        live(directory / str(number), number)


def plant(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, function: Callable[..., object]) -> None:
    monkeypatch.setattr(owner, name, function)


def test_rule_1_mutant_commits_a_repeated_batch_again(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, commit_rules, "is_repeated", lambda *_: False)
    with pytest.raises(CommitRefusedError):  # rule 2 refuses what rule 1 should skip: the job never continues
        found_by_crashes(ram)


def test_rules_1_and_2_mutant_duplicates_rows(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, commit_rules, "is_repeated", lambda *_: False)
    plant(monkeypatch, commit_rules, "check_continuity", lambda *_: ())
    with pytest.raises(AssertionError, match=TWICE):
        found_by_crashes(ram)


def test_rule_2_mutant_accepts_a_new_checkpoint(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, commit_rules, "check_continuity", lambda *_: ())
    plant(monkeypatch, commit_rules, "check_owner", lambda *_: None)
    with pytest.raises(AssertionError, match=TWICE):
        found_by_crashes(ram)


def test_rule_2_mutant_accepts_a_second_job_on_other_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, commit_rules, "check_owner", lambda *_: None)
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
        last = self.last_commit()
        return 0 if last is None else self._publish(last)

    plant(monkeypatch, ManifestTable, "_publish_last", publish_last)
    with pytest.raises((AssertionError, TableError)):
        found_by_crashes(ram)


def test_rule_4_mutant_publishes_before_the_commit(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = ManifestTable._create

    def publishing(self: ManifestTable, commit: manifest.Commit) -> bool:
        for each in commit.files:
            self._link(each, commit)
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


def test_mutant_publishes_replacements_before_it_hides_what_they_replace(
    ram: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide, publish = ManifestTable._hide, ManifestTable._publish

    def publishing(self: ManifestTable, commit: manifest.Commit, *lost: Collection[manifest.DataFile]) -> int:
        published = publish(self, commit, *lost)
        hide(self, commit)
        return published

    plant(monkeypatch, ManifestTable, "_hide", lambda self, commit: None)
    plant(monkeypatch, ManifestTable, "_publish", publishing)
    with pytest.raises(AssertionError, match=TWICE):
        found_by_crashes(ram)


def test_mutant_hides_replaced_files_without_a_flush(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may show them again, beside their replacement."""

    def hide(self: ManifestTable, commit: manifest.Commit) -> None:
        self._disk.make_directory(self._replaced)
        for path in (each for each in (self._root / name for name in commit.removed) if each.exists()):
            self._keep(path)
            self._disk.remove(path)

    plant(monkeypatch, ManifestTable, "_hide", hide)
    with pytest.raises(AssertionError, match=TWICE):
        for number in range(HISTORIES):
            crashes_while_hiding(ram / str(number), number)


def test_mutant_removes_replaced_files_that_a_reader_needs(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, ManifestTable, "_keep", lambda self, path: None)
    with pytest.raises(TableError, match="does not exist"):
        found_by_crashes(ram)


def test_mutant_starts_with_the_attempts_of_a_compaction(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that starts removes them after the compaction has checked them."""
    plant(monkeypatch, ManifestTable, "_attempts_of", lambda self, commit: self._attempts)
    plant(monkeypatch, ManifestTable, "compactions", property(lambda self: self.attempts))
    plant(monkeypatch, ManifestTable, "_check_attempts", lambda *_: None)
    with pytest.raises((AssertionError, TableError, OSError)):
        found_by_crashes(ram)


def test_mutant_gives_the_table_to_the_compaction(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = commit_rules.replacing_commit
    plant(monkeypatch, commit_rules, "replacing_commit", lambda *each: real(*each)._replace(ends={}))
    with pytest.raises((AssertionError, CommitRefusedError)):
        found_by_crashes(ram)


def test_histories_without_a_mutant_pass(ram: Path) -> None:
    """What finds the mutants finds nothing else."""
    found_by_crashes(ram)
    verify_visible(ram / "0" / "table")
