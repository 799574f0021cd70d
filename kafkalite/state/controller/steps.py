"""Work of one event in steps: the runtime may serve others between them, but reports no other event.

A machine that computes 10,000 partitions at once keeps the clients of its broker waiting for a tenth of a second.
"""

from collections.abc import Generator
from typing import Any, TypeAlias

Steps: TypeAlias = Generator[None, None, Any]  # yields after each partition, or after work of some microseconds


def run_steps(result: Any) -> Steps:
    """The result of a function that is called in a step, or the return value of its own steps."""
    if isinstance(result, Generator):
        return (yield from result)
    return result
