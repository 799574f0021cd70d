"""The import paths of pyspark_kafkalite that programs use."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.kit.documented_imports import documented_imports

PUBLIC = {
    "pyspark_kafkalite": ["DefaultSource"],
    "pyspark_kafkalite.ingest": ["ingest"],
    "pyspark_kafkalite.decoding": ["Decoding", "drift_report"],
    "pyspark_kafkalite.jobs": ["JobError", "JobFile", "read_job"],
    "pyspark_kafkalite.jobs.main": ["main"],
    "pyspark_kafkalite.progress": ["JsonLines", "MetricsFile", "ProgressGroup", "ProgressListener"],
    "pyspark_kafkalite.startup": ["configure_fast_start"],
    "pyspark_kafkalite.submit.kafkalite_job": [],
    "pyspark_kafkalite.tables": ["ManifestTable", "Batch", "Commit", "TableError"],
    "pyspark_kafkalite.tables.compaction": ["compact"],
    "pyspark_kafkalite.tables.delta": ["DeltaOffsetTable"],
    "pyspark_kafkalite.tables.iceberg": ["IcebergOffsetTable"],
    "pyspark_kafkalite.tables.reading": ["read", "read_dead_letters"],
}
"""Modules, and names in their text: some need PySpark, Delta or Iceberg to be imported."""


@pytest.mark.parametrize("module", PUBLIC)
def test_public_modules_and_names_exist(module: str) -> None:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, module
    text = Path(found.origin).read_text()
    missing = [name for name in PUBLIC[module] if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_documented_imports_are_public() -> None:
    imports = documented_imports("pyspark_kafkalite")
    assert imports and {each for each in imports if each[1] not in PUBLIC.get(each[0], ())} == set()
