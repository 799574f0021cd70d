"""A client of a cluster: sends requests to its brokers, keeps their metadata current and finds coordinators.

A `ClusterClient` belongs to one producer or consumer, and to the event loop that started it. Invariants:
1. Each request ends exactly once, by its deadline: `answer(response)` or `fail(KafkaError)`.
2. A task exists only while a connection is opened. Timers come from the loop, the rest from the `Environment`.
3. After `close` no connection, task or timer is left, and every request that was open has failed.
"""

import asyncio
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from math import inf
from typing import Any, NamedTuple

from kafkalite.backoff import Backoff
from kafkalite.callbacks import call_all
from kafkalite.errors import (
    AuthenticationError,
    BrokerNotAvailableError,
    ClientUseError,
    KafkaConnectionError,
    KafkaError,
    KafkaErrorCode,
    error_for,
)
from kafkalite.model import Node
from kafkalite.net.client.connection import completing
from kafkalite.net.client.core import Answer, Fail
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.protocol.schema import Request
from kafkalite_sdk.client.alarm import Alarm
from kafkalite_sdk.client.any_broker import AnyBroker, AnyCall
from kafkalite_sdk.client.channel import Channel, Submission
from kafkalite_sdk.client.channels import DATA, Channels
from kafkalite_sdk.client.cluster_view import ClusterView, MetadataChanges
from kafkalite_sdk.client.coordinators import GROUP, Coordinators
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.metadata_schedule import MetadataCall, MetadataSchedule
from kafkalite_sdk.client.ownership import Owner
from kafkalite_sdk.client.settings import Addresses, AddressSource, ClientSettings


class _Running(NamedTuple):
    """The parts of a client that is started."""

    channels: Channels
    any_broker: AnyBroker
    coordinators: Coordinators
    alarm: Alarm
    source: AddressSource | None


class ClusterClient:
    """A client of a cluster.

    Arguments:
        settings: bootstrap addresses and times.
        environment: connections and randomness.
        name: of the object that uses it, in the texts of misuse errors.

    Attributes:
        settings, environment: the arguments.
        owner: the loop that it belongs to, and its failure.
        view: the cluster as responses have reported it.
        on_metadata: functions that are called with the changes of each response after the view has applied it.
        on_rejected: functions that are called with the error when metadata cannot be loaded, as no broker accepts the
            credentials. The client does not request it again by itself before `metadata_max_age_s` has passed.
    """

    def __init__(
        self, settings: ClientSettings, environment: Environment | None = None, *, name: str = "client"
    ) -> None:
        self._running: _Running | None = None
        self.settings = settings
        self.environment = Environment() if environment is None else environment
        self.view = ClusterView()
        self.on_metadata: list[Callable[[MetadataChanges], object]] = []
        self.on_rejected: list[Callable[[AuthenticationError], object]] = []
        self._name = name
        self.owner = Owner(name)
        random = self.environment.random.random
        self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, random)
        self._schedule = MetadataSchedule(self.view, settings.metadata_max_age_s, self._backoff)
        self._failing_since = inf
        self._closed_by = ClientUseError(f"this {name} was closed")

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if self._running is not None and not self.owner.forked:
            warn(f'unclosed {self._name}: use "async with" or await its close()', ResourceWarning, source=self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the client belongs to. Raises ClientUseError before the start and after the close."""
        if self.owner.loop is None:
            self.owner.check_loop()
        assert self.owner.loop is not None
        return self.owner.loop

    def check_owner(self) -> None:
        """Raise ClientUseError outside of the loop that started it and of start and close; ClientFailedError."""
        self.owner.check()

    # start and close

    async def start(self, timeout_s: float | None = None) -> None:
        """Connect to a bootstrap address and load the metadata. After a failure it may be called again.

        Arguments:
            timeout_s: deadline in seconds; None = `default_api_timeout_s`.

        Raises:
            KafkaConnectionError: no bootstrap address is reachable. KafkaTimeoutError: the deadline has passed.
            AuthenticationError: no broker accepts the credentials, or TLS fails.
            ClientUseError: the client is started or closed, or no loop is running.
        """
        loop = self.owner.begin()
        channels = Channels(loop, self.settings, self.environment, self._channel_changed, self.owner.fail)
        any_broker = AnyBroker(loop, channels, self.environment.random.randrange, self.owner.fail)
        coordinators = Coordinators(loop, self._ask_any, self._coordinator_found, self._backoff, self.owner.fail)
        alarm = Alarm(loop, self._request_metadata, self.owner.fail)
        self._running = _Running(channels, any_broker, coordinators, alarm, self._follow_addresses())
        try:
            await self._first_metadata(timeout_s)
        except BaseException:
            if self._running is not None:  # else it was closed meanwhile
                self.owner.abandon()
                await self._end(0.0)
            raise
        self._request_metadata()

    def _follow_addresses(self) -> AddressSource | None:
        source, guard = self.settings.source, self.owner.guard
        return (
            None
            if source is None
            else source.follow(self.settings.security, self.environment, guard(self._use_bootstrap))
        )

    def _use_bootstrap(self, addresses: Addresses) -> None:
        if self._running is not None:
            self._running.channels.set_bootstrap(addresses)
            self._running.any_broker.advance()

    async def _first_metadata(self, timeout_s: float | None) -> None:
        """Request metadata; again, with pauses, if a broker that has just started does not know the cluster yet."""
        deadline = self.loop.time() + (self.settings.default_api_timeout_s if timeout_s is None else timeout_s)
        if self._running is not None and self._running.source is not None:
            await self._running.source.open(min(deadline - self.loop.time(), self.settings.connect_timeout_s))
            self.owner.check()  # it may be closed meanwhile
        for failures in count(1):
            call = self._schedule.next_request(self.loop.time())
            assert call is not None, "the first request is due at once"
            future: asyncio.Future[MetadataResponse] = self.loop.create_future()
            try:
                self._submit_any(call.request, *completing(future), deadline - self.loop.time(), fail_fast=True)
                self._apply(call, await future)
                return
            except BrokerNotAvailableError:
                self._schedule.failed(call, -inf)
                pause_s = self._backoff.delay_s(failures)
                if self.loop.time() + pause_s >= deadline:
                    raise
                await asyncio.sleep(pause_s)
                self.owner.check()  # it may be closed meanwhile
            except BaseException:
                self._schedule.failed(call, -inf)
                raise

    async def close(self, timeout_s: float = 1.0) -> None:
        """End all connections; open requests fail with ClientUseError. A second call waits for the first one.

        Arguments:
            timeout_s: how long requests that are queued may take to be written, in seconds.

        Raises:
            ClientUseError: the client belongs to another loop or thread.
        """
        if self._running is not None:
            self.owner.check_loop()
            with self.owner.ending():
                await self._end(timeout_s)
        self.owner.end()
        await self.owner.wait_ended()

    async def abandon(self) -> None:
        """End the connections after a start that has failed outside of the client; `start` may be called again."""
        if self._running is not None:
            self._schedule = MetadataSchedule(self.view, self.settings.metadata_max_age_s, self._backoff)
            self.owner.abandon()
            await self._end(0.0)

    async def _end(self, timeout_s: float) -> None:
        running, self._running = self._running, None
        assert running is not None
        running.alarm.cancel()
        try:
            error = self._closed_by
            call_all(partial(running.any_broker.close, error), partial(running.coordinators.close, error))
        finally:
            try:
                await running.channels.close(self._closed_by, timeout_s)
            finally:
                if running.source is not None:
                    await running.source.close()

    # requests

    def submit(
        self,
        node: int,
        request: Request,
        answer: Answer,
        fail: Fail,
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
        channel: str = DATA,
        one_way: bool = False,
    ) -> None:
        """Send a request to a broker; it is connected when needed, and requests leave in the order of the calls.

        Arguments:
            node: broker id.
            request: any request message.
            answer: called with the response.
            fail: called with the error instead: KafkaConnectionError, KafkaTimeoutError, DecodeError, EncodeError,
                UnsupportedVersionError, or ClientUseError after the close. It may be called at once.
            timeout_s: deadline in seconds, connecting included; None = `request_timeout_s`.
            version_max: the highest version to use; None = the highest that both sides know.
            channel: "" or the name of a connection of its own, for requests that hold back later responses.
            one_way: the broker sends no response (Produce with acks=0); `answer(None)` is called instead.
        """
        submission = Submission(request, answer, fail, 0.0, version_max, one_way=one_way)
        self._submit(node, channel, submission, timeout_s)

    def _submit(self, node: int, channel: str, submission: Submission, timeout_s: float | None) -> None:
        if (running := self._running) is None:
            submission.fail(self._unusable())
            return
        submission.deadline = self.loop.time() + (self.settings.request_timeout_s if timeout_s is None else timeout_s)
        if node not in running.channels.addresses and node in self.view.brokers:  # a leader that KIP-951 has reported
            self._use_brokers()
        try:
            target = running.channels.get(node, channel)
        except KafkaConnectionError as error:
            unknown = error
        else:
            target.submit(submission)
            return
        self.refresh_metadata()
        submission.fail(unknown)

    def connect(
        self,
        node: int,
        answer: Callable[[dict[int, tuple[int, int]]], object],
        fail: Fail,
        *,
        timeout_s: float | None = None,
        channel: str = DATA,
    ) -> None:
        """Connect to a broker, unless it is connected, to learn the versions that it serves.

        Arguments:
            node: broker id.
            answer: called with the lowest and the highest version by API key.
            fail: called with the error instead, as in `submit`.
            timeout_s, channel: as in `submit`.
        """
        self._submit(node, channel, Submission(None, answer, fail, 0.0), timeout_s)

    def _unusable(self) -> ClientUseError:
        return self._closed_by if self.owner.closed else ClientUseError(f"this {self._name} is not started")

    def call(
        self,
        node: int,
        request: Request,
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
        channel: str = DATA,
    ) -> asyncio.Future[Any]:
        """Send a request as `submit`; the future gets its response or its error.

        Arguments:
            node: the broker id.
            request: to send.
            timeout_s: seconds until it fails; None = that of the client.
            version_max: limit of the version; None = none.
            channel: name of the connection to the broker.
        """
        future: asyncio.Future[Any] = self.loop.create_future()
        self.submit(node, request, *completing(future), timeout_s=timeout_s, version_max=version_max, channel=channel)
        return future

    def submit_any(self, request: Request, answer: Answer, fail: Fail, *, timeout_s: float | None = None) -> None:
        """Send a request to the least loaded broker; after connection errors and timeouts to others.

        Arguments:
            request: any request message.
            answer: called with the response.
            fail: called with the error instead.
            timeout_s: deadline in seconds, all attempts included; None = `default_api_timeout_s`.
        """
        if self._running is None:
            fail(self._unusable())
            return
        timeout_s = self.settings.default_api_timeout_s if timeout_s is None else timeout_s
        self._submit_any(request, answer, fail, timeout_s)

    def call_any(self, request: Request, *, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """Send a request as `submit_any`; the future gets its response or its error."""
        future: asyncio.Future[Any] = self.loop.create_future()
        self.submit_any(request, *completing(future), timeout_s=timeout_s)
        return future

    def _submit_any(
        self, request: Request, answer: Answer, fail: Fail, timeout_s: float, *, fail_fast: bool = False
    ) -> None:
        assert self._running is not None
        deadline, attempt_s = self.loop.time() + timeout_s, self.settings.request_timeout_s
        call = AnyCall(request, answer, fail, deadline=deadline, attempt_s=attempt_s, fail_fast=fail_fast)
        self._running.any_broker.submit(call)

    def _ask_any(self, request: Request, answer: Answer, fail: Fail, timeout_s: float) -> None:
        self.submit_any(request, answer, fail, timeout_s=timeout_s)

    def channel(self, node: int, channel: str = DATA) -> Channel | None:
        """Return the connection to a broker, arguments as in `submit`; None = no request has used it."""
        return None if self._running is None else self._running.channels.find(node, channel)

    def version(self, node: int, request: type[Request], channel: str = DATA) -> int | None:
        """Return the version that a request to a broker has; None = not connected.

        Arguments:
            node: broker id.
            request: class of the request.
            channel: as in `submit`.

        Raises:
            UnsupportedVersionError: the broker does not serve the request.
        """
        found = self.channel(node, channel)
        return None if found is None or found.connection is None else found.connection.version(request)

    def feature(self, node: int, name: str, channel: str = DATA) -> int | None:
        """Return the level of a finalized feature as a broker has reported it; None = it has not, or is not connected.

        Arguments:
            node: broker id.
            name: of the feature.
            channel: as in `submit`.
        """
        found = self.channel(node, channel)
        return None if found is None or found.connection is None else found.connection.features.get(name)

    def in_flight(self, node: int, channel: str = DATA) -> int:
        """Return the number of requests to a broker that are not answered, queued ones included."""
        found = self.channel(node, channel)
        return 0 if found is None else found.open_calls

    def is_connected(self, node: int, channel: str = DATA) -> bool:
        """Return whether a request to a broker would be sent at once."""
        found = self.channel(node, channel)
        return found is not None and found.connection is not None

    def blocked_until(self, node: int, channel: str = DATA) -> float:
        """Return the time of the loop's clock until which no attempt to connect to a broker is made; -infinity = now.

        A request that is submitted before waits until then.
        """
        found = self.channel(node, channel)
        return -inf if found is None or found.connection is not None else found.blocked_until

    def last_error(self, node: int, channel: str = DATA) -> KafkaError | None:
        """Return why the last attempt to connect to a broker, or its last connection, has failed; None = it has not."""
        found = self.channel(node, channel)
        return None if found is None else found.last_error

    def unreachable(self) -> KafkaError | None:
        """Return why no broker is connected; None = one is, or no attempt has failed."""
        return None if self._running is None else self._running.any_broker.unreachable()

    @property
    def bootstrap_nodes(self) -> list[int]:
        """The broker ids, negative, of the bootstrap addresses, to which requests can be sent as to brokers."""
        return [] if self._running is None else self._running.channels.bootstrap_nodes

    def _channel_changed(self, channel: Channel) -> None:
        if self._running is not None:
            if channel.last_error is not None:
                self.refresh_metadata()
            self._running.any_broker.advance()

    # metadata

    def use_topics(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Keep the metadata of these topics current, from now on.

        Arguments:
            topics: names.
            create: the broker may create a topic that does not exist (`auto.create.topics.enable`).
        """
        self._schedule.use(topics, self.loop.time() if self._running else -inf, create=create)
        self._set_alarm()

    def drop_topics(self, topics: Iterable[str]) -> None:
        """Do not keep the metadata of these topics current any more; the view forgets them."""
        dropped = list(topics)
        self._schedule.drop(dropped)
        for topic in dropped:
            self.view.forget(topic)

    def use_all_topics(self, use: bool) -> None:
        """Keep the metadata of every topic of the cluster current (for patterns that the client resolves)."""
        if use and not self._schedule.all_topics:
            self._schedule.all_topics = True
            self.refresh_metadata()
        self._schedule.all_topics = use

    def refresh_metadata(self, topics: Iterable[str] | None = None) -> None:
        """Request metadata soon. Calls before the request are combined; back-off separates the requests of a topic.

        Arguments:
            topics: those whose leaders are unknown or wrong, of the used ones; None = all that are used.
        """
        if self._running is not None:
            self._schedule.want(topics, self.loop.time())
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._running is not None and self._schedule.refreshed_at > -inf:  # `start` requests the first metadata
            self._running.alarm.set(max(self._schedule.wake_at, self.loop.time()))

    def _request_metadata(self) -> None:
        call = self._schedule.next_request(self.loop.time())
        if call is not None:
            answer, fail = partial(self._metadata_answered, call), partial(self._metadata_failed, call)
            guard = self.owner.guard  # also for the functions of `on_metadata` and `on_rejected`
            self.submit_any(call.request, guard(answer), guard(fail), timeout_s=self.settings.request_timeout_s)
        self._set_alarm()

    def _metadata_answered(self, call: MetadataCall, response: MetadataResponse) -> None:
        try:
            self._apply(call, response)
        except KafkaError as error:
            self._metadata_failed(call, error)

    def _apply(self, call: MetadataCall, response: MetadataResponse) -> None:
        """Apply a response. Raises KafkaError if it is not one that the client may use."""
        if response.error_code == KafkaErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap()
        if response.error_code:
            raise error_for(response.error_code)
        if not response.brokers:
            raise error_for(KafkaErrorCode.BROKER_NOT_AVAILABLE, "the metadata has no broker")
        changes = self.view.update(response)
        if call.request.topics is None:
            self.view.keep(each.name for each in response.topics)
        self._failing_since = inf
        self._schedule.answered(call, changes, self.loop.time())
        self._set_alarm()
        call_all(self._use_brokers, *(partial(function, changes) for function in self.on_metadata))

    def use_brokers_of(self, response: MetadataResponse) -> None:
        """Apply the brokers and the controller of a Metadata response that the user of this client has requested."""
        if response.brokers:
            self.view.update_brokers(response)
            self._use_brokers()

    def _use_brokers(self) -> None:
        if self._running is not None:
            self._running.channels.set_brokers(self.view.brokers.values())

    def _metadata_failed(self, call: MetadataCall, error: KafkaError) -> None:
        if self._running is None:
            return
        now = self.loop.time()
        if isinstance(error, AuthenticationError):
            self._schedule.rejected(call, now)
            self._set_alarm()
            call_all(*(partial(function, error) for function in self.on_rejected))
            return
        self._schedule.failed(call, now)
        self._failing_since = min(self._failing_since, now)
        if now - self._failing_since >= self.settings.rebootstrap_after_s:
            self._rebootstrap()
        self._set_alarm()

    def _rebootstrap(self) -> None:
        """Forget all brokers, and begin again with the bootstrap addresses (KIP-899, KIP-1102)."""
        self._failing_since = inf
        self.view.brokers.clear()
        if self._running is not None:
            self._running.coordinators.forget_all()
            self._running.channels.forget_brokers()

    # coordinators

    def coordinator(self, key: str, key_type: int = GROUP) -> int | None:
        """Return the broker id of a coordinator that is known; None = call `find_coordinator`.

        Arguments:
            key: group id or transactional id.
            key_type: GROUP (0) or TRANSACTION (1).
        """
        return None if self._running is None else self._running.coordinators.get(key, key_type)

    def find_coordinator(
        self,
        key: str,
        key_type: int,
        answer: Callable[[int], object],
        fail: Fail,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Find a coordinator; errors that may pass are retried with back-off. Lookups of one key share one request.

        Arguments:
            key: group id or transactional id.
            key_type: GROUP (0) or TRANSACTION (1).
            answer: called with its broker id.
            fail: called with the error instead.
            timeout_s: deadline in seconds, all attempts included; None = `default_api_timeout_s`.
        """
        if self._running is None:
            fail(self._unusable())
            return
        timeout_s = self.settings.default_api_timeout_s if timeout_s is None else timeout_s
        self._running.coordinators.find(key, key_type, answer, fail, timeout_s)

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """A broker has answered that it is not the coordinator, or cannot be reached: the next lookup asks again.

        Arguments:
            key: group id or transactional id.
            key_type: GROUP (0) or TRANSACTION (1).
        """
        if self._running is not None:
            self._running.coordinators.forget(key, key_type)

    def _coordinator_found(self, node: Node) -> None:
        """Make a coordinator addressable that metadata has not named yet."""
        if self._running is not None and node.broker_id not in self.view.brokers:
            self.view.brokers[node.broker_id] = node
            self._use_brokers()
