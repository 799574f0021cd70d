"""The consumer and the producer of Kafka 0.8 to 1.1, whose groups and offsets are in ZooKeeper."""
