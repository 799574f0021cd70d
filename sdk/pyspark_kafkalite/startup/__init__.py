"""Starts a driver's JVM and Spark's Python workers faster: call `quick_start` before the session is created."""

from pyspark_kafkalite.startup.quick_start import quick_start

__all__ = ["quick_start"]
