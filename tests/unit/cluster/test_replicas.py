"""The end of a pass: every dirty partition is written, whatever becomes of the others."""

from typing import cast

import pytest

from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas


class Written:
    """Stands in for a partition: counts its writes and what it gives up, and may fail in them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = self.abandoned = 0
        self.error = error

    def write(self) -> None:
        self.count += 1
        if self.error is not None:
            raise self.error

    def abandon_unwritten(self) -> None:
        self.abandoned += 1


def test_exception_of_one_partition_does_not_stop_writes_of_others() -> None:
    replicas = Replicas()
    dirty = [Written(), Written(ValueError("first")), Written(), Written(ValueError("second"))]
    for partition in dirty:
        replicas.mark_dirty(cast(Partition, partition))
    with pytest.raises(ValueError, match="first"):
        replicas.write_pending()
    replicas.write_pending()
    assert [partition.count for partition in dirty] == [1, 1, 1, 1]
    assert [partition.abandoned for partition in dirty] == [0, 1, 0, 1], "their memory is used again"
