"""The limits of PySpark's API that the source works around have numbers; each is named by a test: `Trap 3: ...`.

| trap | what | trap | what |
|---|---|---|---|
| 1 | the name `kafka` is reserved | 9 | the parameter `overwrite` is passed by its name |
| 2 | packages `pyspark_*` are found | 10 | offsets are compared as text |
| 3 | `pushFilters` is an error by default | 11 | the limit is `max_rows`, not `maxRows` |
| 4 | no projection but by a schema | 12 | no metrics but `reportLatestOffset` |
| 5 | no preferred locations | 13 | no real-time mode |
| 6 | Arrow schema must be equal | 14 | `local[2]` repeats no task |
| 7 | 32-bit offsets of binary columns | 15 | one planner process per query |
| 8 | no tasks are one without a value | | |
"""

import inspect
import re
from pathlib import Path

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark_kafkalite.planner import limit_ends
from pyspark_kafkalite.reading import SplitPartition

from kafkalite.model import TopicPartition

TRAPS = range(1, 16)


def test_each_trap_has_a_test() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    lists = re.findall(r'"""Traps? ([\d, and]+):', text)
    named = {int(number) for each in lists for number in re.findall(r"\d+", each)}
    assert sorted(set(TRAPS) - named) == []


def test_tasks_have_no_preferred_location() -> None:
    """Trap 5: a partition of Spark has a value only, so a rack is a variable of the worker's environment."""
    assert list(inspect.signature(InputPartition.__init__).parameters) == ["self", "value"]
    assert not [name for name in dir(SplitPartition) if "ocation" in name]


def test_limit_of_rows_is_the_attribute_max_rows() -> None:
    """Trap 11: the docstring of PySpark names another attribute; the source applies its own option."""
    limit = ReadMaxRows(7)
    assert limit.max_rows == 7 and not hasattr(limit, "maxRows")
    name = TopicPartition("orders", 0)
    assert limit_ends({name: 0}, {name: 100}, {}, limit.max_rows, None) == {name: 7}
