"""The types of resources that have configs, by their numbers in requests (ConfigResource.Type in Kafka)."""

import enum


class ResourceType(enum.IntEnum):
    """A type of resource."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
