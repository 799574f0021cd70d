"""`hash_code` is Java's `String.hashCode`; the values are those of a JVM."""

import pytest
from kafkalite_sdk.zk.java_strings import hash_code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),  # the same code as "Aa"
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("key-1234567", 1808300230),
        ("ä", 228),
        ("\N{GRINNING FACE}", 1772899),  # two code units
        ("\ud800", 55296),  # half of a pair
    ],
)
def test_hash_of_a_text(text: str, code: int) -> None:
    assert hash_code(text) == code
