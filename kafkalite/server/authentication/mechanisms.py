"""Creates the SASL mechanisms of a listener from its settings and the users of the cluster."""

import hmac
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.config.sasl import SaslSettings
from kafkalite.net.sasl.plain import PlainServer
from kafkalite.net.sasl.scram import HASHES, ScramServer
from kafkalite.net.sasl.steps import ServerMechanism

if TYPE_CHECKING:
    from kafkalite.cluster.credentials.store import ScramCredentials


def mechanisms_of(sasl: SaslSettings, users: "ScramCredentials") -> list[ServerMechanism]:
    """Return the mechanisms that a listener offers.

    Arguments:
        sasl: the settings of the listener.
        users: the SCRAM credentials of the cluster.
    """
    return [_mechanism(name, sasl, users) for name in sasl.mechanisms]


def _mechanism(name: str, sasl: SaslSettings, users: "ScramCredentials") -> ServerMechanism:
    if name in HASHES:
        return ScramServer(name, partial(users.find, name))
    return PlainServer(password_check(sasl.plain_users()))


def password_check(users: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Return a function that verifies user and password; it compares as long for a user that does not exist."""
    passwords = {name: password.encode() for name, password in users.items()}

    def verify(user: str, password: str) -> bool:
        known = passwords.get(user)
        equal = hmac.compare_digest(known or b"", password.encode())
        return equal and known is not None

    return verify


def uses_scram(listeners: Iterable[SaslSettings]) -> bool:
    """Whether a listener offers SCRAM, so that the broker needs the credentials of the cluster."""
    return any(not HASHES.keys().isdisjoint(each.mechanisms) for each in listeners)
