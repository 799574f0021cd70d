"""The client SDK for asyncio. It works with kafkalite and with Apache Kafka.

Names are imported on first use: `import kafkalite_sdk` alone loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite import errors as errors
    from kafkalite._version import VERSION as __version__
    from kafkalite.model import TopicPartition as TopicPartition
    from kafkalite.net.sasl.steps import ClientMechanism as ClientMechanism
    from kafkalite.net.sasl.steps import ClientSteps as ClientSteps
    from kafkalite.net.sasl.steps import Job as Job
    from kafkalite.net.sasl.tokens import OAuthToken as OAuthToken
    from kafkalite_sdk._speedups.consumer_records import Record as Record
    from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata as FutureRecordMetadata
    from kafkalite_sdk._speedups.deliveries import RecordMetadata as RecordMetadata
    from kafkalite_sdk.admin.admin import Admin as Admin
    from kafkalite_sdk.client.environment import Environment as Environment
    from kafkalite_sdk.client.options import AdminOptions as AdminOptions
    from kafkalite_sdk.client.options import ClientOptions as ClientOptions
    from kafkalite_sdk.client.security import SecurityOptions as SecurityOptions
    from kafkalite_sdk.consumer.consumer import Consumer as Consumer
    from kafkalite_sdk.consumer.health import ConsumerHealth as ConsumerHealth
    from kafkalite_sdk.consumer.listeners import RebalanceListener as RebalanceListener
    from kafkalite_sdk.consumer.parts import Deserializer as Deserializer
    from kafkalite_sdk.consumer.settings import ConsumerOptions as ConsumerOptions
    from kafkalite_sdk.producer.producer import Producer as Producer
    from kafkalite_sdk.producer.settings import ProducerOptions as ProducerOptions
    from kafkalite_sdk.values import DetachedTransaction as DetachedTransaction
    from kafkalite_sdk.values import OffsetAndMetadata as OffsetAndMetadata
    from kafkalite_sdk.values import OffsetAndTimestamp as OffsetAndTimestamp
    from kafkalite_sdk.values import ProducerRecord as ProducerRecord

_MODULES = {
    "Admin": "kafkalite_sdk.admin.admin",
    "AdminOptions": "kafkalite_sdk.client.options",
    "ClientMechanism": "kafkalite.net.sasl.steps",
    "ClientOptions": "kafkalite_sdk.client.options",
    "ClientSteps": "kafkalite.net.sasl.steps",
    "Consumer": "kafkalite_sdk.consumer.consumer",
    "ConsumerHealth": "kafkalite_sdk.consumer.health",
    "ConsumerOptions": "kafkalite_sdk.consumer.settings",
    "Deserializer": "kafkalite_sdk.consumer.parts",
    "DetachedTransaction": "kafkalite_sdk.values",
    "Environment": "kafkalite_sdk.client.environment",
    "FutureRecordMetadata": "kafkalite_sdk._speedups.deliveries",
    "Job": "kafkalite.net.sasl.steps",
    "OAuthToken": "kafkalite.net.sasl.tokens",
    "OffsetAndMetadata": "kafkalite_sdk.values",
    "OffsetAndTimestamp": "kafkalite_sdk.values",
    "Producer": "kafkalite_sdk.producer.producer",
    "ProducerOptions": "kafkalite_sdk.producer.settings",
    "ProducerRecord": "kafkalite_sdk.values",
    "RebalanceListener": "kafkalite_sdk.consumer.listeners",
    "Record": "kafkalite_sdk._speedups.consumer_records",
    "RecordMetadata": "kafkalite_sdk._speedups.deliveries",
    "SecurityOptions": "kafkalite_sdk.client.security",
    "TopicPartition": "kafkalite.model",
}

__all__ = [*_MODULES, "__version__", "errors"]


def __getattr__(name: str) -> object:
    if name == "errors":
        value: object = import_module("kafkalite.errors")
    elif name == "__version__":
        value = import_module("kafkalite._version").VERSION
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
