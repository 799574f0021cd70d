"""Kafka topics in Spark through PySpark, without a jar: `spark.read.format("kafkalite")`.

Spark imports every package whose name begins with `pyspark_` and looks for `DefaultSource`, so nothing needs to be
registered. Importing the package alone does not import PySpark: options, planner and tables work without it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_kafkalite.source import DefaultSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_kafkalite.source import DefaultSource

    return DefaultSource


def __dir__() -> list[str]:
    return sorted(__all__)
