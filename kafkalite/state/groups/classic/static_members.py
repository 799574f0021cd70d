"""Static members of a classic group: they have an instance id, and one member id at a time (KIP-345).

1. A request with an instance id is served for its present member id only (`fencing_error`).
2. A member that restarts joins under a new member id, and the former one is fenced: `join.replace_static_member`.
3. In a stable group that happens without a rebalance: `generation.return_generation_to_static_member` (KIP-814).
4. While all members are away a rebalance waits for their sessions: `rebalance.wait_for_static_members`.

`members` has the member ids by instance id. Consumer groups: `groups/consumer/static_members`.
"""

from collections.abc import Mapping

from kafkalite.errors import KafkaErrorCode


def fencing_error(static: Mapping[str, str], instance_id: str | None, member_id: str) -> int:
    """The error of a request of a static member, 0 = it may be served.

    Arguments:
        static: the member ids by instance id.
        instance_id: of the sender, None = it is no static member.
        member_id: of the sender.

    Returns UNKNOWN_MEMBER_ID for an unknown instance id, FENCED_INSTANCE_ID if it has another member id.
    """
    if instance_id is None:
        return KafkaErrorCode.NONE
    current = static.get(instance_id)
    if current is None:
        return KafkaErrorCode.UNKNOWN_MEMBER_ID
    return KafkaErrorCode.NONE if current == member_id else KafkaErrorCode.FENCED_INSTANCE_ID
