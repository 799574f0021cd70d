"""The values of the transaction machine: its phases, the open transaction, offsets to send, and requests.

Pure.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.schema import Request
from kafkalite_sdk.producer.transactions.reactions import Step

if TYPE_CHECKING:
    from kafkalite_sdk.membership.settings import MemberIdentity
    from kafkalite_sdk.values import OffsetAndMetadata

V1, V2 = 1, 2
"""Versions of the transaction protocol: 2 = KIP-890, the finalized feature `transaction.version` is at least 2."""


class Phase(Enum):
    """What a transactional producer does."""

    STARTING = "it requests its producer id"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    FAILED = "the open transaction must be aborted"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    CLOSED = "the producer cannot continue"


class OffsetsToSend:
    """Offsets of a group that belong to the transaction.

    Arguments:
        offsets: by partition.
        member: of the consumer that has read the records.
        done: called once, with None or the error.
    """

    __slots__ = ("done", "member", "offsets")

    def __init__(
        self,
        offsets: "Mapping[TopicPartition, OffsetAndMetadata]",
        member: "MemberIdentity",
        done: Callable[[KafkaError | None], object],
    ) -> None:
        self.offsets = dict(offsets)
        self.member = member
        self.done = done


class OpenTransaction:
    """One transaction.

    Arguments:
        version: of the transaction protocol.

    Attributes:
        begun: the coordinator may know the transaction: EndTxn ends it.
        recover: InitProducerId must return another epoch after the abort.
        abort_ended: EndTxn has aborted it, or the coordinator has rejected that.
        has_gap: a batch has failed, so that sequences of this epoch may be missing.
        end_sent: EndTxn with a commit was sent: the outcome is the coordinator's.
        error: why it is aborted; None = the application has asked for it, or it is not aborted.
        partitions: those that the coordinator has confirmed (version 1).
        unconfirmed: those that it must confirm.
        groups: the groups that the coordinator has confirmed (version 1).
        offsets: those that are not sent yet.
    """

    __slots__ = (
        "abort_ended",
        "begun",
        "end_sent",
        "error",
        "groups",
        "has_gap",
        "offsets",
        "partitions",
        "recover",
        "unconfirmed",
        "version",
    )

    def __init__(self, version: int) -> None:
        self.version = version
        self.begun = self.recover = self.has_gap = self.end_sent = self.abort_ended = False
        self.error: KafkaError | None = None
        self.partitions: set[TopicPartition] = set()
        self.unconfirmed: dict[TopicPartition, None] = {}
        self.groups: set[str] = set()
        self.offsets: list[OffsetsToSend] = []

    @property
    def needs_epoch(self) -> bool:
        """Whether InitProducerId follows the abort: EndTxn of version 1 keeps the epoch, so that a late batch could be
        appended to the next transaction."""
        return self.recover or (self.has_gap and (self.version == V1 or not self.begun))

    def fail_offsets(self, error: KafkaError) -> None:
        """Fail the offsets that are not sent."""
        entries, self.offsets = self.offsets, []
        for each in entries:
            each.done(error)


class TransactionCall(NamedTuple):
    """A request to a coordinator.

    Attributes:
        step: its type.
        request: the message.
        group: the request is for the coordinator of this group; None = for that of the transactional id.
        version_max: limit of its version; None = none.
    """

    step: Step
    request: Request
    group: str | None = None
    version_max: int | None = None
