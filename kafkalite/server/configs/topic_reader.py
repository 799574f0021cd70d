"""Reads topics from the tree of a cluster, whose image has neither their configs nor all of their partitions."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kafkalite.callbacks import Window, call_all, fail_on_exception, gather, once
from kafkalite.clock import Clock, Outcome, Then
from kafkalite.cluster.configs.reads import Texts, is_out_of_reach, read_configs, readable
from kafkalite.cluster.sessions.current_session import CurrentSession
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.rate_limited_log import RateLimitedLog

LOGGER = logging.getLogger("kafkalite.server")
RETRY_S = 0.5
READS_MAX = 100  # their responses may arrive in one loop iteration
INVALID_RETRY_S = 10.0  # after a node that cannot be used


class TopicReader:
    """Repeats reads while the coordination service is out of reach, in the next session if one is lost.

    Arguments:
        session: with the coordination service.
        clock: for the pauses.
    """

    def __init__(self, session: CurrentSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._log = RateLimitedLog(LOGGER, clock)

    def read(self, topics: Sequence[str], then: Callable[[Mapping[str, Texts | None]], object]) -> None:
        """Read the configs of topics, as `read_configs`; at most READS_MAX at the same time.

        A read that raises counts as one that failed: the others and `then` do not wait for it.
        """
        window = Window(READS_MAX)

        def read(topic: str, taken: Callable[[Texts | None], object]) -> None:
            def begin(end: Callable[[], None]) -> None:
                def ended(found: Texts | None) -> None:
                    call_all(end, partial(taken, found))  # `end` begins a read that waits

                done = once(ended)
                fail_on_exception(self.read_configs, partial(done, None))(topic, done)

            window.run(begin)

        gather([partial(read, topic) for topic in topics], lambda found: then(dict(zip(topics, found, strict=True))))

    def read_configs(self, topic: str, then: Callable[[Texts | None], object]) -> None:
        """Read the configs of a topic. If they cannot be read, that is logged, and the result is None."""
        path = znodes.topic_config_path(topic)
        self._until_read(partial(read_configs, self._session, path), lambda outcome: then(readable(outcome, path)))

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """Count the partitions of a topic; 0 = it does not exist. A node that is invalid or cannot be read is logged,
        and read again after a pause.
        """
        path = znodes.topic_path(topic)

        def read(outcome: Outcome) -> None:
            if isinstance(outcome.error, NoNodeError):
                then(0)
            elif isinstance(outcome.error, CoordinationError):
                again(outcome.error)
            else:
                count(outcome.result()[0])

        def count(data: bytes) -> None:
            try:
                found = len(znodes.decode_topic(path, data).replicas)
            except znodes.ZnodeError as error:
                again(error)
            else:
                then(found)

        def again(error: Exception) -> None:
            text = "the partitions of %s cannot be counted, next attempt in %.0f s: %s"
            self._log(logging.ERROR, topic, text, topic, INVALID_RETRY_S, error)
            self._clock.call_at(self._clock.monotonic() + INVALID_RETRY_S, self.count_partitions, topic, then)

        self._until_read(partial(self._session.get, path), read)

    def _until_read(self, call: Callable[[Then], object], then: Then) -> None:
        """Repeat a read until it has a result, or an error of the node."""

        def ended(outcome: Outcome) -> None:
            if is_out_of_reach(outcome.error):
                self._clock.call_at(self._clock.monotonic() + RETRY_S, self._until_read, call, then)
            else:
                then(outcome)

        call(ended)
