"""Decides whether a batch continues a table. Pure: no I/O; the same for all formats.

Rules, of which `tests/rigs/test_table_mutants.py` has a mutant each:
1. A batch that is in the table is skipped.
2. The first offset of each partition is the end of the table, and one query at a time writes to it. An offset is valid
   only with the id of its topic: a topic that was created again does not continue the table.
Rules 3 to 5 (atomic commits, files that are invisible before, resuming from the table) are those of the formats.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from kafkalite.model import TopicPartition
from pyspark_kafkalite.tables.errors import CommitRefusedError
from pyspark_kafkalite.tables.model import (
    NO_COMMIT,
    Batch,
    Commit,
    CommittedRange,
    EndOffsets,
    Gap,
    QueryTotal,
    Recreation,
    Replacement,
    merge_ranges,
)
from pyspark_kafkalite.tables.state import TableState

RESUME = (
    "If the checkpoint was deleted or is that of another table, start with an empty checkpoint directory and "
    "resume_from_table=True; if another job writes to the table, stop one of them."
)


CONTINUE = (
    "Start with an empty checkpoint directory, resume_from_table=True and allow_gaps=True to copy the new topic from "
    "its start: the commit records that the topic was created again. Or use another table."
)
OTHER_TABLE = "A table with the latest value of each key cannot continue with another topic: use another table."


def ranges_of(batch: Batch, location: str) -> tuple[CommittedRange, ...]:
    """Return the ranges of a batch, one for each partition.

    Arguments:
        batch: to commit.
        location: of the table, for errors.

    Raises:
        CommitRefusedError: the splits of a partition overlap or have a gap, or those of a topic have different ids.
    """
    ranges = merge_ranges(batch.ranges)
    ids: dict[str, str] = {}
    for each in batch.ranges:
        if each.topic_id is not None and ids.setdefault(each.topic, each.topic_id) != each.topic_id:
            raise CommitRefusedError(
                "topic",
                f"table {location}: topic {each.topic} was deleted and created again while batch {batch.batch_id} was "
                "read; nothing was committed",
            )
    for before, after in pairwise(ranges):
        if before.name == after.name:
            raise CommitRefusedError(
                "split",
                f"table {location}: the splits of batch {batch.batch_id} are not adjacent: {_named(before)} is "
                f"followed by {_named(after)}. This is an error in the planner of the batch; nothing was committed.",
            )
    for each in ranges:
        if not 0 <= each.start <= each.end:
            raise ValueError(f"range {_named(each)}, expected 0 <= start <= end")
    return tuple(ranges)


def check_rows(batch: Batch) -> None:
    """Raise ValueError: the rows of a batch's ranges are not those of its files and its dead letters.

    A table with a state has other rows.
    """
    if batch.removed is not None:
        return
    counted = sum(each.rows for each in batch.ranges)
    written = sum(each.rows for each in batch.files) + batch.dead_rows
    if counted != written:
        raise ValueError(f"batch {batch.batch_id} has {counted} rows in its ranges, but {written} in its files")
    dead = sum(each.rows for each in batch.dead_letters)
    if batch.dead_letters and dead != batch.dead_rows:
        raise ValueError(f"batch {batch.batch_id} has {batch.dead_rows} dead letters, but {dead} in their files")


def is_repeated(earlier: Commit | None, batch: Batch, ranges: tuple[CommittedRange, ...], location: str) -> bool:
    """Return whether a batch is in the table (rule 1).

    Arguments:
        earlier: the commit with the query id and batch id of the batch; None = there is none.
        batch, ranges: to commit.
        location: of the table, for errors.

    Raises:
        CommitRefusedError: the commit has other offsets: the checkpoint was deleted and the ids have begun again.
    """
    if earlier is None:
        return False
    same_topics = not recreations(earlier.topic_ids, ranges)
    if same_topics and [each.offsets for each in earlier.ranges] == [each.offsets for each in ranges]:
        return True
    raise CommitRefusedError(
        "batch",
        f"table {location}: batch {batch.batch_id} of query {batch.query_id} was committed with other offsets: "
        f"{_all_named(earlier.ranges)}, now {_all_named(ranges)}"
        f"{'' if same_topics else ' of a topic that was deleted and created again'}. {RESUME}",
    )


def check_owner(last: Commit | None, batch: Batch, location: str) -> None:
    """Reject a second query (rule 2).

    Arguments:
        last: the last commit of a batch; None = the table is empty.
        batch: to commit.
        location: of the table, for errors.

    Raises:
        CommitRefusedError: another query writes to the table.
    """
    if last is None or last.query_id == batch.query_id:
        return
    if batch.resumes is not None and batch.resumes >= last.sequence:
        return
    since = "" if batch.resumes is None else f" It has committed since query {batch.query_id} was started."
    raise CommitRefusedError(
        "owner",
        f"table {location}: query {last.query_id} writes to it, its last batch is {last.batch_id}; batch "
        f"{batch.batch_id} of query {batch.query_id} is rejected.{since} {RESUME}",
    )


def recreations(topic_ids: Mapping[str, str], ranges: Iterable[CommittedRange]) -> tuple[Recreation, ...]:
    """Return the topics of ranges that have another id than before.

    Arguments:
        topic_ids: known ids, by topic; a topic that is missing is accepted.
        ranges: one whose id is unknown is accepted.
    """
    found = {each.topic: each.topic_id for each in ranges if each.topic_id is not None}
    changed = (topic for topic in sorted(found) if topic_ids.get(topic, found[topic]) != found[topic])
    return tuple(Recreation(topic, topic_ids[topic], found[topic]) for topic in changed)


def check_topics(
    last: Commit | None, batch: Batch, ranges: tuple[CommittedRange, ...], location: str
) -> tuple[Recreation, ...]:
    """Verify that the topics of a batch are those of the table (rule 2).

    Arguments:
        last: the last commit; None = the table is empty.
        batch, ranges: to commit.
        location: of the table, for errors.

    Returns:
        The topics that were created again, which the batch permits.

    Raises:
        CommitRefusedError: a topic was created again.
    """
    found = () if last is None else recreations(last.topic_ids, ranges)
    for each in found:
        what = (
            f"table {location}: batch {batch.batch_id} of query {batch.query_id} has records of a topic {each.topic} "
            f"with id {each.topic_id}, but the table those of a former one with id {each.former_id}: it was deleted "
            "and created again"
        )
        if batch.removed is not None:
            raise CommitRefusedError("topic", f"{what}. {OTHER_TABLE}")
        if not batch.allow_gaps:
            raise CommitRefusedError("topic", f"{what}. {CONTINUE}")
    return found


def next_batch(last: Commit | None, batch: Batch, ranges: tuple[CommittedRange, ...], location: str) -> Commit:
    """Verify that a batch continues a table, and return its commit.

    Arguments:
        last: the last commit; None = the table is empty.
        batch, ranges: to commit.
        location: of the table, for errors.

    Raises:
        CommitRefusedError: it does not continue the table.
    """
    recreated = check_topics(last, batch, ranges, location)
    again = {each.topic for each in recreated}
    ends = {} if last is None else {name: end for name, end in last.ends.items() if name.topic not in again}
    gaps = check_continuity(ends, batch, ranges, location)
    return next_commit(last, batch, ranges, gaps, recreated)


def check_continuity(
    ends: EndOffsets, batch: Batch, ranges: tuple[CommittedRange, ...], location: str
) -> tuple[Gap, ...]:
    """Verify that a batch begins where the table ends (rule 2); a partition that the table does not have may begin
    anywhere.

    Arguments:
        ends: of the table.
        batch, ranges: to commit.
        location: of the table, for errors.

    Returns:
        The lost offsets, which the batch permits.

    Raises:
        CommitRefusedError: a range begins before or behind the end.
    """
    gaps = []
    for each in ranges:
        end = ends.get(each.name, each.start)
        where = (
            f"table {location}: batch {batch.batch_id} of query {batch.query_id} begins {each.topic}-{each.partition} "
            f"at offset {each.start}, but the table ends at {end}"
        )
        if each.start < end:
            raise CommitRefusedError("overlap", f"{where}: records would be there twice. {RESUME}")
        if each.start > end and not batch.allow_gaps:
            raise CommitRefusedError(
                "gap",
                f"{where}: offsets {end} to {each.start - 1} are missing. If retention has removed them, start with "
                f"allow_gaps=True to continue without them: the commit records the gap. {RESUME}",
            )
        if each.start > end:
            gaps.append(Gap(each.topic, each.partition, end, each.start))
    return tuple(gaps)


def next_commit(
    last: Commit | None,
    batch: Batch,
    ranges: tuple[CommittedRange, ...],
    gaps: tuple[Gap, ...],
    recreated: tuple[Recreation, ...],
) -> Commit:
    """Return the commit that adds a batch to a table.

    Arguments:
        last: the commit before; None = the table has none.
        batch: its query, its id and its files.
        ranges: the offsets that the batch adds, by partition.
        gaps: offsets that were lost before it.
        recreated: topics that were deleted and created since the commit before.
    """
    again = {each.topic for each in recreated}
    ends: dict[TopicPartition, int] = {}
    topic_ids: dict[str, str] = {}
    if last is not None:
        ends.update({name: end for name, end in last.ends.items() if name.topic not in again})
        topic_ids.update(last.topic_ids)
    ends.update({each.name: each.end for each in ranges})
    topic_ids.update({each.topic: each.topic_id for each in ranges if each.topic_id is not None})
    sequence = NO_COMMIT + 1 if last is None else last.sequence + 1
    return Commit(
        sequence,
        batch.query_id,
        batch.batch_id,
        ranges,
        batch.files,
        ends,
        gaps,
        batch.removed or (),
        dead_letters=batch.dead_letters,
        schema=batch.schema,
        details=batch.details,
        topic_ids=topic_ids,
        recreated=recreated,
        total=_total(last, batch.query_id, sum(each.rows for each in ranges)),
    )


def _total(last: Commit | None, query_id: str, rows: int) -> QueryTotal | None:
    """Return what a query has added with its next commit; it is counted here because logs of libraries expire."""
    before = QueryTotal(0, 0) if last is None or last.query_id != query_id else last.total
    return None if before is None else QueryTotal(before.rows + rows, before.commits + 1)


def replacing_commit(state: TableState, replacement: Replacement, location: str) -> Commit:
    """Return the commit that replaces files. Offsets and owner of the table stay.

    Arguments:
        state: of the table.
        replacement: to commit.
        location: of the table, for errors.

    Raises:
        CommitRefusedError: the table does not contain a file that is replaced, or the file has rows of a former topic,
            which a commit would give to the topic of the same name. ValueError: the rows differ.
    """
    known = {**state.files, **state.dead_letters}
    missing = [name for name in replacement.removed if name not in known]
    if missing or state.last is None:
        raise CommitRefusedError(
            "replaced",
            f"table {location}: the commit replaces {', '.join(missing)}, which the table does not contain; "
            "nothing was committed",
        )
    former = [name for name in replacement.removed if name in state.former]
    if former:
        raise CommitRefusedError(
            "replaced",
            f"table {location}: a topic of {', '.join(former)} was created again since the files were read; "
            "nothing was committed; run the command again",
        )
    before = sum(known[name].rows for name in replacement.removed)
    after = sum(each.rows for each in (*replacement.files, *replacement.dead_letters))
    if before != after or not replacement.removed:
        raise ValueError(f"table {location}: files with {before} rows are replaced by files with {after} rows")
    last = state.last
    return last._replace(
        sequence=last.sequence + 1,
        ranges=(),
        files=replacement.files,
        gaps=(),
        removed=replacement.removed,
        dead_letters=replacement.dead_letters,
        schema=None,
        details=None,
        recreated=(),
        total=_total(last, last.query_id, 0),
    )


def _named(each: CommittedRange) -> str:
    return f"{each.topic}-{each.partition} [{each.start}, {each.end})"


def _all_named(ranges: tuple[CommittedRange, ...]) -> str:
    return ", ".join(_named(each) for each in ranges) or "none"
