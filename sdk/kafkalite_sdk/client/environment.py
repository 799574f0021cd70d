"""The connections, the randomness and the wall time of a client as one parameter, which simulations replace.

Timers and the time of deadlines come from the event loop.
"""

import random
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kafkalite.net.client.connection import Dial, dial


class Random(Protocol):
    """The part of `random.Random` that a client uses."""

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Return an integer from 0 to below `stop`."""
        ...


class Environment(NamedTuple):
    """What a client uses from outside.

    Attributes:
        dial: connects to a broker.
        random: spreads retries and chooses brokers; not for secrets.
        wall_ms: returns the milliseconds since 1970, for timestamps of records and resets by duration; None = the
            system's clock.
    """

    dial: Dial = dial
    random: Random = random.Random()
    wall_ms: Callable[[], int] | None = None

    def now_ms(self) -> int:
        """Return the wall time in milliseconds since 1970."""
        return int(time.time() * 1000) if self.wall_ms is None else self.wall_ms()
