"""The consumers whose records a transaction processes: what it commits for them, where they continue after an abort.

Invariants:
1. After an abort each consumer of the transaction continues at its committed offsets.
2. A consumer belongs to a transaction that begins with it, or that sends its offsets, and to all later ones of the
   producer: an error may come before `send_offsets`.
3. A consumer that commits by itself is rejected: its commits would not belong to the transaction.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakSet

from kafkalite.errors import ClientUseError
from kafkalite.model import TopicPartition
from kafkalite_sdk.values import OffsetAndMetadata

if TYPE_CHECKING:
    from kafkalite_sdk.membership.settings import MemberIdentity

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


@runtime_checkable
class TransactionalConsumer(Protocol):
    """What a transaction needs of a consumer; `kafkalite_sdk.Consumer` has it."""

    def group_metadata(self) -> "MemberIdentity":
        """Return the group, the generation or member epoch, the member id and the instance id."""

    def _offsets_to_send(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offset behind the last record that the application has received, of each partition."""

    def _continue_at_committed(self) -> None:
        """Continue at the committed offsets; a consumer that is closed does nothing."""


class Participants:
    """The consumers of a producer's transactions."""

    def __init__(self) -> None:
        self._consumers: WeakSet[TransactionalConsumer] = WeakSet()

    def add(self, consumers: Iterable[object]) -> None:
        """Add consumers. Raises TypeError for another object, ClientUseError for a consumer that cannot take part."""
        for each in consumers:
            if not isinstance(each, TransactionalConsumer):
                raise TypeError(f"{each!r} is no consumer of kafkalite_sdk; pass offsets and group metadata instead")
            each._offsets_to_send()  # raises if it cannot take part
            self._consumers.add(each)

    def return_to_committed(self) -> None:
        """Let every consumer continue at its committed offsets."""
        for each in list(self._consumers):
            each._continue_at_committed()


def offsets_by_partition(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets with their metadata. Raises TypeError, ValueError for what is no partition or no offset."""
    from kafkalite_sdk.consumer.arguments import offset_of, partition_of  # few transactions pass offsets

    return {partition_of(each): offset_of(each, offset) for each, offset in offsets.items()}


def member_of(group: "MemberIdentity | str") -> "MemberIdentity":
    """Return the member that commits; the name of a group means a sender that is no member.

    Raises:
        ClientUseError: the group is empty.
    """
    from kafkalite_sdk.membership.settings import MemberIdentity

    if isinstance(group, str):
        group = MemberIdentity(group, -1, "", None)
    if not group.group:
        raise ClientUseError("send_offsets: the group is empty; pass consumer.group_metadata() or the id of the group")
    return group
