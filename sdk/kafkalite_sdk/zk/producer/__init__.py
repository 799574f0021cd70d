"""The producer of Kafka 0.8: a thin layer over the producer of the SDK."""
