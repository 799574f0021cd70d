"""Which messages there are, and in which versions: derived from the classes, which are the one truth.

The ranges of Kafka's keys are those of Apache Kafka 4.3, without versions that it calls unstable; keys from
`EXTENSIONS_FROM` on are kafkalite's own. What a broker advertises is another matter and stands in its dispatch table.
"""

import importlib
import pkgutil

from kafkalite.protocol import extensions, messages
from kafkalite.protocol.schema import Request, Response

__all__ = ["EXTENSIONS_FROM", "REQUESTS", "RESPONSES", "version_range"]

EXTENSIONS_FROM = 10000


def _load() -> None:
    for package in (messages, extensions):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


_load()

REQUESTS: dict[int, type[Request]] = {cls.api_key: cls for cls in Request.__subclasses__()}
RESPONSES: dict[int, type[Response]] = {cls.api_key: cls for cls in Response.__subclasses__()}


def version_range(key: int) -> tuple[int, int] | None:
    """First and last version of an API key that can be decoded and encoded; None if it has no message here."""
    request = REQUESTS.get(key)
    return None if request is None else request.versions
