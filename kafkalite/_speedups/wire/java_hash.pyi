def java_hash(text: str) -> int:
    """Java's `String.hashCode` over UTF-16 units: a signed 32-bit number; 0 instead of the one without an absolute
    value."""
