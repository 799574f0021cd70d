"""Starts a driver's JVM and Spark's workers faster: call `configure_fast_start` before the session is created."""

from pyspark_kafkalite.startup.variables import configure_fast_start

__all__ = ["configure_fast_start"]
