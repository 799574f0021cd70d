"""Upper bounds of what is read from JSON at once."""

import json
import random
from typing import Any

import numpy
import pyarrow
from pyspark_kafkalite.decoding.json_lines import CELLS_MAX, bounded_parts, fields_of
from pyspark_kafkalite.decoding.json_names import names_max

from tests.kit.seeds import chosen_seed

LETTERS = ['"', "\\", ":", " ", "a", "b", ",", "{", "é", "\n"]


def test_names_of_compact_json_are_counted_exactly() -> None:
    lines = [json.dumps({"id": n, "at": "12:30", "of": {"id": [1, {"n": 2}]}}, separators=(",", ":")) for n in range(9)]
    assert names_max(_content("\n".join(lines))) == len({"id", "at", "of", "n"})


def test_no_content_has_no_names() -> None:
    assert [names_max(_content(text)) for text in ("", '"', '":', "{}", '["a","b"]')] == [0, 0, 0, 0, 0]


def test_no_text_has_more_names_than_the_bound() -> None:
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    random_ = random.Random(seed)
    for _ in range(300):
        values = [_object(random_, 3) for _ in range(random_.randrange(1, 6))]
        separators = random_.choice([(",", ":"), (", ", ": "), (" , ", " : "), (",", "\n:")])
        text = "\n".join(json.dumps(value, separators=separators, ensure_ascii=False) for value in values)
        assert len(set().union(*map(_names, values))) <= names_max(_content(text)), text


def _content(text: str) -> numpy.ndarray:
    return numpy.frombuffer(text.encode(), numpy.uint8)


def _object(random_: random.Random, depth: int) -> dict[str, Any]:
    return {_text(random_): _value(random_, depth) for _ in range(random_.randrange(5))}


def _value(random_: random.Random, depth: int) -> Any:
    kinds = [
        lambda: _text(random_),
        lambda: 1,
        lambda: [_value(random_, depth - 1)],
        lambda: _object(random_, depth - 1),
    ]
    return random_.choice(kinds if depth else kinds[:2])()


def _text(random_: random.Random) -> str:
    return "".join(random_.choices(LETTERS, k=random_.randrange(6)))


def _names(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_names, value))
    return set(value).union(*map(_names, value.values())) if isinstance(value, dict) else set()


def test_lines_are_divided_by_the_fields_that_each_object_has_in_a_column() -> None:
    """Empty objects have no names, and a value in the column of each field."""
    objects, fields = 300, 100
    lines = pyarrow.array(['{"l":[' + ",".join(["{}"] * (objects - 1)) + "]}"] * 2000)
    parts = list(bounded_parts(lines, lambda _: fields))
    assert pyarrow.concat_arrays([part for _, part, _ in parts]) == lines
    assert all(bounded and len(part) * objects * fields <= CELLS_MAX for _, part, bounded in parts)


def test_fields_of_nested_types_are_counted() -> None:
    item = pyarrow.struct([("x", pyarrow.float64()), ("y", pyarrow.list_(pyarrow.int32()))])
    assert fields_of(pyarrow.struct([("id", pyarrow.int64()), ("l", pyarrow.list_(item))])) == 6
