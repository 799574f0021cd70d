"""aiokafka's interface on the SDK's engine: programs written for aiokafka 0.14 run on it unedited.

    import kafkalite_sdk.compat.aiokafka as aiokafka     # a program that can be edited
    kafkalite_sdk.compat.aiokafka.install()              # before any module imports aiokafka
    python -m kafkalite_sdk.compat.aiokafka app:main     # a program that cannot be edited

docs/aiokafka.md lists the differences.
"""

from typing import NoReturn

from kafkalite_sdk.compat.aiokafka.abc import ConsumerRebalanceListener
from kafkalite_sdk.compat.aiokafka.client import AIOKafkaClient
from kafkalite_sdk.compat.aiokafka.consumer.consumer import AIOKafkaConsumer
from kafkalite_sdk.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from kafkalite_sdk.compat.aiokafka.installation import VERSION, install, missing
from kafkalite_sdk.compat.aiokafka.producer.producer import AIOKafkaProducer
from kafkalite_sdk.compat.aiokafka.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__version__ = VERSION
__all__ = [
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "install",
]


def __getattr__(name: str) -> NoReturn:
    raise missing(f"aiokafka.{name}")
