"""Constants that Cython declares beside Python have the values of Python."""

import re
from pathlib import Path

import pytest

import kafkalite
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.records import batch_header
from kafkalite.server.handlers import offset_commit

SPEEDUPS = Path(kafkalite.__file__).parent / "_speedups"


def declared(path: Path) -> dict[str, int]:
    """The integers in the `cdef enum` blocks of a Cython file."""
    return {name: int(value, 0) for name, value in re.findall(r"^    ([A-Z][A-Z_]+) = (\w+)", path.read_text(), re.M)}


def test_cython_error_codes_are_those_of_errors() -> None:
    codes = declared(SPEEDUPS / "wire" / "error_codes.pxd")
    assert codes and codes == {name: int(KafkaErrorCode[name]) for name in codes}


def test_cython_batch_header_is_that_of_records() -> None:
    cython = declared(SPEEDUPS / "wire" / "wire.pxd")
    python = {name: value for name, value in vars(batch_header).items() if name.isupper()}
    assert python and python == {name: cython[name] for name in python}


@pytest.mark.parametrize("path", sorted(SPEEDUPS.rglob("*.p[yx][xd]")), ids=lambda path: path.name)
def test_error_codes_and_header_positions_are_declared_once(path: Path) -> None:
    if path.stem not in ("error_codes", "wire"):
        known = set(KafkaErrorCode.__members__) | {name for name in vars(batch_header) if name.isupper()}
        assert not known & declared(path).keys()


def test_cython_offset_commit_versions_are_those_of_the_message() -> None:
    versions = declared(SPEEDUPS / "groups" / "offset_commit_request.pyx")
    shared = declared(SPEEDUPS / "groups" / "offset_commit_request.pxd")
    assert (versions["VERSION_MIN"], versions["VERSION_MAX"]) == OffsetCommitRequest.versions
    assert shared["TOPIC_ID_SINCE"] == offset_commit.TOPIC_ID_SINCE
    assert shared["FLEXIBLE_SINCE"] == OffsetCommitRequest.flexible
