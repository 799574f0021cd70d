"""How much work a call is, independent of the speed of the machine: the calls of functions, of Python and of C."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["calls_in"]


def calls_in(run: Callable[[], object]) -> int:
    """Run a function once and count the calls that it makes, directly or not."""
    count = 0

    def profile(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
