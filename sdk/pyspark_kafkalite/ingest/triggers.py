"""Triggers of an ingest: micro-batches only."""

from collections.abc import Mapping
from typing import Any

ALTERNATIVE = "use {'processingTime': '0 seconds'}: a micro-batch begins when the last one has ended"
NOT_SUPPORTED = {
    "continuous": "continuous processing has no micro-batches to commit",
    "realTime": "Spark's real-time mode has no Python sources",
}


def check_trigger(trigger: Mapping[str, Any]) -> None:
    """Raise ValueError for a trigger without micro-batches; the error names the alternative.

    Arguments:
        trigger: arguments of `DataStreamWriter.trigger`.
    """
    for name in trigger:
        if name in NOT_SUPPORTED:
            raise ValueError(f"trigger {name} is not supported: {NOT_SUPPORTED[name]}; {ALTERNATIVE}")
