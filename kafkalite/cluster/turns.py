"""Changes of one thing come one after the other: a change begins when the one before it has ended, durably or not.

What a change is decided on (does the topic exist, which configs has it) is therefore what the one before it left. Keys
that differ do not wait for each other.
"""

from collections import deque
from collections.abc import Callable, Hashable

End = Callable[[], None]
Step = Callable[[End], None]


class Turns:
    """A queue of steps for each key that has any."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Step]] = {}

    def take(self, key: Hashable, step: Step) -> None:
        """Call `step(end)` when all earlier steps of this key have ended; it calls `end` once, now or later."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(step)
            return
        self._queues[key] = queue = deque((step,))
        self.run(key, queue)

    def run(self, key: Hashable, queue: deque[Step]) -> None:
        """Begin steps until one of them goes on outside, or none is left. A loop: thousands may end at once."""
        while queue:
            turn = Turn(self, key, queue)
            try:
                queue.popleft()(turn.end)
            except BaseException:
                turn.inside = False
                if turn.ended:
                    self.run(key, queue)
                else:
                    turn.end()  # the others must not wait for a step that failed
                raise
            if not turn.ended:
                turn.inside = False
                return
        del self._queues[key]


class Turn:
    """One step under way; `inside` while its call has not returned."""

    __slots__ = ("_key", "_queue", "_turns", "ended", "inside")

    def __init__(self, turns: Turns, key: Hashable, queue: deque[Step]) -> None:
        self._turns = turns
        self._key = key
        self._queue = queue
        self.ended = False
        self.inside = True

    def end(self) -> None:
        """The step is done."""
        assert not self.ended, "a turn ends once"
        self.ended = True
        if not self.inside:
            self._turns.run(self._key, self._queue)
