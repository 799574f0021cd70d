"""Configs of topics, brokers, client metrics and groups: describe, change, list the resources that have some."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafkalite.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkalite.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Address, OpenEnum, Operation, check_result, require
from kafkalite_sdk.admin.outcomes import Outcomes

Altered = IncrementalAlterConfigsRequest.AlterConfigsResource


class ResourceType(OpenEnum):
    """What has configs (ConfigResource.java); UNKNOWN = a type of a newer broker."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(OpenEnum):
    """Where the value of a config comes from (ConfigEntry.java); UNKNOWN = a source of a newer broker."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Resource(NamedTuple):
    """A resource with configs.

    Attributes:
        type: of the resource.
        name: of the topic, group or client metrics; the id of the broker, "" = the default of all brokers.
    """

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()}:{self.name}"

    @classmethod
    def topic(cls, name: str) -> "Resource":
        """Return the resource of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> "Resource":
        """Return the resource of a broker, None = the default of all brokers."""
        return cls(ResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> "Resource":
        """Return the loggers of a broker, whose configs are levels (KIP-412)."""
        return cls(ResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, name: str) -> "Resource":
        """Return the resource of a group."""
        return cls(ResourceType.GROUP, name)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A config that gives another one its value where nothing with precedence is set; `value` None = secret."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Config:
    """A config of a resource.

    Attributes:
        name: of the config.
        value: None = it is sensitive, or not set.
        source: where the value comes from.
        read_only: it cannot be changed while the broker runs.
        sensitive: its value is secret.
        synonyms: the values behind it, in order of precedence.
        documentation: None = not requested, or the broker has none.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def default(self) -> bool:
        """Whether the value is Kafka's default."""
        return self.source == ConfigSource.DEFAULT


class ConfigOperation(IntEnum):
    """What a change does with a config (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one config.

    Attributes:
        name: of the config.
        value: the new value, or the elements of a list to add or remove; None for DELETE.
        operation: SET, DELETE (the default is valid again), APPEND or SUBTRACT.
    """

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


Changes = Mapping[str, str | None] | tuple[ConfigChange, ...] | list[ConfigChange]
"""New values by name, None = the default is valid again; or a list of changes."""


class Configs:
    """The configs of a cluster.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def describe(
        self,
        *resources: Resource,
        names: tuple[str, ...] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[Resource, dict[str, Config]]:
        """Describe the effective configs of resources, by name.

        Arguments:
            resources: to describe.
            names: only these configs; None = all.
            synonyms, documentation: they are included.
        """

        def build(keys: list[Resource]) -> DescribeConfigsRequest:
            asked = DescribeConfigsRequest.DescribeConfigsResource
            wanted = None if names is None else list(names)
            return DescribeConfigsRequest(
                resources=[
                    asked(resource_type=key.type, resource_name=key.name, configuration_keys=wanted) for key in keys
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            )

        operation: Operation[Resource, dict[str, Config]] = Operation(
            DescribeConfigsRequest, build, _described, _broker_of
        )
        return await self._driver.run(operation, dict.fromkeys(resources), timeout)

    async def alter(
        self, changes: Mapping[Resource, Changes], *, validate_only: bool = False, timeout: float | None = None
    ) -> Outcomes[Resource, None]:
        """Change configs; those that are not named keep their values.

        Arguments:
            changes: of each resource.
            validate_only: the broker only checks whether it would change them.
        """

        def build(keys: list[Resource]) -> IncrementalAlterConfigsRequest:
            resources = [
                Altered(resource_type=key.type, resource_name=key.name, configs=_changes(changes[key])) for key in keys
            ]
            return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)

        operation: Operation[Resource, None] = Operation(IncrementalAlterConfigsRequest, build, _altered, _broker_of)
        return await self._driver.run(operation, changes, timeout)

    async def resources(self, *types: ResourceType, timeout: float | None = None) -> tuple[Resource, ...]:
        """List the resources that have configs (KIP-1142).

        Arguments:
            types: only these; none = all.

        Raises:
            KafkaError: they cannot be listed.
        """
        request = ListConfigResourcesRequest(resource_types=[int(each) for each in types])
        operation: Operation[None, tuple[Resource, ...]] = Operation(
            ListConfigResourcesRequest, lambda _: request, _resources
        )
        return (await self._driver.run(operation, [None], timeout))[None]


def _broker_of(resource: Resource) -> Address:
    """Return the broker that has the configs of a resource, None = any broker."""
    of_broker = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    return int(resource.name) if of_broker and resource.name.isdecimal() else None


def _changes(changes: Changes) -> list[Altered.AlterableConfig]:
    if isinstance(changes, Mapping):
        operations = (ConfigOperation.SET, ConfigOperation.DELETE)
        changes = [ConfigChange(name, value, operations[value is None]) for name, value in changes.items()]
    return [
        Altered.AlterableConfig(name=each.name, config_operation=each.operation, value=each.value) for each in changes
    ]


def _described(
    response: DescribeConfigsResponse, _: object
) -> Iterator[tuple[Resource, dict[str, Config] | KafkaError]]:
    for result in response.results:
        configs = {
            each.name: Config(
                each.name,
                each.value,
                ConfigSource(each.config_source),
                each.read_only,
                each.is_sensitive,
                tuple(ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in each.synonyms),
                each.documentation,
            )
            for each in result.configs
        }
        resource = Resource(ResourceType(result.resource_type), result.resource_name)
        yield resource, check_result(result.error_code, result.error_message, configs)


def _altered(response: IncrementalAlterConfigsResponse, _: object) -> Iterator[tuple[Resource, KafkaError | None]]:
    for each in response.responses:
        resource = Resource(ResourceType(each.resource_type), each.resource_name)
        yield resource, check_result(each.error_code, each.error_message, None)


def _resources(response: ListConfigResourcesResponse, _: object) -> Iterator[tuple[None, tuple[Resource, ...]]]:
    require(response.error_code)
    resources = (Resource(ResourceType(each.resource_type), each.resource_name) for each in response.config_resources)
    yield None, tuple(sorted(resources))
