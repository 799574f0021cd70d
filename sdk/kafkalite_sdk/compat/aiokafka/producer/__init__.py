"""aiokafka's producer."""

from kafkalite_sdk.compat.aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
