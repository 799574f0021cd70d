"""What replaces a lost position."""

import pytest
from kafkalite_sdk.consumer.offsets.offset_reset import EARLIEST, LATEST, Loss, ResetPolicy, position_found, replacement


@pytest.mark.parametrize(
    ("policy", "loss", "known_offset", "found"),
    [
        (EARLIEST, Loss.MISSING, -1, EARLIEST),
        (EARLIEST, Loss.MISSING, 0, 0),
        (None, Loss.MISSING, 5, 5),
        (None, Loss.MISSING, -1, None),
        (EARLIEST, Loss.TRUNCATED, 5, 5),
        (EARLIEST, Loss.TRUNCATED, -1, EARLIEST),
        (None, Loss.TRUNCATED, 5, None),
        (EARLIEST, Loss.OUT_OF_RANGE, -1, EARLIEST),
        (None, Loss.OUT_OF_RANGE, -1, None),
        (EARLIEST, Loss.RECREATED, -1, EARLIEST),
        (None, Loss.RECREATED, -1, None),
    ],
)
def test_what_replaces_a_lost_position(
    policy: ResetPolicy | None, loss: Loss, known_offset: int, found: int | ResetPolicy | None
) -> None:
    assert replacement(policy, loss, known_offset) == found


@pytest.mark.parametrize(("offset", "position"), [(0, 0), (7, 7), (-1, LATEST)])
def test_reset_to_a_time_after_the_last_record_ends_at_the_log_end(offset: int, position: int | ResetPolicy) -> None:
    assert position_found(offset) == position
