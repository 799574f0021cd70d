"""The API keys that this broker serves, one line each. Dispatch and ApiVersions are derived from the table.

To add an API key, write `protocol/messages/NAME.py` with its request and response, `handlers/NAME.py` with the function
NAME, and its line in `ROWS`, or in `CLUSTER_ROWS` for a key that only a broker in a cluster serves.

The messages and the handler of a key are imported by its first request: a start imports none of them. So a line repeats
the key and the versions of the request class; a line that differs from the class fails in `Row.load`.
"""

from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any, Self

from kafkalite._speedups.codec import decode

Decode = Callable[[type[Any], int, memoryview, bool, int], Any]
Handler = Callable[[Any, Any], Any]


class Row:
    """One API key.

    Arguments:
        name: of the modules of its messages and its handler, and of the function in the latter.
        api_key: its number.
        version_min, version_max: the versions that are served.
        advertised_min: the minimum version that ApiVersions reports, None = version_min.
        of_groups: its handler needs the group coordinator, which is imported before it.
        between_brokers: only brokers send it: it is served on the listener between brokers alone.
        package: of the messages; `extensions` are described in docs/protocol-extensions.md.

    Attributes, set by `load`:
        loaded: whether it was called.
        request, response: the message classes.
        handler: (call, request) -> response, or None when it answers through the call.
        decode: as `decoder.decode`; the `decode_request` of the handler's module where it has one, which may return
            another object than the request.
    """

    def __init__(
        self,
        name: str,
        api_key: int,
        version_min: int,
        version_max: int,
        *,
        advertised_min: int | None = None,
        of_groups: bool = False,
        between_brokers: bool = False,
        package: str = "messages",
    ) -> None:
        self.module = name
        self.name = name.title().replace("_", "")  # Kafka's name of the key
        self.api_key = api_key
        self.version_min = version_min
        self.version_max = version_max
        self.advertised_min = version_min if advertised_min is None else advertised_min
        self.of_groups = of_groups
        self.between_brokers = between_brokers
        self.package = package
        self.loaded = False
        self.request: type[Any]
        self.response: type[Any]
        self.handler: Handler
        self.decode: Decode

    def load(self) -> Self:
        """Import the messages and the handler, once.

        Raises TypeError where the request class has another key or lacks versions; it may have older ones for clients.
        """
        if self.loaded:
            return self
        messages = import_module(f"kafkalite.protocol.{self.package}.{self.module}")
        self.request, self.response = (
            getattr(messages, f"{self.name}Request"),
            getattr(messages, f"{self.name}Response"),
        )
        declared = (self.request.api_key, *self.request.versions)
        if declared[1] > self.version_min or declared[::2] != (self.api_key, self.version_max):
            raise TypeError(f"{self.name}: key and versions in the table differ from those of the class, {declared}")
        handlers = import_module(f"kafkalite.server.handlers.{self.module}")
        self.handler = getattr(handlers, self.module)
        self.decode = getattr(handlers, "decode_request", decode)
        self.loaded = True
        return self

    def load_in_steps(self) -> Generator[None, None, None]:
        """Load the handlers as `load` does, in the steps of `Slicer.run`: a handler of groups needs some 80 modules."""
        if self.of_groups:
            from kafkalite.server.requests.preload import import_group_coordinator  # a start does not need it

            yield from import_group_coordinator()
        self.load()


ROWS = (
    Row("produce", 0, 3, 13, advertised_min=0),  # old librdkafka must see it from 0 (KAFKA-18659)
    Row("fetch", 1, 4, 18),
    Row("list_offsets", 2, 1, 11),
    Row("metadata", 3, 0, 13),
    Row("offset_commit", 8, 2, 10, of_groups=True),
    Row("offset_fetch", 9, 1, 10, of_groups=True),
    Row("find_coordinator", 10, 0, 6, of_groups=True),
    Row("join_group", 11, 0, 9, of_groups=True),
    Row("heartbeat", 12, 0, 4, of_groups=True),
    Row("leave_group", 13, 0, 5, of_groups=True),
    Row("sync_group", 14, 0, 5, of_groups=True),
    Row("describe_groups", 15, 0, 6, of_groups=True),
    Row("list_groups", 16, 0, 5, of_groups=True),
    Row("sasl_handshake", 17, 0, 1),
    Row("api_versions", 18, 0, 4),
    Row("create_topics", 19, 2, 7),
    Row("delete_topics", 20, 1, 6),
    Row("delete_records", 21, 0, 2),
    Row("init_producer_id", 22, 0, 5),
    Row("offset_for_leader_epoch", 23, 2, 4),
    Row("add_partitions_to_txn", 24, 0, 5),
    Row("add_offsets_to_txn", 25, 0, 4, of_groups=True),
    Row("end_txn", 26, 0, 5),
    Row("write_txn_markers", 27, 1, 2, of_groups=True),
    Row("txn_offset_commit", 28, 0, 5, of_groups=True),
    Row("describe_acls", 29, 1, 3),
    Row("create_acls", 30, 1, 3),
    Row("delete_acls", 31, 1, 3),
    Row("describe_configs", 32, 1, 4),
    Row("alter_configs", 33, 0, 2),
    Row("alter_replica_log_dirs", 34, 1, 2),
    Row("describe_log_dirs", 35, 1, 5),
    Row("sasl_authenticate", 36, 0, 2),
    Row("create_partitions", 37, 0, 3),
    Row("create_delegation_token", 38, 1, 3),
    Row("renew_delegation_token", 39, 1, 2),
    Row("expire_delegation_token", 40, 1, 2),
    Row("describe_delegation_token", 41, 1, 3),
    Row("delete_groups", 42, 0, 2, of_groups=True),
    Row("elect_leaders", 43, 0, 2),
    Row("incremental_alter_configs", 44, 0, 1),
    Row("alter_partition_reassignments", 45, 0, 1),
    Row("list_partition_reassignments", 46, 0, 0),
    Row("offset_delete", 47, 0, 0, of_groups=True),
    Row("describe_client_quotas", 48, 0, 1),
    Row("alter_client_quotas", 49, 0, 1),
    Row("describe_user_scram_credentials", 50, 0, 0),
    Row("alter_user_scram_credentials", 51, 0, 0),
    Row("update_features", 57, 0, 2),
    Row("describe_cluster", 60, 0, 2),
    Row("describe_producers", 61, 0, 0),
    Row("describe_transactions", 65, 0, 0),
    Row("list_transactions", 66, 0, 2),
    Row("consumer_group_heartbeat", 68, 0, 1, of_groups=True),
    Row("consumer_group_describe", 69, 0, 1, of_groups=True),
    Row("list_config_resources", 74, 0, 1),
    Row("describe_topic_partitions", 75, 0, 0),
    Row("list_groups_plus", 10000, 0, 0, of_groups=True, package="extensions"),
    Row("create_group", 10001, 0, 0, of_groups=True, package="extensions"),
    Row("delete_group", 10002, 0, 0, of_groups=True, package="extensions"),
    Row("register_consumer", 10003, 0, 0, of_groups=True, package="extensions"),
    Row("heartbeat_plus", 10004, 0, 0, of_groups=True, package="extensions"),
    Row("rewind_consumer", 10005, 0, 0, of_groups=True, package="extensions"),
    Row("list_segments", 10006, 0, 0, package="extensions"),
)

CLUSTER_ROWS = (  # served by a broker in a cluster, besides `ROWS`
    Row("leader_and_isr", 4, 0, 7, between_brokers=True),
    Row("stop_replica", 5, 0, 4, between_brokers=True),
    Row("update_metadata", 6, 0, 8, between_brokers=True),
    Row("controlled_shutdown", 7, 0, 3, between_brokers=True),
    Row("alter_partition", 56, 2, 3, between_brokers=True),
    Row("describe_coordination", 10007, 0, 0, package="extensions"),
)
