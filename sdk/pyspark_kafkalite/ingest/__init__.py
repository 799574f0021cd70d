"""Copies topics to a table exactly once; rows never enter the JVM. `ingest` starts the query."""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from pyspark_kafkalite.ingest.query import ingest as ingest

__all__ = ["ingest"]

__getattr__ = lazy_names(__name__, {"ingest": "pyspark_kafkalite.ingest.query"})
