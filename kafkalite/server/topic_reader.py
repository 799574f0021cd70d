"""Reads topics from the tree of a cluster, whose image has neither their configs nor all of their partitions."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kafkalite.callbacks import gather
from kafkalite.clock import Clock, Outcome
from kafkalite.cluster.membership.current_session import CurrentSession
from kafkalite.cluster.topic_writes import read_configs
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Then
from kafkalite.coordination.errors import CoordinationError, NoNodeError

LOGGER = logging.getLogger("kafkalite.server")
RETRY_S = 0.5

TopicConfigs = Mapping[str, str]


class TopicReader:
    """Reads as long as it takes: after an error of the coordination service again, in the next session if one is lost.

    Arguments:
        session: with the coordination service.
        clock: for the pauses.
    """

    def __init__(self, session: CurrentSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock

    def read(self, topics: Sequence[str], then: Callable[[Mapping[str, TopicConfigs]], object]) -> None:
        """Read the configs of topics. Invalid ones are logged, the topic has none then."""
        gather(
            [partial(self.read_configs, topic) for topic in topics],
            lambda found: then(dict(zip(topics, found, strict=True))),
        )

    def read_configs(self, topic: str, then: Callable[[TopicConfigs], object]) -> None:
        """Read the configs of a topic. Invalid ones are logged, the topic has none then."""

        def read(outcome: Outcome) -> None:
            if isinstance(outcome.error, znodes.ZnodeError):
                LOGGER.error("%s; topic %s has the broker's configs", outcome.error, topic)
                then({})
            else:
                then(outcome.result())

        self._until_read(partial(read_configs, self._session, znodes.topic_config_path(topic)), read)

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """Count the partitions of a topic; 0 = it does not exist, or its node is invalid, which is logged."""
        path = znodes.topic_path(topic)

        def read(outcome: Outcome) -> None:
            if isinstance(outcome.error, NoNodeError):
                then(0)
                return
            data, _ = outcome.result()
            try:
                count = len(znodes.decode_topic(path, data).replicas)
            except znodes.ZnodeError as error:
                LOGGER.error("%s; its partitions are not counted", error)
                count = 0
            then(count)

        self._until_read(partial(self._session.get, path), read)

    def _until_read(self, call: Callable[[Then], object], then: Then) -> None:
        """Repeat a read until it succeeds, or finds that there is no node."""

        def ended(outcome: Outcome) -> None:
            if isinstance(outcome.error, CoordinationError) and not isinstance(outcome.error, NoNodeError):
                self._clock.call_at(self._clock.monotonic() + RETRY_S, self._until_read, call, then)
            else:
                then(outcome)

        call(ended)
