"""The clients by name. A module is imported on use, so that each process loads only its own library."""

from importlib import import_module

from perf.clients.base import Client

MODULES = {
    "kafkalite": "sdk",
    "confluent": "confluent",
    "confluent-aio": "confluent_aio",
    "aiokafka": "aio_kafka",
    "kafka-python": "kafka_python",
    "kafkalite-records": "sdk_records",
    "kafkalite-aiokafka": "sdk_aiokafka",
    "kafkarrow": "kafkarrow",
}


def load(name: str) -> Client:
    """The client of that name. Raises ModuleNotFoundError where its library is not installed."""
    client: Client = import_module(f"perf.clients.{MODULES[name]}").CLIENT
    return client
