"""Options for the JVMs of Spark that tests start, and an archive of the classes that a driver loads.

A driver that copies ten rows costs 29 s of CPU time with Java's defaults, 15 s with C1 and the serial collector, and
8 s with the archive, too.
"""

import pyspark
from pyspark_kafkalite.startup import cds_archive

from tests.kit import jvm

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = jvm.cache_directory().resolve() / "jars" / f"spark-{pyspark.__version__}.jsa"
OPTIONS = f"{QUICK} {cds_archive.java_options(ARCHIVE)}"
ENVIRONMENT = {"SPARK_SUBMIT_OPTS": OPTIONS, "SPARK_DAEMON_JAVA_OPTS": OPTIONS, "SPARK_LAUNCHER_OPTS": QUICK}
"""For drivers, for the master and the workers of a cluster, and for the JVM that builds their command lines."""


def write_archive() -> None:
    """Write the archive if it is missing; Spark must be able to start."""
    if not ARCHIVE.exists():
        cds_archive.write_archive(ARCHIVE, QUICK)
