"""Small immutable types and constants that several packages share."""

import base64
import binascii
import re
from typing import NamedTuple

ZERO_UUID = bytes(16)
RESERVED_UUIDS = frozenset((ZERO_UUID, bytes(15) + b"\x01"))  # of no topic of a client (Uuid.java, RESERVED)
PARTITIONS_MAX = 100_000  # of one topic; a request for more is a mistake or an attack
PARTITIONS_PER_REQUEST_MAX = 10_000  # as in Kafka (KAFKA-17870): each needs memory, znodes and time of the loop
UUID_TEXT_LENGTH = 22
TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")  # a legal one (Topic.java)
ACKS_ALL = -1  # `acks` of Produce: once all in-sync replicas have the records
READ_UNCOMMITTED = 0  # isolation levels of Fetch and ListOffsets
READ_COMMITTED = 1  # without open and aborted transactions


def shown_address(text: str) -> str:
    """Return an address, or several, for a message: without user name and password.

    Arguments:
        text: as a user has passed it, such as `host:9092` or `https://user:password@host`; it may be no address.
    """
    return re.sub(r"^(\s*[A-Za-z][A-Za-z0-9+.-]*://)?.*@", r"\1", text, flags=re.DOTALL)


class TopicPartition(NamedTuple):
    """A partition by the name of its topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Principal(NamedTuple):
    """Who sends a request (KafkaPrincipal.java).

    Arguments:
        type: `User`, unless a principal builder of the user returns another one.
        name: of the user, or the distinguished name of a certificate.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER = "User"  # the type of the principals that log in
ANONYMOUS = Principal(USER, "ANONYMOUS")  # on a connection without authentication


class Endpoint(NamedTuple):
    """The address of a listener, bound or advertised.

    Arguments:
        listener: its name in capitals, such as `PLAINTEXT` or `INTERNAL`.
        host: a name or address without brackets; empty = all addresses.
        port: 0 = a free one.
        security_protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
    """

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class Node(NamedTuple):
    """The address of a broker for clients. `rack` None = no rack."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


def uuid_text(uuid: bytes) -> str:
    """A 16-byte UUID as Kafka prints it: 22 characters of base64url without padding (Uuid.java, toString)."""
    if len(uuid) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(uuid)}")
    return base64.urlsafe_b64encode(uuid).decode()[:UUID_TEXT_LENGTH]


def uuid_from_text(text: str) -> bytes:
    """Parse the output of `uuid_text`. Raises ValueError for other text."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a UUID in base64url") from error
    if len(text) != UUID_TEXT_LENGTH or uuid_text(uuid) != text:
        raise ValueError(f"{text!r} is not a UUID of {UUID_TEXT_LENGTH} characters in base64url")
    return uuid
