"""Reports topics that a consumer reads and that the cluster does not have, or does not let it read.

Invariants:
1. One warning per topic, until the cluster has it: also for a topic that was deleted.
2. A topic is reported when it has been missing for MISSING_S: a broker knows a new topic a moment later than another.
"""

import logging
from collections.abc import Collection

from kafkalite.errors import KafkaErrorCode, error_for
from kafkalite_sdk.client.cluster_view import ClusterView

LOGGER = logging.getLogger("kafkalite_sdk.consumer.missing_topics")

MISSING_S = 1.0
UNKNOWN = (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.UNKNOWN_TOPIC_ID)


class MissingTopics:
    """The missing topics of one consumer.

    Arguments:
        view: of the cluster.
        reader: name of the consumer, for the warnings.
    """

    def __init__(self, view: ClusterView, reader: str) -> None:
        self._view = view
        self._reader = reader
        self._since: dict[str, float] = {}
        self._reported: set[str] = set()

    def update(self, topics: Collection[str], now: float) -> None:
        """Metadata has arrived.

        Arguments:
            topics: those that the consumer reads.
            now: in seconds of the loop's clock.
        """
        missing = [each for each in topics if each in self._view.errors]
        if not missing and not self._since:
            return
        self._since = {each: self._since.get(each, now) for each in missing}
        self._reported.intersection_update(missing)
        for topic, since in self._since.items():
            if now >= since + MISSING_S and topic not in self._reported:
                self._reported.add(topic)
                LOGGER.warning("%s reads topic %s: %s", self._reader, topic, self._reason(topic))

    def _reason(self, topic: str) -> str:
        code = self._view.errors[topic]
        if code in UNKNOWN:
            return "the cluster does not have it; check the name, or create the topic"
        return str(error_for(code))

    @property
    def text(self) -> str | None:
        """The reported topics, for people; None = there is none."""
        missing = sorted(self._reported & self._view.errors.keys())  # a topic may be read no longer
        return ", ".join(f"topic {each}: {self._reason(each)}" for each in missing) or None
