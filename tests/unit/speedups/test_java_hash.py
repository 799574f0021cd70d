"""`java_hash` against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalite._speedups.wire.java_hash import java_hash


@given(st.text())
def test_java_hash_matches_java(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(units), 2):
        total = (total * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    signed = total - 2**32 if total >= 2**31 else total
    assert java_hash(text) == (0 if signed == -(2**31) else signed)
