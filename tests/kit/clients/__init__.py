"""The foreign clients and the SDK, each behind one small face so that a test names the behaviour and not the library.

Rules: no client of this face joins a group (every reader is assigned its partition; who joins is in `members`); every
wait has a deadline and ends in an error that names what was missing; nothing here knows which broker it talks to.
"""

from tests.kit.clients.aio import AioKafka
from tests.kit.clients.confluent import Confluent
from tests.kit.clients.model import EARLIEST, LATEST, At, Client, Record
from tests.kit.clients.python import KafkaPython
from tests.kit.clients.sdk import Sdk

PYTHON_CLIENTS: tuple[Client, ...] = (Confluent(), AioKafka(), Sdk(), KafkaPython())

__all__ = [
    "EARLIEST",
    "LATEST",
    "PYTHON_CLIENTS",
    "AioKafka",
    "At",
    "Client",
    "Confluent",
    "KafkaPython",
    "Record",
    "Sdk",
]
