"""aiokafka's consumer."""

from kafkalite_sdk.compat.aiokafka.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
