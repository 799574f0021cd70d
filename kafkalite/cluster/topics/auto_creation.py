"""Automatic creation of topics: which unknown topics of a Metadata request are created, and what the client receives.

1. Topics are created if the request and `auto.create.topics.enable` allow it (`is_allowed`).
2. A topic has the number of partitions of `topic.partition.count.map` or `num.partitions`, and the default replication
   factor. An internal topic has the settings of its coordinator.
3. A topic that another broker has created meanwhile counts as created. In a cluster a new topic has the error
   LEADER_NOT_AVAILABLE: its leader is elected later, and the client repeats its request.

Source: AutoTopicCreationManager.scala of Apache Kafka 3.9.
"""

from collections.abc import Callable

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.topics.internal_topics import INTERNAL_TOPICS
from kafkalite.cluster.topics.manager import NewTopic, TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode


def is_allowed(config: BrokerConfig, *, requested: bool) -> bool:
    """Whether a request may create topics.

    Arguments:
        config: of the broker.
        requested: whether the client asks for it; clients before version 4 of Metadata always do.
    """
    return requested and config.auto_create_topics_enable


def create_on_demand(
    topics: TopicManager, config: BrokerConfig, names: list[str], then: Callable[[dict[str, int]], None]
) -> None:
    """Create unknown topics; the caller has asked `is_allowed`.

    Arguments:
        topics: creates them.
        config: of the broker.
        names: of the topics; a repeated one counts once.
        then: receives the error codes by topic, without those that were created and have leaders.
    """
    asked = [new_topic(topics, config, name) for name in dict.fromkeys(names)]

    def created(outcomes: list[Refusal | None]) -> None:
        errors: dict[str, int] = {}
        for new, refusal in zip(asked, outcomes, strict=True):
            if refusal is None and new.name in INTERNAL_TOPICS:
                topics.control.warn_of_few_replicas(INTERNAL_TOPICS[new.name])
            if refusal is not None:
                errors[new.name] = refusal.error
            elif topics.control.shared:
                errors[new.name] = KafkaErrorCode.LEADER_NOT_AVAILABLE
        then(errors)

    topics.create_for_broker(asked, created)


def new_topic(topics: TopicManager, config: BrokerConfig, name: str) -> NewTopic:
    """The request for a topic of this name (rule 2)."""
    internal = INTERNAL_TOPICS.get(name)
    if internal is not None:
        return topics.internal_topic(internal)
    return NewTopic(name, config.topic_partition_count_map.get(name))
