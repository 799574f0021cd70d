"""Damaged requests and answers, in process: a typed error or a message, never anything else, and nothing leaks.

Takes three quarters of --fuzz-inputs; they are cheap. Replays from KAFKALITE_SEED.
"""

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest

from kafkalite._speedups import codec
from kafkalite.errors import DecodeError
from kafkalite.protocol.schema import Message, Request, Struct
from tests.kit.leaks import heap_grown
from tests.kit.message_versions import REQUESTS
from tests.unit.protocol.damage import damaged
from tests.unit.protocol.values import CASES, random_message, seed

REQUEST_CASES = [(cls, version) for cls, version in CASES if issubclass(cls, Request)]
RESPONSE_CASES = [(cls, version) for cls, version in CASES if not issubclass(cls, Request)]
ENOUGH = 40_000  # inputs after which every kind of error has surely been met
LEAK_MAX = 64 * 1024  # bytes; a leak of one object per input would be megabytes


class Tally:
    """What became of the inputs."""

    def __init__(self) -> None:
        self.inputs = 0
        self.past_header = 0
        self.decoded = 0
        self.kinds: Counter[str] = Counter()
        self.by_api: Counter[str] = Counter()

    def lines(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        apis = ", ".join(f"{name} {count}" for name, count in sorted(self.by_api.items()))
        head = f"{self.inputs} inputs, {self.past_header} past the header, {self.decoded} decoded"
        return f"codec fuzz: {head}\n  errors: {kinds}\n  past the header by API: {apis}"


def read_request(frame: bytes, tally: Tally) -> None:
    """What the dispatcher does with a frame; only DecodeError is foreseen."""
    tally.inputs += 1
    try:
        header = codec.read_request_header(frame)
        cls = REQUESTS.get(header.api_key)
        if cls is None:
            return
        tally.past_header += 1
        tally.by_api[cls.__name__] += 1
        check_sane(codec.decode(cls, header.api_version, header.body))
        tally.decoded += 1
    except DecodeError as error:
        tally.kinds[error.kind] += 1
        assert 0 <= error.position <= len(frame)


def check_sane(message: Struct) -> None:
    """What was decoded can be walked: every slot holds an object."""
    for each in type(message).__fields__:
        value = getattr(message, each.name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Struct):
                check_sane(one)


def good_frame(rng: random.Random) -> tuple[bytes, int]:
    """A request with its header, and the size of the header."""
    cls, version = rng.choice(REQUEST_CASES)
    body = codec.encode(random_message(rng, cls, version), version)
    frame = codec.encode_request(random_message(rng, cls, version), version, rng.getrandbits(31), "fuzz")
    header = codec.read_request_header(frame)
    size = len(frame) - len(header.body)
    return frame[:size] + body, size


def bad_frame(rng: random.Random, frame: bytes, header_size: int) -> bytes:
    """Three in four are damaged behind the header only."""
    if rng.random() < 0.75:
        return frame[:header_size] + damaged(rng, frame[header_size:])
    return damaged(rng, frame)


@pytest.mark.fuzz
def test_damaged_requests(fuzz_inputs: int, record_property: Callable[[str, object], None]) -> None:
    rng = random.Random(seed())
    tally = Tally()
    while tally.inputs < fuzz_inputs // 2:
        frame, header_size = good_frame(rng)
        for _ in range(25):
            read_request(bad_frame(rng, frame, header_size), tally)
    print(tally.lines())
    record_property("summary", tally.lines())
    assert tally.past_header >= 0.3 * tally.inputs
    if tally.inputs >= ENOUGH:
        assert set(tally.by_api) == {cls.__name__ for cls in REQUESTS.values()}
        assert set(tally.kinds) == set(DecodeError.KINDS), set(DecodeError.KINDS) - set(tally.kinds)
    assert 0 < tally.decoded < tally.past_header


@pytest.mark.fuzz
def test_damaged_responses(fuzz_inputs: int) -> None:
    rng = random.Random(seed())
    kinds: Counter[str] = Counter()
    for _ in range(fuzz_inputs // 4 // 25):
        cls, version = rng.choice(RESPONSE_CASES)
        good = codec.response_header(cls, version, 1) + codec.encode(random_message(rng, cls, version), version)
        for _ in range(25):
            kinds[answer_error(cls, version, damaged(rng, good))] += 1
    assert kinds["none"]
    assert set(kinds) >= {"none", "truncated", "array length", "trailing bytes", "null", "varint"}


def answer_error(cls: type[Message], version: int, frame: bytes) -> str:
    try:
        _, body = codec.read_response_header(cls, version, frame)
        check_sane(codec.decode(cls, version, body))
    except DecodeError as error:
        return error.kind
    return "none"


@pytest.mark.fuzz
def test_refusals_leak_nothing() -> None:
    rng = random.Random(seed())
    inputs = [bad_frame(rng, *good_frame(rng)) for _ in range(5000)]
    tally = Tally()

    def refuse() -> None:
        for frame in inputs:
            read_request(frame, tally)

    grown = heap_grown(refuse)
    assert tally.kinds.total() > 1000
    assert grown < LEAK_MAX


def test_array_size_field_reserves_no_memory() -> None:
    """An array that claims 2^31 - 1 elements is refused before memory is taken for it."""
    cls = REQUESTS[3]  # Metadata v1: an array of topic names
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="array length"):
            codec.decode(cls, 1, b"\x7f\xff\xff\xff" + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
