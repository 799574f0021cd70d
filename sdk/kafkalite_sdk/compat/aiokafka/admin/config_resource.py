"""aiokafka's resources with configs."""

from collections.abc import Mapping
from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The type of a resource."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A resource.

    Arguments:
        resource_type: a type or its name.
        name: of the topic, or the broker id.
        configs: values by name to set, or names to describe; None = all.
    """

    def __init__(
        self, resource_type: ConfigResourceType | str, name: str, configs: Mapping[str, str] | None = None
    ) -> None:
        is_type = isinstance(resource_type, ConfigResourceType)
        self.resource_type = resource_type if is_type else ConfigResourceType[str(resource_type).upper()]
        self.name = name
        self.configs = configs
