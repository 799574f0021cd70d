#!/bin/sh
# Starts a Python process for Spark without Spark's own copy of PySpark in the path of modules: pyspark.zip has no
# bytecode, so each process would compile PySpark again (0.8 s), and all imports would search the jar of Spark first.
# The interpreter has PySpark installed. Arguments are those of Python.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        "$SPARK_HOME"/python/lib/*.zip | "$SPARK_HOME"/jars/*.jar) ;;
        *) kept=$kept${kept:+:}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$kept exec "$KAFKALITE_WORKER_PYTHON" "$@"
