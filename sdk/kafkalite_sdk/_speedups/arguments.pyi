"""Checks of what users pass to the hot paths, and the exact types in place of their subclasses."""

from typing_extensions import Buffer

__all__ = ["nullable_bytes"]

def nullable_bytes(value: Buffer | None) -> bytes | None:
    """Return the bytes of a key or value, copied from any buffer; None = null.

    Raises:
        TypeError: it has another type. A number of NumPy is rejected, although it has a buffer.
    """
