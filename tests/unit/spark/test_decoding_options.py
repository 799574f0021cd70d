"""What a user chooses about keys and values is validated before a job starts."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalite.decoding import Decoding
from pyspark_kafkalite.errors import OptionError


@pytest.mark.parametrize(
    ("arguments", "option", "reason"),
    [
        ({"value": "xml"}, "value", "expected one of raw, string, json, avro, protobuf"),
        ({"key": "JSON"}, "key", "expected one of raw"),
        ({"schema": "a int"}, "schema", "value='raw' has no schema"),
        ({"key": "string", "key_schema": "a int"}, "key_schema", "key='string' has no schema"),
        ({"value": "json", "schema": "a int", "schema_file": "x"}, "schema", "schema_file is given, too"),
        ({"value": "avro"}, "registry_url", "needs it, or schema_file"),
        ({"key": "protobuf"}, "registry_url", "needs it, or key_schema_file"),
        ({"value": "protobuf", "schema_file": "x"}, "message", "it is missing"),
        ({"budget": 1.5}, "budget", "expected a share of 0.0 to 1.0"),
        ({"budget": -1}, "budget", "expected a share"),
        ({"dead_letters": "somewhere"}, "dead_letters", "expected table, topic:NAME or fail"),
        ({"dead_letters": "topic:"}, "dead_letters", "expected table, topic:NAME or fail"),
        ({"misfits": "ignore"}, "misfits", "expected one of stop, dead_letters"),
        ({"misfits": "dead_letters", "dead_letters": "fail"}, "misfits", "contradicts"),
    ],
)
def test_argument_that_is_not_valid_is_named(arguments: dict[str, Any], option: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"option {option}: .*{reason}") as raised:
        Decoding(**arguments)
    assert raised.value.option == option


@pytest.mark.parametrize(
    ("budget", "rows", "allowed"),
    [(0.01, 1000, 10), (0.01, 199, 1), (0.01, 3, 1), (0.0, 1000, 0), (0, 1000, 0), (7, 10, 7), (1.0, 10, 10)],
)
def test_budget_is_a_share_or_a_number_of_rows(budget: float, rows: int, allowed: int) -> None:
    assert Decoding(value="string", budget=budget).bad_rows_max(rows) == allowed
    assert Decoding(value="string", budget=budget, dead_letters="fail").bad_rows_max(rows) == 0


def test_files_of_schemas_are_read_in_the_driver(tmp_path: Path) -> None:
    (tmp_path / "a.ddl").write_text("a int")
    decoding = Decoding(value="json", schema_file=str(tmp_path / "a.ddl"), registry_auth=("user", "secret"))
    loaded = pickle.loads(pickle.dumps(decoding.load_schemas()))
    assert (loaded.schema, loaded.schema_file) == ("a int", None)
    assert "secret" not in repr(loaded)
    with pytest.raises(OptionError, match=r"option key_schema_file: .*missing"):
        Decoding(key="json", key_schema_file=str(tmp_path / "missing")).load_schemas()
