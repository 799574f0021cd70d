"""The API keys that this broker serves, one line each. Dispatch and ApiVersions are derived from the table.

To add an API key, write `protocol/messages/NAME.py` with its request and response, `handlers/NAME.py` with the function
NAME, and its line in `ROWS`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from kafkalite._speedups.codec.codec import decode
from kafkalite.server.offset_commit_decoder import decode_commit


@dataclass(frozen=True, slots=True)
class Row:
    """One API key.

    Arguments:
        request: the message class; its module has the response, and its versions are served.
        handler: (call, request) -> response, or None when it answers through the call.
        advertised_from: the minimum version that ApiVersions reports, None = the lowest that is served.
        decode: as `codec.decode`; may return another object than the request if the handler accepts it.

    Attributes:
        response: the message class.
        name: Kafka's name of the key.
    """

    request: type[Any]
    handler: Callable[[Any, Any], Any]
    advertised_from: int | None = None
    decode: Callable[[Any, int, memoryview, bool, int], Any] = decode
    response: type[Any] = field(init=False)
    api_key: int = field(init=False)
    name: str = field(init=False)
    version_min: int = field(init=False)
    version_max: int = field(init=False)

    def __post_init__(self) -> None:
        put, name = object.__setattr__, self.request.__name__.removesuffix("Request")
        put(self, "response", getattr(sys.modules[self.request.__module__], f"{name}Response"))
        put(self, "api_key", int(self.request.api_key))
        put(self, "name", name)
        put(self, "version_min", int(self.request.versions[0]))
        put(self, "version_max", int(self.request.versions[1]))

    @property
    def advertised_min(self) -> int:
        return self.version_min if self.advertised_from is None else self.advertised_from


def row(name: str, *, of_groups: bool = False, package: str = "messages", **options: Any) -> Row:
    """Return the row of an API key.

    Arguments:
        name: of its modules and of its handler; its request is the class `<Name>Request`.
        of_groups: its handler is imported with its first request: groups are loaded on first use (`Broker.groups`).
        package: of the messages; `extensions` are described in docs/protocol-extensions.md.
        options: further arguments of `Row`.
    """
    messages = import_module(f"kafkalite.protocol.{package}.{name}")
    request = getattr(messages, name.title().replace("_", "") + "Request")
    return Row(request, imported_on_first_use(name) if of_groups else handler_of(name), **options)


def handler_of(name: str) -> Callable[[Any, Any], Any]:
    """Import the handler of an API key."""
    handler: Callable[[Any, Any], Any] = getattr(import_module(f"kafkalite.server.handlers.{name}"), name)
    return handler


def imported_on_first_use(name: str) -> Callable[[Any, Any], Any]:
    """Return a handler that imports the handler of an API key with its first request."""
    found: Callable[[Any, Any], Any] | None = None

    def handler(call: Any, request: Any) -> Any:
        nonlocal found
        if found is None:
            found = handler_of(name)
        return found(call, request)

    return handler


ROWS = (
    row("produce", advertised_from=0),  # old librdkafka must see it from 0 (KAFKA-18659)
    row("fetch"),
    row("list_offsets"),
    row("metadata"),
    row("offset_commit", of_groups=True, decode=decode_commit),
    row("offset_fetch", of_groups=True),
    row("find_coordinator", of_groups=True),
    row("join_group", of_groups=True),
    row("heartbeat", of_groups=True),
    row("leave_group", of_groups=True),
    row("sync_group", of_groups=True),
    row("describe_groups", of_groups=True),
    row("list_groups", of_groups=True),
    row("api_versions"),
    row("create_topics"),
    row("delete_topics"),
    row("delete_records"),
    row("init_producer_id"),
    row("offset_for_leader_epoch"),
    row("describe_configs"),
    row("alter_configs"),
    row("describe_log_dirs"),
    row("create_partitions"),
    row("delete_groups", of_groups=True),
    row("incremental_alter_configs"),
    row("list_partition_reassignments"),
    row("offset_delete", of_groups=True),
    row("describe_cluster"),
    row("consumer_group_heartbeat", of_groups=True),
    row("consumer_group_describe", of_groups=True),
    row("describe_producers"),
    row("describe_topic_partitions"),
    row("list_groups_plus", of_groups=True, package="extensions"),
    row("create_group", of_groups=True, package="extensions"),
    row("delete_group", of_groups=True, package="extensions"),
    row("register_consumer", of_groups=True, package="extensions"),
    row("heartbeat_plus", of_groups=True, package="extensions"),
    row("rewind_consumer", of_groups=True, package="extensions"),
)
