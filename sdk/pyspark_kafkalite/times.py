"""Times of records as text. The path of data has integers only, as a datetime ends with the year 9999."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time_ms: int) -> str:
    """Return a time in UTC in the form of ISO 8601, or as a number of milliseconds beyond the years 1 to 9999.

    Arguments:
        time_ms: milliseconds since 1970.
    """
    try:
        found = EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return found.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")
