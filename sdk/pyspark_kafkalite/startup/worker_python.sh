#!/bin/sh
# Starts a Python process for Spark without Spark's own copy of PySpark in the path of modules: pyspark.zip has no
# bytecode, so each process would compile PySpark again (0.8 s), and all imports would search the jar of Spark first.
# The interpreter has PySpark installed. Arguments are those of Python.
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
PYTHONPATH=$path exec "$KAFKALITE_WORKER_PYTHON" "$@"
