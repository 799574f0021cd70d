"""Raises the leader epochs in the tree to those of the logs of this broker, by compare-and-set.

A tree that was restored from an older copy has lower leader epochs than the logs. A broker that led in such an epoch
would rewrite the history of its epochs, and running clients ignore metadata with a lower epoch than they know. So the
broker rejects the assignment with FENCED_LEADER_EPOCH and raises the epoch in the state node; the controller elects
again, in an epoch above both. As when brokers of Apache Kafka 3.9 change the ISR (ZkIsrManager), only leader epoch and
version of the node change, so that the controller's next write of it fails and it reads the node.

A raise skips `RAISED_BY` further epochs: clients may have seen epochs without a leader, which are in no log.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.model import TopicPartition

LOGGER = logging.getLogger("kafkalite.cluster")
RAISED_BY = 1_000  # of 2**31


class LeaderEpochRaise:
    """Raises epochs with a session.

    Arguments:
        session: with the coordination service.
        found: called with the partitions whose epoch in the tree is lower than in their logs.
    """

    def __init__(self, session: Coordination, found: Callable[[list[TopicPartition]], object]) -> None:
        self._session = session
        self._found = found

    def __call__(self, latest: Mapping[TopicPartition, int], then: Callable[[], object]) -> None:
        """Raise the epochs to those of the logs; `then` is called at the end.

        A failure is logged: the controller assigns the partition again, and the broker rejects it again.
        """
        keys = list(latest)

        def raised(outcomes: list[Outcome]) -> None:
            behind = []
            for key, outcome in zip(keys, outcomes, strict=True):
                if outcome.error is not None:
                    LOGGER.warning("%s: the leader epoch in the tree cannot be raised: %s", key, outcome.error)
                elif outcome.value:
                    behind.append(key)
            if behind:
                self._found(behind)
            then()

        gather([partial(self._raise, key, latest[key]) for key in keys], raised)

    def _raise(self, key: TopicPartition, latest: int, then: Then) -> None:
        """Raise one epoch, unless it is above that of the log; the value of the outcome is whether it was lower."""
        path = znodes.state_path(*key)

        def read(outcome: Outcome) -> None:
            if isinstance(outcome.error, CoordinationError):
                then(outcome)
                return
            data, stat = outcome.result()
            try:
                state = znodes.decode_state(path, data)
            except znodes.ZnodeError as error:
                then(Outcome(error=error))
                return
            if state.leader_epoch > latest:
                then(Outcome(False))
                return
            lower = state.leader_epoch < latest

            def written(outcome: Outcome) -> None:
                then(Outcome(lower) if outcome.error is None else outcome)

            raised = znodes.encode_state(state._replace(leader_epoch=latest + RAISED_BY))
            self._session.set(path, raised, written, stat.version)

        self._session.get(path, read)
