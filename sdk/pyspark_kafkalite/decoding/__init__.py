"""Decodes keys and values for `ingest`: text, JSON, Avro and Protobuf. A bad value costs only its own row.

    ingest(spark, "/data/orders", options, checkpoint=..., decoding=Decoding(value="json", schema="id bigint, at date"))

`Decoding` is what a user chooses; `drift_report` says how the data of a table differs from its schema.
"""

from pyspark_kafkalite.decoding.options import Decoding
from pyspark_kafkalite.decoding.report import drift_report

__all__ = ["Decoding", "drift_report"]
