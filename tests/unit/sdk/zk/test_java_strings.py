"""String.hashCode and the order of Java; the hashes were computed by Java 17."""

import pytest
from kafkalite_sdk.zk.java_strings import hash_code, utf16_order


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("[topic,0]", 2068025637),
        ("topic-0", -1139260654),
        ("polygenelubricants", -2147483648),
        ("\U0001f600", 1772899),
        ("äöü", 226986),
    ],
)
def test_hash_code(text: str, expected: int) -> None:
    assert hash_code(text) == expected


def test_order_is_that_of_utf16() -> None:
    assert sorted(["\ufffd", "\U0001f600", "b", "B"], key=utf16_order) == ["B", "b", "\U0001f600", "\ufffd"]
