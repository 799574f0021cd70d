"""An offset is valid only with the id of its topic: tables and their readers notice a topic that was created again."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalite.history import History, divide
from pyspark_kafkalite.jobs.verify import contiguity, current_commits, current_files
from pyspark_kafkalite.tables import CommitRefusedError, ManifestTable, compaction, snapshots
from pyspark_kafkalite.tables.compaction import compact
from pyspark_kafkalite.tables.model import Recreation
from pyspark_kafkalite.tables.reading import read

from kafkalite.model import TopicPartition
from tests.story.tables.parquet_job import batch, expected, files, rows

FORMER, NEW = "former-id", "new-id"
NAME = TopicPartition("orders", 0)
AGAIN = Recreation("orders", FORMER, NEW)


@pytest.fixture
def table(tmp_path: Path) -> ManifestTable:
    """Query A has copied offsets 0 to 99 of partition 0, and 0 to 2 of partition 1."""
    created = ManifestTable(tmp_path / "table")
    created.commit(batch(created, "A", 0, {0: (0, 60), 1: (0, 3)}, topic_id=FORMER))
    created.commit(batch(created, "A", 1, {0: (60, 100)}, topic_id=FORMER))
    return created


def begin_again(table: ManifestTable, start: int = 0) -> None:
    """Query B resumes with the new topic."""
    table.commit(batch(table, "B", 0, {0: (start, 9)}, resumes=1, allow_gaps=True, topic_id=NEW))


def opened(table: ManifestTable) -> ManifestTable:
    return ManifestTable(table.location, create=False)


def test_commit_has_the_ids_of_all_topics_once(table: ManifestTable) -> None:
    table.commit(batch(table, "A", 2, {0: (100, 101)}))
    written = [json.loads(each.read_bytes()) for each in sorted(Path(table.location, "_commits").iterdir())]
    assert [each["topic_ids"] for each in written] == [{"orders": FORMER}] * 3
    assert not any("topic_id" in each for commit in written for each in commit["ranges"])
    assert [each.topic_id for commit in opened(table).commits() for each in commit.ranges] == [FORMER] * 4


@pytest.mark.parametrize("offsets", [(100, 150), (0, 9), (120, 130)])
def test_offsets_of_a_topic_that_was_created_again_do_not_continue_the_table(
    table: ManifestTable, offsets: tuple[int, int]
) -> None:
    """Also where they fit: the first records of the new topic would be missing, without a gap."""
    refused = batch(table, "A", 2, {0: offsets}, topic_id=NEW)
    before = files(Path(table.location))
    with pytest.raises(
        CommitRefusedError, match=r"was deleted and created again.*allow_gaps=True.*another table"
    ) as raised:
        table.commit(refused)
    assert (raised.value.reason, files(Path(table.location))) == ("topic", before)


def test_topic_that_was_created_again_is_recorded_and_copied_from_its_start(table: ManifestTable) -> None:
    begin_again(table)
    table.commit(batch(table, "B", 1, {0: (9, 12), 1: (0, 5)}, topic_id=NEW))
    for each in (table, opened(table)):
        assert [commit.recreated for commit in each.commits()] == [(), (), (AGAIN,), ()]
        assert each.end_offsets() == {NAME: 12, TopicPartition("orders", 1): 5}
        assert each.state().topic_ids == {"orders": NEW} and list(contiguity(each.commits())) == []
    former = expected({0: (0, 100), 1: (0, 3)})
    assert rows(read(table)) == former + expected({0: (0, 12), 1: (0, 5)})
    assert [each.sequence for each in current_commits(table.commits(), "orders")] == [2, 3]
    assert current_files(table.state(), "orders") == [file.name for each in table.commits()[2:] for file in each.files]


def test_former_topic_cannot_return(table: ManifestTable) -> None:
    """A driver that still reads the former topic, or a copy of the cluster."""
    begin_again(table)
    with pytest.raises(CommitRefusedError, match="was deleted and created again"):
        table.commit(batch(table, "B", 1, {0: (9, 12)}, topic_id=FORMER))


def test_repeated_batch_of_another_topic_is_not_skipped(table: ManifestTable) -> None:
    with pytest.raises(CommitRefusedError, match=r"other offsets: .* of a topic that was deleted and created again"):
        table.commit(batch(table, "A", 1, {0: (60, 100)}, topic_id=NEW))
    assert table.commit(batch(table, "A", 1, {0: (60, 100)}, topic_id=FORMER)).repeated


def test_tasks_of_one_batch_with_different_topics_are_refused(table: ManifestTable) -> None:
    one, other = (
        batch(table, "A", 2, offsets, topic_id=each)
        for offsets, each in (({0: (100, 101)}, FORMER), ({0: (101, 102)}, NEW))
    )
    with pytest.raises(CommitRefusedError, match="created again while batch 2 was read"):
        table.commit(one._replace(ranges=one.ranges + other.ranges, files=one.files + other.files))


def test_table_of_an_earlier_version_has_the_ids_from_its_next_commit_on(tmp_path: Path) -> None:
    table = ManifestTable(tmp_path / "table")
    table.commit(batch(table, "A", 0, {0: (0, 10)}))
    (path,) = Path(table.location, "_commits").iterdir()
    written = json.loads(path.read_bytes())
    del written["topic_ids"], written["recreated"]
    path.write_text(json.dumps(written))
    former = ManifestTable(table.location)
    assert former.state().topic_ids == {}
    former.commit(batch(former, "A", 1, {0: (10, 12)}, topic_id=NEW))
    assert former.state().topic_ids == {"orders": NEW} and former.commits()[1].recreated == ()
    assert rows(read(former)) == expected({0: (0, 12)})


def test_table_with_the_latest_values_does_not_continue_with_another_topic(tmp_path: Path) -> None:
    """Rows of the former topic would be newer than those of the new one by their offsets."""
    table = ManifestTable(tmp_path / "table")
    table.commit(batch(table, "A", 0, {0: (0, 10)}, topic_id=FORMER)._replace(removed=()))
    again = batch(table, "B", 0, {0: (0, 3)}, resumes=0, allow_gaps=True, topic_id=NEW)
    with pytest.raises(CommitRefusedError, match=r"latest value of each key .* use another table"):
        table.commit(again._replace(removed=()))


def test_history_of_another_topic_is_named_and_not_read(table: ManifestTable) -> None:
    history = History(table.location)
    for topic_id, named in ((FORMER, 0), (NEW, 1)):
        state = history.state({"orders": topic_id})
        found = divide(state, "T", {NAME: 0}, {NAME: 100}, {NAME: 0})
        assert [each[2:] for each in found.table] == ([] if named else [(0, 100)])
        assert len(history.losses({"orders": topic_id})) == named
    begin_again(table)
    assert "was deleted and created again; the table" in history.losses({"orders": NEW})[0]
    assert history.state({"orders": NEW}).starts == {}
    assert history.losses({"payments": "any"}) == []


def test_compaction_during_which_the_topic_is_created_again_is_refused(
    table: ManifestTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten = compaction._rewritten

    def created_again(*arguments: Any) -> Any:
        files = rewritten(*arguments)
        begin_again(opened(table))
        return files

    monkeypatch.setattr(compaction, "_rewritten", created_again)
    with pytest.raises(CommitRefusedError, match="created again since"):
        compact(table, target_bytes=1 << 20, retention_s=0)
    assert set(opened(table).state().former.values()) == {("orders",)}


def test_compaction_does_not_mix_rows_of_both_topics(table: ManifestTable, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_again(table)
    table.commit(batch(table, "B", 1, {0: (9, 12)}, topic_id=NEW))
    former = list(table.state().former)
    monkeypatch.setattr(snapshots, "EVERY", 1)
    assert compact(table, target_bytes=1 << 20, retention_s=0).replaced == 2
    state = opened(table).state()
    assert set(former) < set(state.files) and dict(state.former) == dict.fromkeys(former, ("orders",))
    assert state.topic_ids == {"orders": NEW} and len(current_files(state, "orders")) == 1
    assert rows(read(table)) == expected({0: (0, 100), 1: (0, 3)}) + Counter({(0, at): 1 for at in range(12)})
