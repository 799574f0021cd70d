"""The clients of the SDK for programs without an event loop: scripts, notebooks and Spark workers.

Each client has one thread, which runs its event loop. Names are imported on first use, as in `kafkalite_sdk`.
"""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite_sdk._speedups.shared_sends import RecordFuture as RecordFuture
    from kafkalite_sdk.blocking.admin import Admin as Admin
    from kafkalite_sdk.blocking.column_reader import ColumnReader as ColumnReader
    from kafkalite_sdk.blocking.connection import Connection as Connection
    from kafkalite_sdk.blocking.consumer import Consumer as Consumer
    from kafkalite_sdk.blocking.producer import ColumnsFuture as ColumnsFuture
    from kafkalite_sdk.blocking.producer import Producer as Producer

_MODULES = {
    "Admin": "kafkalite_sdk.blocking.admin",
    "ColumnReader": "kafkalite_sdk.blocking.column_reader",
    "ColumnsFuture": "kafkalite_sdk.blocking.producer",
    "Connection": "kafkalite_sdk.blocking.connection",
    "Consumer": "kafkalite_sdk.blocking.consumer",
    "Producer": "kafkalite_sdk.blocking.producer",
    "RecordFuture": "kafkalite_sdk._speedups.shared_sends",
}

__all__ = [*_MODULES]


__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
