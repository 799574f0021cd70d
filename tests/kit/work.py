"""How much work a call is, independent of the speed of the machine: the calls of functions, of Python and of C."""

import gc
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

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # a collection would count the finalizers and callbacks that it calls
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count
