"""Strings as Java hashes and orders them: by UTF-16 code units."""

from kafkalite._speedups.wire.java_hash import java_hash

SIGN = 1 << 31
MASK = (1 << 32) - 1


def hash_code(text: str) -> int:
    """`String.hashCode` of Java, a signed number of 32 bits."""
    # java_hash has 0 in place of the one number that has no absolute value in 32 bits.
    return java_hash(text) or _hash_code(text)


def utf16_order(text: str) -> bytes:
    """A key that sorts texts as `String.compareTo` of Java does; Python compares code points."""
    return text.encode("utf-16-be", "surrogatepass")


def _hash_code(text: str) -> int:
    units = utf16_order(text)
    total = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (total * 31 + (high << 8 | low)) & MASK
    return (total ^ SIGN) - SIGN
