"""The consumer and the producer of Kafka 0.8 to 1.1, whose groups and offsets are in ZooKeeper.

They work on ZooKeeper with Apache Kafka up to 3.9 or with kafkalite, and on the tree that kafkalite serves. Names are
imported on first use.
"""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite_sdk.zk.consumer.connector import ConsumerConnector as ConsumerConnector
    from kafkalite_sdk.zk.consumer.listener import ConsumerRebalanceListener as ConsumerRebalanceListener
    from kafkalite_sdk.zk.consumer.options import ConnectorOptions as ConnectorOptions
    from kafkalite_sdk.zk.consumer.streams import ConsumerTimeoutError as ConsumerTimeoutError
    from kafkalite_sdk.zk.consumer.streams import MessageStream as MessageStream
    from kafkalite_sdk.zk.membership.errors import ConsumerIdInUseError as ConsumerIdInUseError
    from kafkalite_sdk.zk.membership.errors import ConsumerRebalanceFailedError as ConsumerRebalanceFailedError
    from kafkalite_sdk.zk.membership.errors import OffsetCommitError as OffsetCommitError
    from kafkalite_sdk.zk.producer.callbacks import CallbackHandler as CallbackHandler
    from kafkalite_sdk.zk.producer.callbacks import KeyedMessage as KeyedMessage
    from kafkalite_sdk.zk.producer.producer import Producer as Producer
    from kafkalite_sdk.zk.simple_consumer import FetchedPartition as FetchedPartition
    from kafkalite_sdk.zk.simple_consumer import PartitionFetch as PartitionFetch
    from kafkalite_sdk.zk.simple_consumer import SimpleConsumer as SimpleConsumer

_MODULES = {
    "CallbackHandler": "kafkalite_sdk.zk.producer.callbacks",
    "ConnectorOptions": "kafkalite_sdk.zk.consumer.options",
    "ConsumerConnector": "kafkalite_sdk.zk.consumer.connector",
    "ConsumerIdInUseError": "kafkalite_sdk.zk.membership.errors",
    "ConsumerRebalanceFailedError": "kafkalite_sdk.zk.membership.errors",
    "ConsumerRebalanceListener": "kafkalite_sdk.zk.consumer.listener",
    "ConsumerTimeoutError": "kafkalite_sdk.zk.consumer.streams",
    "FetchedPartition": "kafkalite_sdk.zk.simple_consumer",
    "KeyedMessage": "kafkalite_sdk.zk.producer.callbacks",
    "MessageStream": "kafkalite_sdk.zk.consumer.streams",
    "OffsetCommitError": "kafkalite_sdk.zk.membership.errors",
    "PartitionFetch": "kafkalite_sdk.zk.simple_consumer",
    "Producer": "kafkalite_sdk.zk.producer.producer",
    "SimpleConsumer": "kafkalite_sdk.zk.simple_consumer",
}

__all__ = list(_MODULES)


__getattr__ = lazy_names(__name__, _MODULES)
