"""Reads, follows and changes the finalized features of the cluster, which `metadata/image.FinalizedFeatures` has.

1. `/kafkalite/features` has the levels. It exists from the first start on; without data each feature has its highest
   level.
2. Each broker of a cluster watches the node; the controller changes it, by a compare-and-set. A broker that is alone
   reads it at the start.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from kafkalite.clock import Clock, Outcome
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.cluster.metadata.image import SUPPORTED_FEATURES, FinalizedFeatures
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, SessionExpiredError
from kafkalite.coordination.tree import Stat, WatchEvent
from kafkalite.coordination.znodes import FEATURES, ZnodeError
from kafkalite.coordination.znodes.features import decode_levels, encode_levels

LOGGER = logging.getLogger("kafkalite.cluster")
RETRY_S = 1.0


class FeatureFollower:
    """Follows the node during one session.

    Arguments:
        features: receives the levels.
        session: with the coordination service.
        clock: for pauses between attempts.
    """

    def __init__(self, features: FinalizedFeatures, session: Coordination, clock: Clock) -> None:
        self._features = features
        self._session = session
        self._clock = clock
        self._closed = False

    def start(self) -> None:
        """Read the levels, and watch them."""
        self._look()

    def close(self) -> None:
        """Watch no more."""
        self._closed = True

    def _look(self, _event: WatchEvent | None = None) -> None:
        if not self._closed:
            self._session.get(FEATURES, self._read, self._look)

    def _read(self, outcome: Outcome) -> None:
        if self._closed or isinstance(outcome.error, SessionExpiredError):
            return
        if isinstance(outcome.error, CoordinationError):
            LOGGER.warning("%s cannot be read, next attempt in %.0f s: %s", FEATURES, RETRY_S, outcome.error)
            self._clock.call_at(self._clock.monotonic() + RETRY_S, self._look)
        else:
            apply_levels(self._features, *outcome.result())


def change_levels(
    features: FinalizedFeatures, session: Coordination, changes: Mapping[str, int], then: Callable[[int], object]
) -> None:
    """Store other levels, on the controller.

    Arguments:
        features: the current ones.
        session: with the coordination service.
        changes: levels by feature.
        then: called with 0 once they are durable and known here, else with a Kafka error code: NOT_CONTROLLER if
            another broker has changed them.
    """
    data = encode_levels({**features.levels, **changes})

    def written(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(code_of(outcome.error))
            return
        apply_levels(features, data, outcome.value)
        then(0)

    session.set(FEATURES, data, written, features.epoch)


def apply_levels(features: FinalizedFeatures, data: bytes, stat: Stat) -> None:
    """Apply the content of the node. A level that this version does not know counts as the highest one."""
    if stat.version <= features.epoch:
        return
    try:
        found = decode_levels(data)
    except ZnodeError as error:
        LOGGER.error("the levels of features are unchanged: %s", error)
        return
    levels = {name: min(found.get(name, last), last) for name, (_, last) in SUPPORTED_FEATURES.items()}
    if levels != features.levels:
        LOGGER.info("finalized features: %s", ", ".join(f"{name}={level}" for name, level in levels.items()))
    features.replace(MappingProxyType(levels), stat.version)
