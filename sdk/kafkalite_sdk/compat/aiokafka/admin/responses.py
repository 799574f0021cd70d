"""Responses in the shape of aiokafka's: attributes, and `to_object` for dicts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalite.errors import KafkaError, KafkaErrorCode
from kafkalite_sdk.admin.configs import Config, Resource


class TopicError(NamedTuple):
    """The outcome of a topic; code 0 = success."""

    topic: str
    error_code: int
    error_message: str | None


class TopicErrorCode(NamedTuple):
    """The outcome of a topic; code 0 = success."""

    topic: str
    error_code: int


class ConfigSynonym(NamedTuple):
    """A config behind another one."""

    config_name: str
    config_value: str | None
    config_source: int


class ConfigEntry(NamedTuple):
    """A config; `config_names` is its name."""

    config_names: str
    config_value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    config_synonyms: list[ConfigSynonym]


class DescribedResource(NamedTuple):
    """A resource with its configs; code 0 = success."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    config_entries: list[ConfigEntry]


class AlteredResource(NamedTuple):
    """The outcome of a resource; code 0 = success."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class Response:
    """A response.

    Arguments:
        fields: its attributes.
    """

    throttle_time_ms = 0

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def to_object(self) -> dict[str, Any]:
        """Return the fields; named tuples in lists as dicts."""
        return {"throttle_time_ms": 0, **{name: _plain(value) for name, value in vars(self).items()}}

    def __repr__(self) -> str:
        return f"Response({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return value


def code_of(outcome: object) -> int:
    """Return the code of an outcome, 0 = success. An error without a code is raised."""
    if not isinstance(outcome, KafkaError):
        return 0
    if outcome.code is None:
        raise outcome
    return int(outcome.code)


def topic_errors(ended: Mapping[str, object]) -> list[TopicError]:
    """Return the outcomes of topics."""
    return [TopicError(name, code_of(each), _message(each)) for name, each in ended.items()]


def describe_resource(resource: Resource, outcome: Mapping[str, Config] | KafkaError) -> DescribedResource:
    """Return a resource with its configs."""
    configs = {} if isinstance(outcome, KafkaError) else outcome
    return DescribedResource(
        code_of(outcome),
        _message(outcome),
        int(resource.type),
        resource.name,
        [_entry(each) for each in configs.values()],
    )


def _entry(config: Config) -> ConfigEntry:
    synonyms = [ConfigSynonym(each.name, each.value, int(each.source)) for each in config.synonyms]
    source = int(config.source)
    return ConfigEntry(config.name, config.value, config.read_only, source, config.sensitive, synonyms)


def _message(outcome: object) -> str | None:
    if not isinstance(outcome, KafkaError) or outcome.code is None:
        return None
    return getattr(outcome, "message", None) or KafkaErrorCode(outcome.code).message
