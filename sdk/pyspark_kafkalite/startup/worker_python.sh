#!/bin/sh
# Starts a Python process for Spark without Spark's own copy of PySpark in the path of modules: pyspark.zip has no
# bytecode, so each process would compile PySpark again (0.8 s), and all imports would search the jar of Spark first.
# The interpreter has PySpark installed. Arguments are those of Python.
# Spark sets OMP_NUM_THREADS for its workers (spark.task.cpus), but not for its planners, where the import of numpy would
# start and spin threads (0.2 s of CPU time).
: "${KAFKALITE_WORKER_PYTHON:?it is set for a local master only; set PYSPARK_PYTHON to an interpreter}"
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
    case $entry in
        "$SPARK_HOME"/python/lib/*.zip | "$SPARK_HOME"/jars/*.jar) ;;
        *) path=$path${path:+:}$entry ;;
    esac
done
unset IFS
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
PYTHONPATH=$path exec "$KAFKALITE_WORKER_PYTHON" "$@"
