"""The settings of a consumer in seconds and bytes, made from the keyword arguments of `Consumer`.

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kafkalite_sdk.client.arguments import (
    boolean,
    integer,
    reject_positional,
    reject_unknown,
    seconds_above_0,
    seconds_of,
    text,
)
from kafkalite_sdk.client.options import ClientOptions, parse_client
from kafkalite_sdk.client.settings import ClientSettings
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.offsets.offset_reset import ResetPolicy, parse_reset_policy

if TYPE_CHECKING:
    from kafkalite_sdk.membership.assignors import ClassicAssignor
    from kafkalite_sdk.membership.settings import MembershipSettings

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
RECORDS_MAX = 500
AUTO_COMMIT_INTERVAL_MS = 5000
CLOSE_TIMEOUT_MS = 10_000


class ConsumerOptions(ClientOptions, total=False):
    """The keyword arguments of `Consumer` under Java's names, with those of `ClientOptions`. Times are milliseconds.

    Attributes:
        group: of consumers that share the partitions of their topics; None = only `assign`, without commits.
        group_protocol: "classic", "consumer" (KIP-848) or "registered" (kafkalite); "auto" = the protocol of the live
            members, else "consumer" where the broker serves it, else "classic".
        group_instance_id: makes the member a static one, which keeps its partitions during a restart.
        partition_assignment_strategy: assignors of the classic protocol, in order of preference.
        group_remote_assignor: assignor of the broker for the other protocols; None = its default.
        session_timeout_ms: the broker removes a member without heartbeats after this time.
        heartbeat_interval_ms: between two heartbeats.
        max_poll_interval_ms: a consumer that does not poll for this time leaves its group.
        enable_auto_commit: commit what the previous poll has returned, also when partitions are revoked and at close.
        auto_commit_interval_ms: between two automatic commits.
        close_timeout_ms: longest time that `close`, `unsubscribe` and the end of `async with` wait for commits and for
            the group (10,000).
        auto_offset_reset: where to begin without a valid offset: "earliest", "latest", "none" (an error), or
            "by_duration:" with an ISO 8601 duration, such as "by_duration:PT24H".
        max_poll_records: the most records of one `poll`.
        isolation_level: "read_uncommitted", or "read_committed" for records of committed transactions only.
        fetch_min_bytes, fetch_max_wait_ms: the broker waits for that many bytes, up to that time.
        fetch_max_bytes, max_partition_fetch_bytes: of a response, and of a partition in it.
        check_crcs: compare the checksums of batches.
        client_rack: records are read from a replica in this rack where the broker permits it (KIP-392).
    """

    group: str | None
    group_protocol: str
    group_instance_id: str | None
    partition_assignment_strategy: "Sequence[str | ClassicAssignor]"
    group_remote_assignor: str | None
    session_timeout_ms: float
    heartbeat_interval_ms: float
    max_poll_interval_ms: float
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    close_timeout_ms: float
    auto_offset_reset: str
    max_poll_records: int
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_wait_ms: float
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    client_rack: str | None


FLAGS = ("enable_auto_commit", "check_crcs")
TEXTS = ("group_protocol", "auto_offset_reset", "isolation_level")
OPTIONAL_TEXTS = ("group", "group_instance_id", "group_remote_assignor", "client_rack")
GROUP_TIMES = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "metadata_max_age_ms",
)
FETCH_SIZES = {
    "fetch_min_bytes": "min_bytes",
    "fetch_max_bytes": "max_bytes",
    "max_partition_fetch_bytes": "partition_max_bytes",
}


class ConsumerSettings(NamedTuple):
    """The settings of a consumer, times in seconds.

    Attributes:
        client: of the connections and the metadata.
        fetch: of the requests for records.
        group: None = the consumer has no group.
        policy: where to begin without a valid offset; None = that is an error.
        auto_commit_interval_s: None = the application commits.
        close_timeout_s: longest time of a close.
        records_max: of one `poll`.
        isolation_level: 1 = records of committed transactions only.
        fetches_between_polls: records are also requested while the application does not poll.
    """

    client: ClientSettings
    fetch: FetchSettings
    group: "MembershipSettings | None"
    policy: ResetPolicy | None
    auto_commit_interval_s: float | None
    close_timeout_s: float
    records_max: int
    isolation_level: int
    fetches_between_polls: bool = False


def consumer_settings(
    bootstrap_servers: str | Iterable[str], options: ConsumerOptions, misplaced: Sequence[object] = ()
) -> ConsumerSettings:
    """Validate the arguments of `Consumer`.

    Arguments:
        bootstrap_servers: `host:port`, separated by commas or as a list.
        options: the keyword arguments.
        misplaced: further positional arguments; there must be none.

    Raises:
        TypeError: an argument does not exist, or its value has another type. ValueError: a value is not valid.
    """
    reject_positional("Consumer", 'Consumer("localhost:9092", group="name"), then subscribe("topic")', misplaced)
    reject_unknown("Consumer", options, ConsumerOptions.__annotations__)
    given = cast(dict[str, Any], options)
    _check_types(given)
    level = given.get("isolation_level", "read_uncommitted")
    if level not in ISOLATION_LEVELS:
        raise ValueError(f"isolation_level is {level!r}, expected one of {', '.join(ISOLATION_LEVELS)}")
    interval_s = seconds_above_0(
        "auto_commit_interval_ms", given.get("auto_commit_interval_ms", AUTO_COMMIT_INTERVAL_MS)
    )
    close_s = seconds_above_0("close_timeout_ms", given.get("close_timeout_ms", CLOSE_TIMEOUT_MS))
    commits = given.get("group") is not None and given.get("enable_auto_commit", True)
    return ConsumerSettings(
        client=parse_client(bootstrap_servers, given),
        fetch=_fetch_settings(given, ISOLATION_LEVELS[level]),
        group=_group_settings(given),
        policy=parse_reset_policy(given.get("auto_offset_reset", "latest")),
        auto_commit_interval_s=interval_s if commits else None,
        close_timeout_s=close_s,
        records_max=integer("max_poll_records", given.get("max_poll_records", RECORDS_MAX)),
        isolation_level=ISOLATION_LEVELS[level],
    )


def _check_types(given: Mapping[str, Any]) -> None:
    """Raise TypeError for a text or a flag of another type; numbers are checked where they are read."""
    for name in FLAGS:
        boolean(name, given.get(name, True))
    for name in TEXTS:
        text(name, given.get(name, ""))
    for name in OPTIONAL_TEXTS:
        if given.get(name) is not None:
            text(name, given[name])


def _group_settings(given: Mapping[str, Any]) -> "MembershipSettings | None":
    group = given.get("group")
    if group is None:
        for name in ("group_instance_id", "group_remote_assignor", "group_protocol"):
            if given.get(name) is not None:
                raise ValueError(f'{name} needs a group; pass group="name", too')
        return None
    from kafkalite_sdk.membership.assignors import assignors_named
    from kafkalite_sdk.membership.settings import MembershipSettings, check_membership

    times = seconds_of(GROUP_TIMES, given)
    if "partition_assignment_strategy" in given:
        times["assignors"] = assignors_named(given["partition_assignment_strategy"])
    settings = MembershipSettings(
        group,
        protocol=given.get("group_protocol", "auto"),
        instance_id=given.get("group_instance_id"),
        client_id=given.get("client_id", "kafkalite"),
        rack=given.get("client_rack"),
        server_assignor=given.get("group_remote_assignor"),
        **times,
    )
    check_membership(settings)
    return settings


def _fetch_settings(given: Mapping[str, Any], isolation_level: int) -> FetchSettings:
    fields: dict[str, Any] = {field: integer(name, given[name]) for name, field in FETCH_SIZES.items() if name in given}
    fields |= seconds_of(("retry_backoff_ms", "retry_backoff_max_ms"), given)
    if "fetch_max_wait_ms" in given:
        fields["max_wait_s"] = seconds_above_0("fetch_max_wait_ms", given["fetch_max_wait_ms"])
    return FetchSettings(isolation_level=isolation_level, rack=given.get("client_rack") or "", **fields)


def check_deserializer(deserializer: object, name: str) -> None:
    """Raise TypeError: it is neither a function nor has it a method `deserialize`; `name` is that of the argument."""
    if deserializer is not None and not hasattr(deserializer, "deserialize") and not callable(deserializer):
        raise TypeError(f"{name} is {deserializer!r}, expected a function or an object with deserialize()")
