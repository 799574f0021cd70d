"""The guards by API key."""

from collections.abc import Callable
from typing import Any

from kafkalite.server.requests.authorization.authorized_call import AnyCall
from kafkalite.server.requests.authorization.guards import cluster, groups, records, topics, transactions

Guard = Callable[[AnyCall, Any], Any]


def in_handler(_call: AnyCall, request: Any) -> Any:
    """Key 3, whose handler checks the topics when the image of the cluster is known; keys 29 to 31 and 38, whose
    handlers begin with the check.
    """
    return request


GUARDS: dict[int, Guard] = {
    0: records.produce,
    1: records.fetch,
    3: in_handler,
    8: groups.offset_commit,
    9: groups.offset_fetch,
    10: groups.find_coordinator,
    20: topics.delete_topics,
    22: transactions.init_producer_id,
    24: transactions.add_partitions_to_txn,
    29: in_handler,
    30: in_handler,
    31: in_handler,
    32: topics.configs,
    33: topics.configs,
    34: cluster.alter_replica_log_dirs,
    38: in_handler,
    44: topics.configs,
    51: cluster.alter_user_scram_credentials,
    68: groups.consumer_group_heartbeat,
    75: topics.describe_topic_partitions,
    10000: groups.list_groups_plus,
    10001: groups.create_group,
    10003: groups.register_consumer,
    10007: cluster.describe_coordination,
}
