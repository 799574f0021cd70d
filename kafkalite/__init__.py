"""kafkalite: a Kafka-wire-compatible broker for Python.

Importing this package loads nothing. Names are loaded on first use (PEP 562), so that the client half of a connection
(`kafkalite.net`) works where the broker's own dependencies are missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite._version import VERSION as __version__
    from kafkalite.server.broker import Broker

__all__ = ["Broker", "__version__"]

_LAZY = {
    "Broker": ("kafkalite.server.broker", "Broker"),
    "__version__": ("kafkalite._version", "VERSION"),
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value: object = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
