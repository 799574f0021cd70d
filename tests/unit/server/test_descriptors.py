"""Tests how the limit of file descriptors is divided between logs and connections."""

import resource

import pytest

from kafkalite.server.process.descriptors import RESERVED_MAX, Descriptors, descriptors_of


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (40, Descriptors(40, 32, 20)),
        (100, Descriptors(100, 32, 68)),
        (1024, Descriptors(1024, 256, 768)),
        (1 << 20, Descriptors(1 << 20, RESERVED_MAX, (1 << 20) - RESERVED_MAX)),
        (resource.RLIM_INFINITY, Descriptors(None, RESERVED_MAX, None)),
    ],
)
def test_logs_keep_a_share_of_the_descriptor_limit(limit: int, expected: Descriptors) -> None:
    assert descriptors_of(limit) == expected
