"""Decides when metadata is requested, and of which topics.

Pure: no I/O, no clock; randomness is a parameter. The driver sends what `next_request` returns, reports its end, and
calls again at `wake_at`.

Invariants:
1. One request is open at a time. Requests wanted meanwhile lead to one more request.
2. Each topic has its own back-off: a topic without a leader delays no other.
3. A topic that does not exist or has no leader is requested again until it is usable or no longer used.
4. All topics are requested once the metadata has reached its maximum age.
Source: Metadata.java of Apache Kafka 4.3.
"""

from collections.abc import Iterable
from math import inf

from kafkalite.backoff import Backoff
from kafkalite.errors import error_class
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite_sdk.client.cluster_view import NO_LEADER, ClusterView, MetadataChanges


class _NextRequest:
    """The next metadata request for a topic, or for everything.

    Attributes:
        due_at: infinity = not wanted.
        sent_at: of the last request.
        unchanged: requests in a row that failed or changed nothing.
    """

    __slots__ = ("due_at", "sent_at", "unchanged")

    def __init__(self, due_at: float) -> None:
        self.due_at = due_at
        self.sent_at = -inf
        self.unchanged = 0


class MetadataCall:
    """A request for metadata.

    Attributes:
        topics: names; empty where the request names none.
        everything: all topics that the client uses, or all of the cluster.
        request: the message.
    """

    __slots__ = ("everything", "request", "topics")

    def __init__(self, topics: list[str], request: MetadataRequest, *, everything: bool) -> None:
        self.topics = topics
        self.request = request
        self.everything = everything


class MetadataSchedule:
    """The schedule of the metadata requests of a client.

    Arguments:
        view: the cluster as responses have reported it.
        max_age_s: all topics are requested again after this time, in seconds.
        backoff: pause before a request that is repeated.

    Attributes:
        all_topics: the client needs every topic of the cluster (patterns).
        refreshed_at: time of the last response; -infinity = none.
    """

    def __init__(self, view: ClusterView, max_age_s: float, backoff: Backoff) -> None:
        self.all_topics = False
        self.refreshed_at = -inf
        self._view = view
        self._max_age_s = max_age_s
        self._backoff = backoff
        self._topics: dict[str, _NextRequest] = {}
        self._create: set[str] = set()
        self._everything = _NextRequest(-inf)
        self._due_at = -inf  # the earliest of all requests, or before it
        self._open = False

    def use(self, topics: Iterable[str], now: float, *, create: bool) -> None:
        """Request these topics from now on.

        Arguments:
            topics: names.
            now: in seconds of the driver's clock.
            create: the broker may create a topic that does not exist.
        """
        for topic in topics:
            if topic not in self._topics:
                self._topics[topic] = _NextRequest(now)
                self._due_at = min(self._due_at, now)
            if create:
                self._create.add(topic)

    def drop(self, topics: Iterable[str]) -> None:
        """Do not request these topics any more."""
        for topic in topics:
            self._topics.pop(topic, None)
            self._create.discard(topic)

    def want(self, topics: Iterable[str] | None, now: float) -> None:
        """Request topics again, each after its back-off.

        Arguments:
            topics: names, of which only used ones count; None = all.
            now: in seconds of the driver's clock.
        """
        requests = (
            [self._everything] if topics is None else [self._topics[each] for each in topics if each in self._topics]
        )
        for request in requests:
            if request.due_at > now:
                self._set_due(request, max(now, request.sent_at + self._backoff.delay_s(request.unchanged)))

    @property
    def wake_at(self) -> float:
        """Time at which `next_request` may have a request; infinity while one is open."""
        return inf if self._open else self._due_at

    def _set_due(self, request: _NextRequest, due_at: float) -> None:
        request.due_at = min(request.due_at, due_at)
        self._due_at = min(self._due_at, request.due_at)

    def next_request(self, now: float) -> MetadataCall | None:
        """Return the request that leaves now, if one is due and none is open."""
        if self._open or self._due_at > now:
            return None
        call = self._due_request(now)
        self._open = call is not None
        self._due_at = min(self._everything.due_at, *(request.due_at for request in self._topics.values()), inf)
        return call

    def _due_request(self, now: float) -> MetadataCall | None:
        if self._everything.due_at <= now:
            return self._request_everything(now)
        due = [name for name, request in self._topics.items() if request.due_at <= now]
        creating = [name for name in due if self._creates(name)]
        return self._request(creating or due, now, create=bool(creating)) if due else None

    def _creates(self, topic: str) -> bool:
        return topic in self._create and topic not in self._view.topics

    def _request_everything(self, now: float) -> MetadataCall:
        self._everything.due_at, self._everything.sent_at = inf, now
        if not self.all_topics:
            existing = [name for name in self._topics if not self._creates(name)]  # the others are due on their own
            call = self._request(existing, now, create=False)
            return MetadataCall(call.topics, call.request, everything=True)
        for request in self._topics.values():
            request.due_at, request.sent_at = inf, now
        return MetadataCall([], MetadataRequest(topics=None, allow_auto_topic_creation=False), everything=True)

    def _request(self, topics: list[str], now: float, *, create: bool) -> MetadataCall:
        for name in topics:
            request = self._topics[name]
            request.due_at, request.sent_at = inf, now
        named = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        return MetadataCall(topics, MetadataRequest(topics=named, allow_auto_topic_creation=create), everything=False)

    def answered(self, call: MetadataCall, changes: MetadataChanges, now: float) -> None:
        """Apply the end of a request whose response the view has applied.

        Arguments:
            call: from `next_request`.
            changes: by the response.
            now: in seconds of the driver's clock.
        """
        self._open = False
        self.refreshed_at = now
        if call.everything:
            self._everything.unchanged = 0
            self._set_due(self._everything, now + self._max_age_s)
        changed = changes.leaders or bool(changes.grown or changes.recreated)
        for name in self._topics if call.request.topics is None else call.topics:
            request = self._topics.get(name)
            if request is None:
                continue
            unusable = self._unusable(name, changes)
            request.unchanged = request.unchanged + 1 if unusable or not changed else 0
            if unusable:
                self._repeat(request, now)

    def _unusable(self, topic: str, changes: MetadataChanges) -> bool:
        """Whether a topic is requested again because the response has no leader for it."""
        code = changes.failed.get(topic)
        if code is not None:
            return error_class(code).retriable
        view = self._view.topics.get(topic)
        return view is None or any(each.leader == NO_LEADER for each in view.partitions)

    def failed(self, call: MetadataCall, now: float) -> None:
        """Repeat a request that has failed, after the back-off."""
        self._open = False
        for request in [self._everything] if call.everything else self._next_requests(call):
            request.unchanged += 1
            self._repeat(request, now)

    def rejected(self, call: MetadataCall, now: float) -> None:
        """Repeat a request that no broker has accepted when the metadata is too old, or earlier if `want` is called."""
        self._open = False
        for request in [self._everything] if call.everything else self._next_requests(call):
            request.unchanged += 1
            self._set_due(request, now + self._max_age_s)

    def _next_requests(self, call: MetadataCall) -> list[_NextRequest]:
        return [self._topics[name] for name in call.topics if name in self._topics]

    def _repeat(self, request: _NextRequest, now: float) -> None:
        self._set_due(request, now + self._backoff.delay_s(request.unchanged))
