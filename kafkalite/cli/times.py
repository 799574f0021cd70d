"""Formats the times of records."""

from datetime import UTC, datetime


def time_text(timestamp_ms: int) -> str:
    """Format milliseconds since 1970; a dash for none, the number if it is outside the calendar."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
