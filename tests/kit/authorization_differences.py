"""Why answers of Apache Kafka 3.9 with ZooKeeper (AclAuthorizer) differ from those of 4.4, which are also ours.

Each row explains all different answers of its cases; `docs/security.md` has them as a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

GROUP_CONFIGS = 1 << 10 | 1 << 11  # DescribeConfigs and AlterConfigs, in the authorized operations of a group


class Difference(NamedTuple):
    """One reason.

    Arguments:
        requests: the names of the requests.
        older: what 3.9 does.
        newer: what 4.4 and kafkalite do.
        explains: whether an answer of 3.9 follows from that of 4.4 by this reason.
    """

    requests: tuple[str, ...]
    older: str
    newer: str
    explains: Callable[[str, str], bool]


def without_group_configs(newer: str) -> str:
    """The outcome without the operations that 3.9 does not know."""
    return re.sub(r":(\d+)", lambda found: f":{int(found[1]) & ~GROUP_CONFIGS}", newer)


def refuses_more(older: str, newer: str) -> bool:
    """Whether all refusals of 4.4 are among those of 3.9."""
    return set(newer.split()) < set(older.split())


DIFFERENCES = (
    Difference(
        ("DescribeGroups",),
        "groups have no configs: their operations are Read, Delete and Describe",
        "DescribeConfigs and AlterConfigs are operations of groups, too",
        lambda older, newer: older == without_group_configs(newer),
    ),
    Difference(
        ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
        "UNSUPPORTED_VERSION without a check: there are no consumer groups with ZooKeeper",
        "refused without the right",
        lambda older, newer: older == "",
    ),
    Difference(
        ("DescribeConfigs",),
        "configs of groups are INVALID_REQUEST, for all resources of the request",
        "refused without the right, each resource by itself",
        lambda older, newer: older == "",
    ),
    Difference(
        ("IncrementalAlterConfigs",),
        "configs of groups are INVALID_REQUEST without a check",
        "refused without the right AlterConfigs on the group",
        lambda older, newer: newer.split() == sorted([*older.split(), "/ours-group=30"]),
    ),
    Difference(
        ("DeleteTopics",),
        "Delete on Topic is needed; without it a missing topic is refused like another one",
        "Delete on Cluster suffices; a missing topic is UNKNOWN_TOPIC_OR_PARTITION for clients that may describe it",
        refuses_more,
    ),
)


def table() -> str:
    """The differences as a table in Markdown."""
    rows = [f"| {', '.join(each.requests)} | {each.older} | {each.newer} |" for each in DIFFERENCES]
    return "\n".join(
        ["| request | Apache Kafka 3.9 with ZooKeeper | Apache Kafka 4.4, kafkalite |", "|---|---|---|", *rows]
    )
