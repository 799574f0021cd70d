"""Shows the progress of a query as a consumer group, for `kafkalite group describe` and every tool that shows lag.

The offsets are for readers of the group only: no query begins with them. So a failure does not end a query; the next
micro-batch commits again.
"""

import logging
from collections.abc import Mapping
from typing import Any

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from pyspark_kafkalite import clients
from pyspark_kafkalite.stream_offsets import Offsets

LOGGER = logging.getLogger("pyspark_kafkalite")


class ProgressGroup:
    """The consumer group of one query.

    Arguments:
        group: its id. It must have no members: use it for nothing else.
        client: `SourceOptions.client`.
    """

    def __init__(self, group: str, client: Mapping[str, Any]) -> None:
        self._group = group
        self._client = dict(client)
        self._committed: dict[TopicPartition, int] = {}

    def commit(self, offsets: Offsets) -> None:
        """Commit the next offset of each partition, unless this object has done so. A failure is logged."""
        changed = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        if not changed:
            return
        try:
            clients.admin(self._client).group_offsets.alter(self._group, changed).check()
        except KafkaError as error:
            LOGGER.warning("progress is not shown as group %s until the next micro-batch: %s", self._group, error)
        else:
            self._committed |= changed

    def lag_seconds(self) -> float | None:
        """Return the age of the oldest record that is not committed, in seconds; None = unknown."""
        try:
            lag = clients.admin(self._client).groups.lag(self._group, ages=True)[self._group]
        except KafkaError as error:
            LOGGER.warning("the lag of group %s is unknown: %s", self._group, error)
            return None
        ages = [each.age_s for each in lag.partitions.values() if each.age_s is not None]
        return max(ages, default=None)
