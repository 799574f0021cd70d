"""Consumers and tools of Kafka 0.8 to 1.1 beside ours: answers of Java as data, processes of both, groups of both."""
