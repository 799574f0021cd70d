"""Reads lines of JSON with pyarrow, each exactly one value. A bad line costs only itself.

Lines are `{"k":[[[VALUE]]]}`, or `{"k":VALUE,"l":[VALUE]}` for text. Invariants:
1. Rows cannot shift: a value that is not exactly one value of JSON is an error of the reader, or a list with another
   length than one, or contains three closing brackets in sequence. Values with these are validated before. In the form
   for text, a value would have to be a part of an object and a part of a list at the same time.
2. If lines cannot be read, they are divided into groups, then at the row that the error names, else in halves, down to
   the bad lines.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy
import pyarrow
import pyarrow.compute
from pyarrow import json as arrow_json

from pyspark_kafkalite.decoding.json_names import names_max

BEFORE, AFTER = '{"k":[[[', "]]]}\n"
ESCAPE = r"\]\s*\]\s*\]"
ROW = re.compile(r" in row (\d+)$")
LITERAL = re.compile(r"n't parse:(.+)$|he string '(.+)' is|parse string: '(.+)' as|: (\S+) requires", re.DOTALL)
GROUP_ROWS, DIVIDED_ROWS = 4096, 256
"""Lines with an error are read again in groups: of the first size, as each read has a cost of its own; those with an
error in groups of the second one, as each error costs the rows of its group.
"""

UNEXPECTED = "unexpected field"
"""In the error about a field beyond the schema."""

CANDIDATES_MAX = 4
"""An error that quotes a literal names the row if no more rows contain the literal."""

BLOCK_BYTES = 64 << 20

CELLS_MAX = 8 << 20
"""Objects times columns of lines that are read at once: each field of the schema becomes a column, and each name where
fields beyond it are read; a column has a value for each object. 8 Mi values of 8 bytes are 64 MiB."""

INFERRED_ROWS_MIN = 64
"""A read has costs of its own, so blocks of fewer lines would cost too much."""


Part = tuple[int, pyarrow.Array | str]
"""The first row of lines, and what was read from them; or the error of one line."""


def read_parts(lines: pyarrow.StringArray, read: Callable[[pyarrow.StringArray], pyarrow.Array]) -> Iterator[Part]:
    """Yield what is read from lines in order, and the errors of bad lines.

    Arguments:
        lines: values of JSON.
        read: reads lines, or raises ArrowInvalid.
    """
    pending = _groups(0, len(lines), GROUP_ROWS)
    while pending:
        first, end = pending.pop()
        part = lines.slice(first, end - first)
        try:
            yield first, read(part)
            continue
        except pyarrow.ArrowInvalid as error:
            failure = str(error)
        if end - first == 1:
            yield first, failure
            continue
        if end - first > DIVIDED_ROWS:
            pending += _groups(first, end, DIVIDED_ROWS)
            continue
        row = _row_of(failure, part)
        edges = [first, (first + end) // 2, end] if row is None else [first, first + row, first + row + 1, end]
        pending += [each for each in reversed(list(pairwise(edges))) if each[0] < each[1]]


def _groups(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """Divide a range of rows; the last part comes first."""
    return [(each, min(each + size, end)) for each in range(first, end, size)][::-1]


def _row_of(failure: str, lines: pyarrow.StringArray) -> int | None:
    """Return the row that an error of the reader is about, as far as its text says; None = it does not."""
    named = ROW.search(failure)
    if named is not None:
        return min(int(named[1]), len(lines) - 1)
    literal = LITERAL.search(failure)
    if literal is None:
        return None
    text = next(each for each in literal.groups() if each is not None)
    rows = numpy.flatnonzero(pyarrow.compute.match_substring(lines, text).to_numpy(zero_copy_only=False))
    return int(rows[0]) if 0 < len(rows) <= CANDIDATES_MAX else None


def blocks(lines: pyarrow.StringArray) -> Iterator[tuple[int, pyarrow.StringArray]]:
    """Divide lines so that each block has at most BLOCK_BYTES, or one line."""
    lengths = pyarrow.compute.binary_length(lines).to_numpy(zero_copy_only=False)
    ends = numpy.cumsum(lengths, dtype=numpy.int64)
    start = 0
    while start < len(lines):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(numpy.searchsorted(ends, before + BLOCK_BYTES, "right")))
        yield start, lines.slice(start, end - start)
        start = end


def bounded_parts(
    lines: pyarrow.StringArray, columns: Callable[[pyarrow.StringArray], int]
) -> Iterator[tuple[int, pyarrow.StringArray, bool]]:
    """Divide lines so that the memory of what is read from them is bounded.

    Arguments:
        lines: values of JSON.
        columns: returns how many columns the objects of lines may have; each has a value for each object, also for {}.

    Yields:
        The first row of a block, its lines, and whether they have at most CELLS_MAX cells.
    """
    pending = [(0, len(lines))] if len(lines) else []
    while pending:
        first, end = pending.pop()
        part = lines.slice(first, end - first)
        bounded = _objects(part) * columns(part) <= CELLS_MAX
        if bounded or end - first <= INFERRED_ROWS_MIN:
            yield first, part, bounded
        else:
            middle = (first + end) // 2
            pending += [(middle, end), (first, middle)]


def _objects(lines: pyarrow.StringArray) -> int:
    """An upper bound: brackets within text count, too."""
    return int(numpy.count_nonzero(_content(lines)[0] == ord("{")))


def names_of(lines: pyarrow.StringArray) -> int:
    """Return an upper bound of the distinct names of fields in lines."""
    return names_max(_content(lines)[0])


def fields_of(data_type: pyarrow.DataType) -> int:
    """Return the number of fields of a type with those of nested types."""
    children = [data_type.field(each) for each in range(data_type.num_fields)]
    return len(children) + sum(fields_of(each.type) for each in children)


def suspicious(texts: pyarrow.StringArray) -> list[int]:
    """Rows whose value may close the brackets around it."""
    found = pyarrow.compute.fill_null(pyarrow.compute.match_substring_regex(texts, ESCAPE), False)
    return [int(row) for row in numpy.flatnonzero(found.to_numpy(zero_copy_only=False))]


def openers(lines: pyarrow.StringArray, least: int) -> int:
    """Return the greatest number of opening brackets of a line; `least` if no line is so long that it can have more.

    Closing brackets count, too: the reader rejects lines without them before it builds a type.
    """
    if not len(lines):
        return 0
    content, bounds = _content(lines)
    if (bounds[1:] - bounds[:-1]).max() <= 2 * least:
        return least
    at = numpy.flatnonzero((content | 0x20) == ord("{"))  # "[" has this bit not set
    return int(numpy.diff(numpy.searchsorted(at, bounds - bounds[0])).max())


def _content(lines: pyarrow.StringArray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The bytes of lines, and where each line begins and ends in the buffer."""
    _, offsets, data = lines.buffers()
    bounds = numpy.frombuffer(offsets, numpy.int32, len(lines) + 1, lines.offset * 4)
    return numpy.frombuffer(data, numpy.uint8)[bounds[0] : bounds[-1]], bounds


def read_objects(lines: pyarrow.StringArray, data_type: pyarrow.StructType, beyond: str) -> pyarrow.StructArray:
    """Read lines as structs.

    Arguments:
        lines: values of JSON.
        data_type: of the structs.
        beyond: "infer", "ignore" or "error": what is done with fields beyond it.

    Raises:
        ArrowInvalid: a line is not exactly one value of this type.
    """
    joined = pyarrow.compute.binary_join_element_wise(BEFORE, lines, AFTER, "")
    nested = pyarrow.list_(pyarrow.list_(pyarrow.list_(data_type)))
    found: Any = _read(joined, "k", nested, beyond)
    for _ in range(3):
        if len(found) != len(lines) or found.null_count:
            raise pyarrow.ArrowInvalid("a line is not one value")
        lengths = found.value_lengths()
        if not pyarrow.compute.all(pyarrow.compute.equal(lengths, 1)).as_py():
            rows = pyarrow.compute.index(pyarrow.compute.equal(lengths, 1), False).as_py()
            raise pyarrow.ArrowInvalid(f"the value is not one value of JSON in row {rows}")
        found = found.flatten()
    return found


def check_text(lines: pyarrow.StringArray) -> pyarrow.StringArray:
    """Return lines, each of which is exactly one value of JSON. Raises ArrowInvalid: one of them is not."""
    twice = ('{"k":', lines, ',"l":[', lines, "]}\n")
    joined = pyarrow.compute.binary_join_element_wise(*twice, "")
    if len(_read(joined, "m", pyarrow.null(), "ignore")) != len(lines):
        raise pyarrow.ArrowInvalid("a line is not one value")
    return lines


def _read(joined: pyarrow.StringArray, name: str, data_type: pyarrow.DataType, beyond: str) -> pyarrow.Array:
    data = joined.buffers()[2]
    table = arrow_json.read_json(
        pyarrow.BufferReader(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pyarrow.schema([(name, data_type)]), unexpected_field_behavior=beyond
        ),
    )
    return table.column(name).combine_chunks()
