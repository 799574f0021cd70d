from typing import Any, Self

class StructBase:
    """Base class of all structs: construction from keywords with defaults, comparison by value, copying."""

    def __init__(self, **values: object) -> None: ...
    @classmethod
    def of(cls, *values: Any) -> Self:
        """Build a struct from all its values in the order of their declaration: a fifth of the time of keywords.

        Raises:
            TypeError: there are more or fewer values than fields.
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

def rebuild(cls: type[StructBase], values: list[Any]) -> StructBase:
    """Build a struct from all its values in order; for copying and pickling."""
