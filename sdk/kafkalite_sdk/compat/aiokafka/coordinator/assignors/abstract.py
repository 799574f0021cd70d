"""The base class of aiokafka's assignors."""

from typing import ClassVar


class AbstractPartitionAssignor:
    """Names an assignor of the engine.

    Attributes:
        name: the name in the group protocol.
    """

    name: ClassVar[str] = ""
