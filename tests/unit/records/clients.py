"""The record modules of aiokafka and kafka-python; importing the latter warns on Python 3.11 and later."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as kafka_python
    import kafka.record.legacy_records as kafka_python_legacy

import aiokafka.record._crecords as aiokafka_compiled
import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.legacy_records as aiokafka_legacy

__all__ = ["aiokafka_compiled", "aiokafka_legacy", "aiokafka_records", "kafka_python", "kafka_python_legacy"]
