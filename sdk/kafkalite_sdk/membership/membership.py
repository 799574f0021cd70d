"""A consumer's membership in a group: one machine for the three group protocols, so that the consumer knows none.

Pure: no I/O, no clock; randomness is a parameter. The consumer, which drives it:

- sends the calls of `requests` and reports each with `answered` or `failed`; finds the coordinator when
  `needs_coordinator` is set and reports it with `coordinator_found`; calls `requests` again at `wake_at`;
- carries out `change` inside `poll` (see `AssignmentChange`), then calls `change_done`;
- commits with `identity()`, and reports the codes of failed commits with `commit_failed`;
- calls `poll` for each poll of the application, and `raise_error` at the start of each public call;
- closes with `leave`: the partitions are revoked by a change, then the member leaves; `left` is true after that.

Invariants:
1. A member whose application does not poll in time leaves the group (`poll_interval`).
2. The protocol is determined before the member joins, and again after INCONSISTENT_GROUP_PROTOCOL. A broker that
   rejects KIP-848 is a broker of classic groups from then on.
"""

from collections.abc import Collection
from math import inf

from kafkalite.errors import (
    KafkaError,
    KafkaErrorCode,
    UnsupportedVersionError,
    error_class,
    error_for,
)
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.protocol.schema import Response
from kafkalite_sdk.client.cluster_view import ClusterView
from kafkalite_sdk.membership.choice import Choice, ProtocolChoice
from kafkalite_sdk.membership.core import MemberCore
from kafkalite_sdk.membership.patterns import check_pattern, matching
from kafkalite_sdk.membership.poll_interval import PollInterval
from kafkalite_sdk.membership.protocol import GroupProtocol
from kafkalite_sdk.membership.retries import RandomNumbers
from kafkalite_sdk.membership.settings import (
    AUTO,
    CLASSIC,
    CONSUMER,
    REGISTERED,
    AssignmentChange,
    GroupCall,
    MemberIdentity,
    MembershipSettings,
    Partitions,
)
from kafkalite_sdk.membership.subscription import NO_SUBSCRIPTION, Subscription
from kafkalite_sdk.membership.topics import metadata_of_all


def member_class(protocol: str) -> type[GroupProtocol]:
    """The machine of a group protocol. Its module is imported on first use: most programs speak one protocol."""
    if protocol == CLASSIC:
        from kafkalite_sdk.membership.classic import ClassicMember

        return ClassicMember
    if protocol == CONSUMER:
        from kafkalite_sdk.membership.consumer import ConsumerMember

        return ConsumerMember
    from kafkalite_sdk.membership.registered import RegisteredMember

    return RegisteredMember


class Membership:
    """The membership of one consumer.

    Arguments:
        settings: of the member.
        random: for member ids and jitter.
        view: the metadata of the client.
    """

    def __init__(self, settings: MembershipSettings, random: RandomNumbers, view: ClusterView) -> None:
        self.settings = settings
        self._core = MemberCore(settings, random, view)
        self._protocol: GroupProtocol | None = None
        self._choice: ProtocolChoice | None = None
        self._rejected: Choice | None = None  # the last choice, which the group has rejected
        self._chosen: Choice | None = None
        self._without_consumer = False
        self._leaving = False
        self._poll_interval = PollInterval(settings.group_id, settings.max_poll_interval_s)
        self._pattern_at = inf
        self._pattern_retries = self._core.retries()

    # what the consumer reads

    @property
    def assignment(self) -> Partitions:
        """The partitions that the member owns: revoked ones until their change is done, assigned ones after it."""
        return self._core.assignment

    @property
    def change(self) -> AssignmentChange | None:
        """The change to carry out, None = none."""
        return self._core.change

    @property
    def needs_coordinator(self) -> bool:
        """Whether the consumer must find the coordinator, also if it knew it before."""
        return self._core.needs_coordinator

    @property
    def error(self) -> KafkaError | None:
        """The error that the next call of the application raises, None = none."""
        return self._core.error or self._poll_interval.error

    @property
    def left(self) -> bool:
        """Whether the member is in no group."""
        return self._core.left

    @property
    def last_heartbeat(self) -> float | None:
        """When the coordinator last accepted a heartbeat, None = never."""
        return self._core.last_heartbeat

    @property
    def protocol(self) -> str | None:
        """The group protocol, None = not determined yet."""
        return self._protocol.name if self._protocol is not None else None

    @property
    def state(self) -> str:
        """What the member does or waits for."""
        if self._core.error is not None:
            return "failed"
        if not self._core.subscription:
            return "leaving" if self._leaving else "not subscribed"
        if self._poll_interval.missed:
            return "left, because poll was not called in time"
        if self._core.needs_coordinator:
            return "finding the coordinator"
        return self._protocol.state if self._protocol is not None else "determining the group protocol"

    @property
    def topics(self) -> frozenset[str]:
        """Topics whose metadata the client must have: those of the member, and as leader those of the group."""
        own = self._core.wanted_topics or frozenset()
        assigned = {each.topic for each in self._core.assignment}
        others = self._protocol.watched_topics() if self._protocol is not None else frozenset[str]()
        return own | assigned | others

    @property
    def wanted_topics(self) -> frozenset[str]:
        """The topics that the member reads: those of its pattern, as far as they are known."""
        return self._core.wanted_topics or frozenset()

    def report_rebalances(self) -> None:
        """Let each classic rebalance be a `change`, also without partitions that are revoked or assigned."""
        self._core.reports_rebalances = True

    def match_internal_topics(self) -> None:
        """Let a pattern that the client resolves match internal topics, too."""
        self._core.topics.internal = True

    def identity(self) -> MemberIdentity | None:
        """The member for OffsetCommit and OffsetFetch; None = it is no member: commits must fail without a request."""
        return self._core.identity

    def raise_error(self) -> None:
        """Raise the error that the application must know: a fatal one each time, a missed poll interval once."""
        if self._core.error is not None:
            raise self._core.error
        self._poll_interval.raise_error()

    # the application

    def subscribe(
        self, topics: Collection[str] = (), *, pattern: str | None = None, excluded: str | None = None, now: float
    ) -> None:
        """Read topics, in place of the previous ones.

        Arguments:
            topics: by name.
            pattern: RE2 text of topics, instead of names.
            excluded: RE2 text of topics that the pattern leaves out.
            now: the time, in s.

        Raises: ValueError.
        """
        if isinstance(topics, str):
            raise ValueError("topics is a str; pass a list of topic names")
        if bool(topics) == (pattern is not None):
            raise ValueError("pass topics or a pattern")
        if excluded is not None:
            check_pattern(excluded)
            if pattern is None:
                raise ValueError("excluded without a pattern; leave the topics out of the list")
        self._subscribe(Subscription(frozenset(topics), pattern, self._core.subscription.claims, excluded), now)

    def add_topic(self, topic: str, partition: int | None, now: float) -> None:
        """Read one topic more, or claim one partition, which no other member is assigned then.

        Arguments:
            topic: its name.
            partition: of a claim, None = the topic is assigned as usual.
            now: the time, in s.

        Raises: ValueError for a claim in a protocol without claims.
        """
        before = self._core.subscription
        if partition is None:
            self._subscribe(before._replace(topics=before.topics | {topic}), now)
            return
        if self.settings.protocol not in (AUTO, REGISTERED):
            raise ValueError(
                f"group protocol {self.settings.protocol} has no static claims; use 'registered', or assign"
            )
        self._subscribe(before._replace(claims=before.claims | {TopicPartition(topic, partition)}), now)

    def unsubscribe(self, now: float) -> None:
        """Release all partitions and leave the group."""
        self.leave(now)

    def leave(self, now: float) -> None:
        """Release all partitions by a change, then leave the group; a second call has the end of the first one."""
        if not self._core.subscription and not self._leaving and not self._core.left:
            return  # the change has begun, or the request was sent
        self._core.subscription, self._core.wanted_topics = NO_SUBSCRIPTION, frozenset()
        self._leaving = True
        self._poll_interval.end()
        self._leave_if_idle(now)

    def poll(self, now: float) -> None:
        """The application polls: `max_poll_interval_s` begins again."""
        if self._core.subscription:
            self._poll_interval.begin(now)

    def _subscribe(self, subscription: Subscription, now: float) -> None:
        core = self._core
        core.subscription = subscription
        core.wanted_topics = subscription.topics
        if subscription.pattern is not None:
            core.wanted_topics = None
            self._resolve_pattern()
            self._pattern_at = now
        if core.left:
            core.left = False
            core.coordinator_lost()
        self._leaving = False
        self._poll_interval.begin(now)
        if subscription.claims and self._protocol is not None and self._protocol.name != REGISTERED:
            self._protocol = None
        if self._protocol is not None:
            self._protocol.subscription_changed(now)

    # requests

    def requests(self, now: float) -> list[GroupCall]:
        """The requests that are due; each is sent once."""
        core = self._core
        if core.error is None and self._poll_interval.expire(now):
            self._lose_group(now)
        if core.subscription and not self._poll_interval.missed and core.error is None:
            if not core.needs_coordinator:
                self._step(now)
            self._refresh_pattern(now)
        if not core.needs_coordinator:
            calls, core.outgoing = core.outgoing, []
            return calls
        calls = [call for call in core.outgoing if not call.to_coordinator]
        core.outgoing = [call for call in core.outgoing if call.to_coordinator]
        return calls

    def wake_at(self, now: float) -> float:
        """When `requests` is due next without a response before; inf = never."""
        core = self._core
        if core.error is not None:
            return inf
        if core.outgoing and not core.needs_coordinator:
            return now
        if not core.subscription or self._poll_interval.missed:
            return inf
        times = [self._poll_interval.deadline, self._pattern_at if self._resolves_pattern() else inf]
        if not core.needs_coordinator:
            worker = self._protocol or self._choice
            times.append(worker.wake_at() if worker is not None else now if core.change is None else inf)
        return min(times)

    def answered(self, call: GroupCall, response: Response, now: float) -> None:
        """Apply the response to a call; late responses are ignored."""
        if self._core.close_call(call):
            call.on_answer(response, now)

    def failed(self, call: GroupCall, error: KafkaError, now: float) -> None:
        """A call has ended without a response."""
        if self._core.close_call(call):
            call.on_failure(error, now)

    def rights_error(self, code: int) -> KafkaError:
        """Return the error of a client that may not find its coordinator; it names what the member needs."""
        text = f"group {self.settings.group_id}: {error_class(code).code.message}"
        return error_for(code, self._core.with_rights(code, text))

    def coordinator_found(self, now: float) -> None:
        """The consumer has found the coordinator, and sends further calls to it."""
        self._core.needs_coordinator = False

    def coordinator_lost(self, now: float) -> None:
        """The consumer has learned that the coordinator moved, for example by a commit."""
        if not self._core.left:
            self._core.coordinator_lost()

    def change_done(self, now: float) -> None:
        """The change was carried out."""
        self._core.change_done(now)
        self._leave_if_idle(now)

    def commit_failed(self, identity: MemberIdentity | None, code: int, now: float) -> None:
        """A commit has failed with an error of the group.

        Arguments:
            identity: with which it was sent; an older one than the current is ignored.
            code: the error code of a partition or of the request.
            now: the time, in s.
        """
        if not self._core.subscription:
            return  # it leaves the group; joining again would replace the end of the leave
        if self._protocol is not None and identity is not None and identity == self._core.identity:
            self._protocol.commit_failed(code, now)

    def metadata_changed(self, now: float) -> None:
        """The view has changed: topics were created, deleted or have more partitions."""
        if self._protocol is not None:
            self._protocol.metadata_changed(now)

    # the protocol

    def _step(self, now: float) -> None:
        if self._protocol is None:
            self._determine(now)
        if self._protocol is not None:
            self._protocol.step(now)

    def _determine(self, now: float) -> None:
        if self._core.change is not None:
            return
        if self._core.subscription.claims:
            self._use(REGISTERED, now)
        elif self.settings.protocol != AUTO:
            self._use(self.settings.protocol, now)
        else:
            if self._choice is None:
                self._choice = ProtocolChoice(self._core, self._choose, without_consumer=self._without_consumer)
            self._choice.step(now)

    def _choose(self, choice: Choice, now: float) -> None:
        self._choice = None
        rejected, self._rejected = self._rejected, None
        if rejected is not None and choice.by_members and choice.protocol == rejected.protocol:
            self._core.fail(self._rejection, now)
            return
        self._chosen = choice
        self._use(choice.protocol, now)

    def _use(self, protocol: str, now: float) -> None:
        self._choice = None
        self._protocol = member_class(protocol)(self._core, self._reconsider)
        self._protocol.step(now)

    def _reconsider(self, error: KafkaError, now: float) -> None:
        """The group or the broker does not support the protocol: choose again."""
        protocol, self._rejection = self._protocol, error
        assert protocol is not None
        unsupported = isinstance(error, UnsupportedVersionError)
        if self.settings.protocol != AUTO or self._core.subscription.claims:
            self._core.fail(self._explained(error, protocol.name), now)
            return
        self._core.abandon_calls()
        self._protocol = None
        self._rejected = self._chosen
        if unsupported:
            self._without_consumer, self._rejected = True, None
        self._core.lose_all(now, lambda now: None)

    def _explained(self, error: KafkaError, protocol: str) -> KafkaError:
        """The error with the next step for a protocol that the application has chosen."""
        if not isinstance(error, UnsupportedVersionError):
            return error
        if self._core.subscription.claims:
            step = "static claims need kafkalite; use assign for fixed partitions"
        elif protocol == REGISTERED:
            step = "registered groups need kafkalite; use group_protocol='classic' or 'consumer'"
        else:
            step = "the broker does not enable this protocol; use group_protocol='classic'"
        return error_for(KafkaErrorCode.UNSUPPORTED_VERSION, f"group {self.settings.group_id}: {step}")

    # patterns

    def _resolves_pattern(self) -> bool:
        """Whether the client resolves the pattern of the subscription."""
        subscription, protocol = self._core.subscription, self._protocol
        if subscription.pattern is None or protocol is None:
            return False
        return protocol.resolves_patterns or subscription.excluded is not None

    def _refresh_pattern(self, now: float) -> None:
        if not self._resolves_pattern() or now < self._pattern_at:
            return
        self._pattern_at = inf  # until the response

        def received(response: MetadataResponse, now: float) -> None:
            self._pattern_retries.succeeded()
            self._pattern_at = now + self.settings.metadata_max_age_s
            self._core.topics.apply(response, of_all=True)
            if self._resolve_pattern() and self._protocol is not None:
                self._protocol.subscription_changed(now)

        def failed(error: KafkaError, now: float) -> None:
            self._pattern_retries.failed(now)
            self._pattern_at = self._pattern_retries.at

        self._core.send(metadata_of_all(), received, failed, to_coordinator=False)

    def _resolve_pattern(self) -> bool:
        """Match the known topics; returns whether the result has changed."""
        subscription, names = self._core.subscription, self._core.topics.all_names
        if subscription.pattern is None or names is None:
            return False
        before = self._core.wanted_topics
        self._core.wanted_topics = matching(subscription.pattern, subscription.excluded, names)
        return before is not None and self._core.wanted_topics != before

    # leaving

    def _leave_if_idle(self, now: float) -> None:
        core = self._core
        if not self._leaving or core.left or core.change is not None:
            return
        self._leaving = False
        core.abandon_calls()  # the response to one could begin another change
        if core.identity is None:
            core.begin_change(AssignmentChange(lost=core.assignment), self._leave, now)
        else:
            core.begin_change(AssignmentChange(revoked=core.assignment), self._leave, now)

    def _leave(self, now: float) -> None:
        core = self._core
        self._leaving = False  # also for a later call of `leave`: another change would drop the request
        core.identity = None
        self._choice = None
        if self._protocol is None:
            core.abandon_calls()
            self._left()
        else:
            self._protocol.leave(self._left)

    def _left(self) -> None:
        self._core.left = True

    def _lose_group(self, now: float) -> None:
        """Leave the group without a revocation: the application has not polled in time."""
        if self._protocol is not None:
            self._protocol.leave(lambda: None)
        self._core.lose_all(now, lambda now: None)
