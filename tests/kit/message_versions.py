"""Lists all requests and responses with their versions, as the message classes declare them.

The ranges of Kafka's keys are those of Apache Kafka 4.3, without its unstable versions; keys from `EXTENSIONS_FROM` on
are kafkalite's own, as are tagged fields. The advertised versions are in the dispatch table of the server.
"""

import importlib
import pkgutil

from kafkalite.protocol import extensions, messages
from kafkalite.protocol.schema import Request, Response

EXTENSIONS_FROM = 10000


def _load() -> None:
    for package in (messages, extensions):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


_load()

REQUESTS: dict[int, type[Request]] = {cls.api_key: cls for cls in Request.__subclasses__()}
RESPONSES: dict[int, type[Response]] = {cls.api_key: cls for cls in Response.__subclasses__()}
