"""Copies topics to a table exactly once; rows never enter the JVM. `ingest` starts the query."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_kafkalite.ingest.query import ingest as ingest

__all__ = ["ingest"]


def __getattr__(name: str) -> object:
    if name != "ingest":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_kafkalite.ingest.query import ingest

    return ingest
