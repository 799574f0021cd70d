"""The stages of a consumer: what an application may do with the records that `poll` returns, and with commits.

An exception of an interceptor never ends the consumer. In `on_record` the record is a poison value, see
`kafkalite_sdk.consumer.poison`. The other stages cannot change what happens to a record: their exceptions are passed to
the exception handler of the event loop. Source: KIP-42 (`ConsumerInterceptor`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.interceptors.stages import methods, note
from kafkalite_sdk.values import OffsetAndMetadata

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class ConsumerInterceptor:
    """Base class for interceptors of a consumer. Override the stages that you need; they must return quickly."""

    def on_record(self, record: Record[Any, Any]) -> None:
        """Called with each record before `poll` or a stream returns it. An exception makes the record a poison value.

        It may be called again for a record that `poll` could not return yet.
        """

    def on_poll(self, records: Sequence[Record[Any, Any]]) -> None:
        """Called with the records of one `poll` before it returns them, not without records."""

    def on_commit(self, offsets: Offsets, error: KafkaError | None) -> None:
        """Called when a commit has ended, also an automatic one.

        Arguments:
            offsets: those that were to be committed.
            error: why not all of them are committed; None = they are.
        """


class ConsumerStages:
    """Calls the interceptors of one consumer; see `ProducerStages`."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._on_record = methods(interceptors, ConsumerInterceptor, "on_record")
        self._on_poll = methods(interceptors, ConsumerInterceptor, "on_poll")
        self._on_commit = methods(interceptors, ConsumerInterceptor, "on_commit")

    @property
    def intercepts_records(self) -> bool:
        """Whether single records are intercepted."""
        return bool(self._on_record)

    @property
    def intercepts_polls(self) -> bool:
        """Whether the records of a poll are intercepted."""
        return bool(self._on_poll)

    @property
    def intercepts_commits(self) -> bool:
        """Whether commits are intercepted."""
        return bool(self._on_commit)

    def record(self, record: Record[Any, Any]) -> None:
        """A record will be returned. Raises what an interceptor raises."""
        for method in self._on_record:
            try:
                method(record)
            except Exception as error:
                note(method, error)
                raise

    def polled(self, records: Sequence[Record[Any, Any]]) -> None:
        """A poll returns records."""
        for method in self._on_poll:
            _call(method, records)

    def committed(self, offsets: Offsets, error: KafkaError | None) -> None:
        """A commit has ended."""
        for method in self._on_commit:
            _call(method, offsets, error)


def _call(method: Callable[..., Any], *args: object) -> None:
    try:
        method(*args)
    except Exception as error:
        note(method, error)
        context = {"message": "an interceptor of a Consumer raised", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
