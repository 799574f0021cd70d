"""Finds the offsets to read again when files of a table were lost, and the files that they replace. Pure: no I/O."""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark_kafkalite.tables.compaction import merged_spans
from pyspark_kafkalite.tables.errors import TableError
from pyspark_kafkalite.tables.model import DataFile, Replacement, Span
from pyspark_kafkalite.tables.state import TableState


class Refill(NamedTuple):
    """What replaces lost files.

    Attributes:
        spans: the offsets to read again; those of each partition are disjoint.
        replaced: files with rows of these offsets, and of no others. Some of them may exist: the tasks that have
            written the lost ones have written them, too.
    """

    spans: tuple[Span, ...]
    replaced: tuple[DataFile, ...]


def refill_of(state: TableState, lost: Sequence[DataFile], location: str) -> Refill:
    """Return what replaces lost files.

    Arguments:
        state: of the table.
        lost: files of the table, at least one.
        location: of the table, for errors.

    Raises:
        TableError: the offsets of a lost file are unknown, or its records are those of a former topic.
    """
    for each in lost:
        if not each.spans:
            raise TableError(
                f"table {location}: file {each.name} is lost, and its commit does not have the offsets of its rows: an "
                "earlier version has written it; restore the file, or create the table again"
            )
        if each.name in state.former:
            raise TableError(
                f"table {location}: file {each.name} is lost, and topic {', '.join(state.former[each.name])} was "
                "deleted and created again since it was written; restore the file, or create the table again"
            )
    everything = (*state.files.values(), *state.dead_letters.values())
    current = [each for each in everything if each.name not in state.former and each.spans]
    spans: tuple[Span, ...] = ()
    replaced = list(lost)
    while (wider := merged_spans(replaced)) != spans:
        spans = wider
        replaced = [each for each in current if any(_overlap(one, other) for one in each.spans for other in spans)]
    return Refill(spans, tuple(replaced))


def replacement_of(
    refill: Refill, files: Sequence[DataFile], dead_letters: Sequence[DataFile], location: str
) -> Replacement:
    """Return the commit that replaces lost files.

    Arguments:
        refill: what was lost.
        files, dead_letters: with the records that were read again.
        location: of the table, for errors.

    Raises:
        TableError: they have other records than the lost ones.
    """
    before, after = (sum(each.rows for each in found) for found in (refill.replaced, (*files, *dead_letters)))
    if before != after:
        raise TableError(
            f"table {location}: the topic has {after} records where the table had {before}: compaction of the topic "
            "has removed some, or [decoding] has changed; nothing was committed; restore the files, or create the "
            "table again"
        )
    return Replacement(tuple(files), tuple(each.name for each in refill.replaced), tuple(dead_letters))


def _overlap(one: Span, other: Span) -> bool:
    return one[:2] == other[:2] and one.start < other.end and other.start < one.end
