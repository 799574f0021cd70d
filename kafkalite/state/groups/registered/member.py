"""One member of a registered group.

A member is durable from its first generation on. `registration` is its last request, which takes effect with the next
generation; `stored` is the member in the current generation, as the log has it.
"""

from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.state.effects import Token
from kafkalite.state.groups.records import RegisteredMember
from kafkalite.state.groups.registered.requests import RegisterConsumer
from kafkalite.state.groups.sessions import MemberSession

NO_EPOCH = -1
FENCED_PROCESSES_MAX = 7
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class RegisteredGroupMember:
    """One member.

    Arguments:
        registration: its last request.
        stored: the member in the current generation, None = it has had no generation.

    Attributes:
        delayed: the token of its delayed registration, None = none.
        knows_epoch: its epoch was sent to it.
        process_ids: of its process, then of the older ones that it fences, the last one first; () = unknown.
    """

    __slots__ = ("delayed", "knows_epoch", "process_ids", "registration", "session", "stored")

    def __init__(self, registration: RegisterConsumer, stored: RegisteredMember | None = None) -> None:
        self.registration = registration
        self.stored = stored
        self.knows_epoch = stored is not None
        self.process_ids = () if stored is None else stored.process_ids
        self.delayed: Token | None = None
        self.session = MemberSession(registration.session_timeout_ms)

    @classmethod
    def restore(
        cls, group: str, stored: RegisteredMember, claims: frozenset[TopicPartition]
    ) -> "RegisteredGroupMember":
        """A member from the records, as if it had registered for their topics and claims."""
        registration = RegisterConsumer(
            group,
            stored.consumer_id,
            stored.topics,
            claims,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            stored.client_id,
            stored.client_host,
        )
        return cls(registration, stored)

    def fences(self, process_id: bytes, *, registers: bool = False) -> bool:
        """Whether a newer process with this consumer id has registered. A process that registers for the first time is
        the newest one.
        """
        if process_id == ZERO_UUID or not self.process_ids or process_id == self.process_ids[0]:
            return False
        return not registers or process_id in self.process_ids

    def replace_process(self, process_id: bytes) -> bool:
        """Note the process that registers; returns whether it replaces another one."""
        if process_id == ZERO_UUID or process_id == next(iter(self.process_ids), ZERO_UUID):
            return False
        replaces = bool(self.process_ids)
        self.process_ids = (process_id, *self.process_ids[:FENCED_PROCESSES_MAX])
        return replaces

    @property
    def name(self) -> str:
        """The consumer id."""
        return self.registration.consumer_id

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it owns in the current generation."""
        return NO_PARTITIONS if self.stored is None else self.stored.owned

    def owned_by_topic(self) -> dict[str, tuple[int, ...]]:
        """The partitions that the member owns, by topic; both in order."""
        owned: dict[str, tuple[int, ...]] = {}
        for topic, partition in sorted(self.owned):
            owned[topic] = (*owned.get(topic, ()), partition)
        return owned

    @property
    def epoch(self) -> int:
        """The last generation that changed its partitions or positions."""
        return NO_EPOCH if self.stored is None else self.stored.epoch

    @property
    def only_claims(self) -> bool:
        """Whether it is excluded from the assignment, and does not take part in rebalances."""
        return bool(self.registration.claims) and not self.registration.topics

    def is_unchanged_by(self, request: RegisterConsumer) -> bool:
        """Whether a registration names the topics and claims that the member has."""
        return self.registration.topics == request.topics and self.registration.claims == request.claims

    def assign(self, owned: frozenset[TopicPartition], generation: int) -> None:
        """Apply the last registration in a generation: the member owns these partitions, and is sent its epoch."""
        self.knows_epoch = True
        registration = self.registration
        self.stored = RegisteredMember(
            registration.consumer_id,
            registration.client_id,
            registration.client_host,
            self.session.timeout_ms,
            registration.rebalance_timeout_ms,
            registration.topics,
            generation,
            generation,
            owned,
            self.process_ids,
        )

    def change(self, owned: frozenset[TopicPartition], epoch: int) -> None:
        """Change its partitions or positions before it registers again, which its next heartbeat requests."""
        assert self.stored is not None
        self.knows_epoch = False
        self.stored = self.stored._replace(owned=owned, epoch=epoch)
