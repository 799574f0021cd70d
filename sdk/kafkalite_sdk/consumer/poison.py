"""Poison values: records whose key or value cannot be deserialized, or that an interceptor rejects.

Checks the records of a poll before they are returned. Invariants:
1. A record that is not returned yet stays in `driver.iteration`: a cancelled poll loses none, and a commit covers none.
2. The records before a poison value are returned first. Then the policy applies: `poll` raises with the position, the
   record is skipped, or an async function of the application receives it; if that raises, `poll` raises with the
   position. Other partitions continue.
3. A deserializer that needs something from outside raises `DeserializerNotReady`. The poll waits for its future as for
   a response: heartbeats, rebalances and prefetching continue.
4. A failure of something outside, or of the credentials for it, is not a poison value, whatever the policy: `poll`
   raises it, and reads the record again at the next call.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kafkalite.errors import AuthenticationError, AuthorizationError, PoisonRecordError, RetriableError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.consumer.application_calls import application_call
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.consumer.offsets.positions import PartitionState

if TYPE_CHECKING:
    from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor, ConsumerStages

LOGGER = logging.getLogger("kafkalite_sdk.consumer.poison")

PoisonHandler = Callable[[Record[Any, Any], Exception], Awaitable[None] | None]
PoisonPolicy = Literal["raise", "skip"] | PoisonHandler
"""What happens to poison values; a function receives the record and the error."""

INFRASTRUCTURE = (
    RetriableError,
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    TimeoutError,
    MemoryError,
)
"""Errors of a deserializer or interceptor that say nothing about the record."""

REPORTS_MAX = 1000
"""Pairs of topic and class of error that are logged once each; then no more are logged."""


class DeserializerNotReady(Exception):
    """Raised by a deserializer that must wait, for example for a schema; it is called again when `future` is done.

    A deserializer that raises it has the attribute `awaits = True`.

    Arguments:
        future: done when the deserializer can decide: return an object, or raise another exception.
    """

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        super().__init__("the deserializer is not ready")
        self.future = future


def check_policy(policy: object) -> None:
    """Raise ValueError unless it is a policy for poison values."""
    if policy is not None and policy not in ("raise", "skip") and not callable(policy):
        raise ValueError(f'on_poison is {policy!r}, expected "raise", "skip" or a function of record and error')


Rejected: TypeAlias = tuple[Record[Any, Any], Exception]
"""A record that may not be returned, and its error."""


class PoisonCheck:
    """Checks the records of one consumer.

    Arguments:
        driver: of the consumer.
        policy: for poison values.
        stages: the interceptors, None = there are none.
        deserializes: keys or values are deserialized here, not when the application reads them.

    Attributes:
        intercepts: interceptors are called with the records.
    """

    def __init__(
        self, driver: AnyDriver, policy: PoisonPolicy, stages: "ConsumerStages | None", *, deserializes: bool
    ) -> None:
        self._driver = driver
        self._policy = policy
        self._on_record = None if stages is None or not stages.intercepts_records else stages.record
        self._on_poll = None if stages is None else stages.polled
        self._deserializes = deserializes
        self.intercepts = stages is not None and (stages.intercepts_records or stages.intercepts_polls)
        self._checked: dict[tuple[str, int], int] = {}  # the last offset that was checked
        self._awaited: asyncio.Future[Any] | None = None
        self._reported: set[tuple[str, type]] = set()
        driver.positions.on_move.append(self._moved)

    @property
    def waits(self) -> bool:
        """Whether the next record waits for its deserializer."""
        return self._awaited is not None and not self._awaited.done()

    def _moved(self, state: PartitionState) -> None:
        """The position of a partition has changed: other records may have the offsets that were checked."""
        self._checked.pop(state.topic_partition, None)

    def returnable(self, records: list[Record[Any, Any]]) -> tuple[list[Record[Any, Any]], Rejected | None]:
        """Return those of the taken records that `poll` returns now; the others are taken again.

        Arguments:
            records: were taken. If this raises, they are those that are taken again by nothing else.

        Returns: the records; and, if there are none, the first one that may not be returned, for `handle`.
        """
        good: list[Record[Any, Any]] = []
        kept = records  # those that are neither returned nor in `iteration`
        try:
            index, failure, fresh = self._check(records, good)
            self._put_back(records[index:])
            kept = good
            if isinstance(failure, DeserializerNotReady):
                self._await(failure)
            if fresh and self._on_poll is not None:
                self._on_poll(good)
        except BaseException:
            records[:] = kept
            raise
        if failure is None or good or isinstance(failure, DeserializerNotReady):
            return good, None
        return good, (records[index], failure)

    def _check(
        self, records: list[Record[Any, Any]], good: list[Record[Any, Any]]
    ) -> tuple[int, Exception | None, bool]:
        """Append the records to `good` that may be returned, until one may not be.

        Returns: the index of that record and its error, else the number of records and None; and whether one was
        checked for the first time.
        """
        checked, fresh = self._checked, False
        for index, record in enumerate(records):
            partition = record.topic, record.partition
            if record.offset > checked.get(partition, -1):
                try:
                    self._read(record)
                except Exception as error:
                    if self._policy != "skip" or isinstance(error, (DeserializerNotReady, *INFRASTRUCTURE)):
                        return index, error, fresh
                    self._report(record, error)
                    continue
                checked[partition] = record.offset
                fresh = True
            good.append(record)
        return len(records), None, fresh

    def _read(self, record: Record[Any, Any]) -> None:
        if self._deserializes:
            _ = record.key, record.value
        if self._on_record is not None:
            self._on_record(record)

    def _put_back(self, records: list[Record[Any, Any]]) -> None:
        self._driver.iteration.records += reversed(records)

    def _await(self, error: DeserializerNotReady) -> None:
        """Have the poll continue when the deserializer is ready."""
        if error.future is not self._awaited:
            self._awaited = error.future
            error.future.add_done_callback(lambda _: self._driver.changed())

    def _report(self, record: Record[Any, Any], error: Exception) -> None:
        kind = record.topic, type(error)
        if kind not in self._reported and len(self._reported) < REPORTS_MAX:
            self._reported.add(kind)
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            LOGGER.warning("%s is skipped, later ones with this error without a message: %r", where, error)

    async def handle(self, rejected: Rejected) -> None:
        """Apply the policy to the first record of `iteration`.

        Raises:
            PoisonRecordError: it is a poison value; its position stays. INFRASTRUCTURE: it cannot be deserialized now.
        """
        record, error = rejected
        if isinstance(error, INFRASTRUCTURE):
            raise error
        if not callable(self._policy):
            raise self._error(record) from error
        try:
            with application_call(self._driver):
                result = self._policy(record, error)
                if inspect.isawaitable(result):
                    await result
        except Exception as failure:
            raise self._error(record) from failure
        records = self._driver.iteration.records
        if records and records[-1] is record:  # else a seek or a rebalance has dropped it meanwhile
            records.pop()

    def _error(self, record: Record[Any, Any]) -> PoisonRecordError:
        """The error for a record; its partition continues there, behind those of other partitions."""
        name = TopicPartition(record.topic, record.partition)
        state = self._driver.positions.states.get(name)
        if state is not None and record in self._driver.iteration.records:
            self._driver.fetcher.drop([name])  # a stream keeps the records before it
            self._driver.iteration.drop([name])
            self._driver.positions.seek(state, record.offset)
        return PoisonRecordError(record.topic, record.partition, record.offset)


def new_check(
    driver: AnyDriver,
    interceptors: "Sequence[ConsumerInterceptor]",
    policy: PoisonPolicy | None,
    deserializers: Iterable[object],
) -> PoisonCheck | None:
    """Return the check of the records of a consumer; None = its arguments need none.

    Raises:
        TypeError: an interceptor is of another class. ValueError: there is no such policy.
    """
    used = [each for each in deserializers if each is not None]
    awaits = any(getattr(each, "awaits", False) for each in used)
    if not interceptors and policy is None and not awaits:
        return None
    from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor, ConsumerStages
    from kafkalite_sdk.interceptors.stages import check_interceptors

    check_policy(policy)
    check_interceptors(interceptors, ConsumerInterceptor)
    stages = ConsumerStages(interceptors)
    if driver.group is not None and stages.intercepts_commits:
        driver.group.commits.observer = stages.committed
    deserializes = bool(used) and (policy is not None or awaits)
    return PoisonCheck(driver, policy or "raise", stages, deserializes=deserializes)
