"""The cleaner's map: against SipHash's reference vectors, and against a dict."""

import random

import pytest

from kafkalite._speedups.compaction.offset_map import OffsetMap, siphash
from tests.kit.seeds import chosen_seed

SEED = chosen_seed()
SECRET = bytes(range(16))
# vectors_sip128 of the reference implementation: the message of n bytes is 0, 1, .. n - 1.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize("size", VECTORS)
def test_siphash_is_the_reference(size: int) -> None:
    assert siphash(SECRET, bytes(range(size))).hex() == VECTORS[size]


def test_the_secret_decides_the_hash() -> None:
    assert siphash(bytes(16), b"key") != siphash(SECRET, b"key")
    with pytest.raises(ValueError, match="the secret has 16 bytes, not 15"):
        siphash(bytes(15), b"key")


def test_the_map_is_a_dict() -> None:
    print(f"KAFKALITE_SEED={SEED}")
    chance = random.Random(SEED)
    offsets, expected = OffsetMap(SECRET, 24 * 1000), dict[bytes, int]()
    offsets.clear(1000)
    assert (offsets.slots, offsets.capacity) == (1000, 900)
    for offset in range(20_000):
        key = chance.randbytes(chance.randint(0, 2))
        fits = key in expected or len(expected) < offsets.capacity
        assert offsets.put(key, offset) == fits
        if fits:
            expected[key] = offset
    assert len(offsets) == len(expected) == 900
    for number in range(65_536):
        key = number.to_bytes(2, "big")
        assert offsets.get(key) == expected.get(key, -1)


def test_an_offset_never_falls() -> None:
    offsets = OffsetMap(SECRET, 4096)
    offsets.clear(1)
    assert offsets.put(b"k", 5)
    assert offsets.put(b"k", 3)
    assert offsets.get(b"k") == 5


def test_memory_is_allocated_for_a_cleaning_and_freed() -> None:
    offsets = OffsetMap(SECRET, 24 * 10_000, 1.0)
    assert (offsets.slots, offsets.put(b"k", 1), offsets.get(b"k")) == (0, False, -1)
    offsets.clear(100)
    assert (offsets.slots, offsets.capacity) == (200, 199)
    offsets.clear(1 << 60)
    assert (offsets.slots, offsets.capacity) == (10_000, 9_999)
    assert offsets.put(b"k", 1)
    offsets.clear()
    assert (offsets.slots, len(offsets), offsets.latest_offset) == (0, 0, -1)


@pytest.mark.parametrize(("size", "load"), [(24, 0.9), (4096, 0.0), (4096, 1.5), (-1, 0.9)])
def test_a_map_that_holds_nothing_is_refused(size: int, load: float) -> None:
    with pytest.raises(ValueError, match="no map fits"):
        OffsetMap(SECRET, size, load)
