"""The tags of kafkalite's own fields in Kafka's messages. Apache Kafka ignores them: its own tags count from 0."""

ELIGIBLE_REPLICAS = 10_000
