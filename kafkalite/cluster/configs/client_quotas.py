"""Client quotas: their entities, keys and values, and filters of entities (KIP-546). Invalid ones raise RefusedError.

An address must be one: Kafka also accepts host names, which it resolves.

Source: ZkAdminManager.scala of Apache Kafka 3.9, ClientQuotaControlManager.java of 4.3.
"""

import ipaddress
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from kafkalite.cluster.changes import RefusedError
from kafkalite.coordination.znodes import quotas
from kafkalite.errors import KafkaErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)
EXACT, DEFAULT, SPECIFIED = range(3)
WHOLE_MAX = 2**63 - 1
CONNECTIONS_MAX = 2**31 - 1
EPSILON = 1e-6
NODE_NAME_LENGTH_MAX = 1000

# The largest whole number of each key; None = any number.
CLIENT_KEYS: dict[str, int | None] = {
    "producer_byte_rate": WHOLE_MAX,
    "consumer_byte_rate": WHOLE_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
IP_KEYS: dict[str, int | None] = {"connection_creation_rate": CONNECTIONS_MAX}
ALL_KEYS = {*CLIENT_KEYS, *IP_KEYS}


class QuotaEntity(NamedTuple):
    """What a quota limits. `names`: pairs of type and name in the order of `TYPES`; None as a name = the default."""

    names: tuple[tuple[str, str | None], ...]

    @property
    def path(self) -> str:
        """The node of its quotas."""
        names = dict(self.names)
        if IP in names:
            return quotas.ip_path(names[IP])
        if USER not in names:
            return quotas.client_path(names[CLIENT_ID])
        if CLIENT_ID in names:
            return quotas.user_client_path(names[USER], names[CLIENT_ID])
        return quotas.user_path(names[USER])

    @property
    def keys(self) -> Mapping[str, int | None]:
        """The keys of its quotas."""
        return IP_KEYS if self.names[0][0] == IP else CLIENT_KEYS


def entity_of(pairs: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these types and names."""
    names: dict[str, str | None] = {}
    for kind, name in pairs:
        if kind not in TYPES:
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise invalid(f"Invalid client quota entity: duplicate entity type {kind}")
        _check_name(kind, name)
        names[kind] = name
    if not names or (IP in names and len(names) > 1):
        raise invalid("Invalid client quota entity: expected a user, a client id, both, or an address")
    return QuotaEntity(tuple((kind, names[kind]) for kind in TYPES if kind in names))


def entity_of_node(kind: str, name: str) -> QuotaEntity | None:
    """Return the entity of a node below `/config`, None for a node of another subject.

    Arguments:
        kind: `users`, `clients` or `ips`.
        name: the rest of the path, such as `alice/clients/app`.
    """
    parts = name.split("/")
    if kind == "users" and len(parts) == 3 and parts[1] == "clients":
        return QuotaEntity(((USER, quotas.name_of(parts[0])), (CLIENT_ID, quotas.name_of(parts[2]))))
    entity_type = {"users": USER, "clients": CLIENT_ID, "ips": IP}.get(kind)
    if entity_type is None or len(parts) != 1:
        return None
    return QuotaEntity(((entity_type, quotas.name_of(name)),))


def can_have_node(name: str) -> bool:
    """Whether a user, a client id or an address can be the name of a node."""
    return name not in ("", ".", "..", quotas.DEFAULT) and len(quotas.node_name(name)) <= NODE_NAME_LENGTH_MAX


def _check_name(kind: str, name: str | None) -> None:
    if name is None:
        return
    if not name:
        raise invalid(f"Empty {kind} not supported")
    if not can_have_node(name):
        raise invalid(f"Invalid {kind}: it cannot be the name of a node")
    if kind == IP:
        try:
            ipaddress.ip_address(name)
        except ValueError as error:
            raise invalid(f"{name} is not a valid IP address.") from error


def changed_texts(entity: QuotaEntity, operations: Iterable[tuple[str, float | None]]) -> dict[str, str | None]:
    """Return the new text of each key; None = the quota is removed.

    Arguments:
        entity: whose quotas change.
        operations: pairs of key and value; None = remove it.
    """
    texts: dict[str, str | None] = {}
    for key, value in operations:
        if key in texts:
            raise invalid(f"Duplicate quota key {key}")
        texts[key] = None if value is None else _text(entity, key, value)
    return texts


def _text(entity: QuotaEntity, key: str, value: float) -> str:
    """The value as Kafka stores it."""
    if key not in entity.keys:
        raise invalid(f"Invalid configuration key {key}, expected one of {', '.join(entity.keys)}")
    if not math.isfinite(value):
        raise invalid(f"Configuration {key} must be a finite number")
    if value <= 0:
        raise invalid(f"Quota {key} must be greater than 0")
    largest = entity.keys[key]
    if largest is None:
        return java_text(value)
    whole = math.floor(value + EPSILON)
    if abs(whole - value) > EPSILON or not 0 < whole <= largest:
        raise invalid(f"Configuration {key} must be a whole number from 1 to {largest}")
    return str(whole)


def java_text(value: float) -> str:
    """The number as Java's Double.toString writes it, such as 12.5 and 1.0E8."""
    number = Decimal(repr(value)).normalize()
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    mantissa, _, exponent = f"{number:E}".partition("E")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{int(exponent)}"


def values_of(texts: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the settings of a node; a value that is no finite number is left out."""
    values = {}
    for key in sorted(texts.keys() & ALL_KEYS):
        try:
            value = float(texts[key])
        except ValueError:
            continue
        if math.isfinite(value):
            values[key] = value
    return values


class Match(NamedTuple):
    """The condition for the name of a type: EXACT (`name`), DEFAULT, or SPECIFIED (any, the default included)."""

    kind: int
    name: str | None

    @property
    def only(self) -> bool:
        """Whether one name matches: `name`."""
        return self.kind != SPECIFIED


class QuotaFilter(NamedTuple):
    """Which entities are described.

    Arguments:
        matches: by type.
        strict: entities with further types do not match.
    """

    matches: Mapping[str, Match]
    strict: bool

    def wants(self, *types: str) -> bool:
        """Whether entities with exactly these types may match."""
        return self.matches.keys() <= set(types) and (not self.strict or self.matches.keys() == set(types))

    def only(self, kind: str) -> tuple[str | None] | None:
        """The only name of a type that matches; None = several may."""
        match = self.matches.get(kind)
        return (match.name,) if match is not None and match.only else None


def filter_of(components: Iterable[tuple[str, int, str | None]], strict: bool) -> QuotaFilter:
    """Return the filter with these components: type, match type, name."""
    matches: dict[str, Match] = {}
    for kind, match_type, name in components:
        if kind in matches:
            raise invalid(f"Duplicate {kind} filter component entity type")
        if kind not in TYPES:
            raise RefusedError(KafkaErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise invalid(f"Unknown match type {match_type}, expected 0, 1 or 2")
        if (name is not None) != (match_type == EXACT):
            raise invalid(f"Match type {match_type} of {kind}: only an exact match (0) has a name, and it needs one")
        if match_type == EXACT:
            _check_name(kind, name)
        matches[kind] = Match(match_type, name)
    if IP in matches and len(matches) > 1:
        raise invalid("Invalid filter: an address cannot be combined with a user or a client id")
    return QuotaFilter(matches, strict)


def invalid(text: str) -> RefusedError:
    """The error of an invalid request."""
    return RefusedError(KafkaErrorCode.INVALID_REQUEST, text)
