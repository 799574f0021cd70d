"""The arguments of aiokafka's consumer as options of the engine's."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from kafkalite_sdk.compat.aiokafka.abc import ConsumerRebalanceListener
from kafkalite_sdk.compat.aiokafka.consumer.user_assignor import Assignors, engine_assignors
from kafkalite_sdk.compat.aiokafka.settings import CLIENT_ARGUMENTS, client_options, warn_of
from kafkalite_sdk.consumer.consumer import Consumer

SAME = (
    "fetch_max_wait_ms",
    "fetch_max_bytes",
    "fetch_min_bytes",
    "max_partition_fetch_bytes",
    "auto_offset_reset",
    "check_crcs",
    "isolation_level",
    "client_rack",
)
SAME_IN_GROUPS = (
    "group_instance_id",
    "enable_auto_commit",
    "auto_commit_interval_ms",
    "max_poll_interval_ms",
    "session_timeout_ms",
    "heartbeat_interval_ms",
)
"""Arguments with the same name and meaning in the engine."""


def new_consumer(
    subscription: Callable[[], Iterable[str]],
    *,
    bootstrap_servers: str | list[str],
    group_id: str | None,
    partition_assignment_strategy: Assignors,
    max_poll_records: int | None,
    **arguments: Any,
) -> Consumer[bytes, bytes]:
    """Return the engine's consumer for the arguments of aiokafka's.

    Arguments:
        subscription: returns the names of the subscribed topics.
        bootstrap_servers, group_id, partition_assignment_strategy, max_poll_records: as in aiokafka.
        arguments: all others.

    Raises: ValueError, TypeError for those that are not valid or not supported.
    """
    warn_of(api_version=arguments["api_version"])
    if max_poll_records is not None and (not isinstance(max_poll_records, int) or max_poll_records < 1):
        raise ValueError(f"`max_poll_records` should be positive Integer, it is {max_poll_records!r}")
    if arguments["isolation_level"] not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"Incorrect isolation level {arguments['isolation_level']}")
    if group_id == "":
        raise ValueError("group_id is empty; pass None to read without a group")
    options = {name: arguments[name] for name in SAME}
    options["check_crcs"] = bool(options["check_crcs"])
    if group_id is not None:
        options |= {name: arguments[name] for name in SAME_IN_GROUPS}
        options["enable_auto_commit"] = bool(options["enable_auto_commit"])
        options |= {"group": group_id, "group_protocol": "classic"}
        options["partition_assignment_strategy"] = engine_assignors(partition_assignment_strategy, subscription)
    client = client_options(**{name: arguments[name] for name in CLIENT_ARGUMENTS})
    return Consumer(bootstrap_servers, **options, **client)


def subscribed_topics(
    topics: Iterable[str], pattern: str | None, listener: ConsumerRebalanceListener | None
) -> frozenset[str]:
    """Return the names of a subscription, empty for a pattern.

    Arguments: those of `AIOKafkaConsumer.subscribe`.

    Raises: TypeError, ValueError with aiokafka's text.
    """
    if not (topics or pattern):
        raise TypeError("You should provide either `topics` or `pattern`")
    if topics and pattern:
        raise TypeError("You can't provide both `topics` and `pattern`")
    if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
        raise TypeError("listener should be an instance of ConsumerRebalanceListener")
    if not isinstance(topics, tuple | set | list | frozenset):
        raise TypeError("Topics should be list of strings")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
    return frozenset(topics)
