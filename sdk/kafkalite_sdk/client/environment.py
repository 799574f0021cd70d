"""The connections and the randomness of a client as one parameter, which simulations replace.

Time and timers come from the event loop.
"""

import random
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
    """

    dial: Dial = dial
    random: Random = random.Random()
