"""Assigns producer ids from blocks that are made durable before their first use, so that no id is assigned twice.

A block is taken from the coordination service by compare-and-set (KIP-730, ProducerIdsBlock.java: 1,000 ids). After a
crash the rest of a block is lost, which costs nothing.
"""

from collections import deque
from collections.abc import Callable

from kafkalite.errors import KafkaErrorCode

NO_ID = -1

DrawDone = Callable[[int, int], None]
TakeBlock = Callable[[Callable[[range | None], None]], None]


class ProducerIds:
    """The ids of one broker.

    Arguments:
        take_block: requests the next block; its callback receives the ids once the block is durable, or None after a
            failure.

    Attributes:
        last: the last id of the latest block, -1 for none.
    """

    def __init__(self, take_block: TakeBlock) -> None:
        self.last = NO_ID
        self._take_block = take_block
        self._block = iter(range(0))
        self._waiting: deque[DrawDone] = deque()
        self._requested = False

    def draw(self, then: DrawDone) -> None:
        """Call `then(producer_id, 0)`, or `then(-1, error code)` if there is no further block."""
        self._waiting.append(then)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            producer_id = next(self._block, None)
            if producer_id is None:
                break
            self._waiting.popleft()(producer_id, 0)
        if self._waiting and not self._requested:
            self._requested = True
            try:
                self._take_block(self._taken)
            except Exception:
                self._taken(None)  # callers must not wait for ever
                raise

    def _taken(self, block: range | None) -> None:
        self._requested = False
        if block is not None:
            self._block, self.last = iter(block), block[-1]
            self._serve()
            return
        waiting, self._waiting = self._waiting, deque()
        for then in waiting:
            then(NO_ID, KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
