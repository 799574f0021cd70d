"""Kafka topics in Spark through PySpark, without a jar: `spark.read.format("kafkalite")`.

Spark imports every package whose name begins with `pyspark_` and looks for `DefaultSource`, so nothing needs to be
registered. Importing the package alone does not import PySpark: options, planner and tables work without it.
"""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from pyspark_kafkalite.source import DefaultSource as DefaultSource

__all__ = ["DefaultSource"]


__getattr__ = lazy_names(__name__, {"DefaultSource": "pyspark_kafkalite.source"})


def __dir__() -> list[str]:
    return sorted(__all__)
