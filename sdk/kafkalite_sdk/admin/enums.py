"""Numbers of the protocol that newer brokers may extend.

Pure.
"""

from enum import IntEnum
from typing import Any


class OpenEnum(IntEnum):
    """An enumeration with a member UNKNOWN, which stands for every number of a newer broker."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls["UNKNOWN"] if isinstance(value, int) else None
