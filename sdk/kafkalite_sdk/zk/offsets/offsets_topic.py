"""Whether brokers can have offsets of groups: only then a coordinator is looked for.

FindCoordinator creates `__consumer_offsets`. Where it cannot be created, as by a single broker with the default
replication factor of 3, a lookup is repeated until its deadline, and a command that only reads would wait for it.
"""

from kafkalite.coordination.znodes import topic_path
from kafkalite.errors import KafkaErrorCode
from kafkalite_sdk.admin import Admin
from kafkalite_sdk.zk.groups import ZooKeeperGroups

OFFSETS_TOPIC = "__consumer_offsets"


async def has_offsets_topic(groups: ZooKeeperGroups, admin: Admin, timeout_s: float | None = None) -> bool:
    """Return whether `__consumer_offsets` may exist.

    The tree is read first, as a broker that has just started may not know the topic yet. Brokers without ZooKeeper, and
    those of another tree, are asked themselves.

    Arguments:
        groups: of the tree.
        admin: of the brokers.
        timeout_s: deadline of their answer in seconds; None = `default_api_timeout_ms`.

    Raises CoordinationError, TimeoutError, KafkaError: no broker answers.
    """
    if await groups.calls.exists(topic_path(OFFSETS_TOPIC)) is not None:
        return True
    found = await admin.topics.describe(OFFSETS_TOPIC, timeout=timeout_s)
    error = found.errors.get(OFFSETS_TOPIC)
    return error is None or error.code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
