"""Creates the SASL mechanisms of a listener from its settings, the users of the cluster and the keys of tokens."""

import hmac
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.config.jaas import MODULES
from kafkalite.config.sasl import CALLBACK_GROUP, SaslSettings, installed_callbacks
from kafkalite.net.sasl.oauthbearer import OAuthBearerServer, ValidateToken
from kafkalite.net.sasl.plain import PlainServer
from kafkalite.net.sasl.scram import HASHES, ScramServer
from kafkalite.net.sasl.steps import ServerMechanism

if TYPE_CHECKING:
    from kafkalite.cluster.credentials.store import ScramCredentials
    from kafkalite.cluster.tokens.store import DelegationTokens
    from kafkalite.config.broker import BrokerConfig


def mechanisms_of(
    sasl: SaslSettings,
    users: "ScramCredentials",
    config: Callable[[], "BrokerConfig"],
    validate: ValidateToken | None,
    tokens: "DelegationTokens | None",
) -> list[ServerMechanism]:
    """Return the mechanisms that a listener offers.

    Arguments:
        sasl: the settings of the listener.
        users: the SCRAM credentials of the cluster.
        config: returns the present configuration, which has the users of PLAIN.
        validate: verifies tokens of OAUTHBEARER; None: it is not offered, or has a callback.
        tokens: the delegation tokens of the cluster; None: they are disabled.

    Raises ValueError: a callback or a user-defined mechanism cannot be created.
    """
    return [_mechanism(name, sasl, users, config, validate, tokens) for name in sasl.mechanisms]


def _mechanism(
    name: str,
    sasl: SaslSettings,
    users: "ScramCredentials",
    config: Callable[[], "BrokerConfig"],
    validate: ValidateToken | None,
    tokens: "DelegationTokens | None",
) -> ServerMechanism:
    if name not in MODULES:
        from kafkalite.server.authentication.user_mechanisms import user_mechanism  # few brokers have one

        return user_mechanism(name, config().static)
    if name in HASHES:
        find_token = (lambda _id: None) if tokens is None else tokens.login
        usual = partial(users.usual_iterations, name)
        find = partial(users.find, name)
        return ScramServer(name, find, find_token=find_token, iterations=usual, secret=lambda: users.salt_secret)
    verify = _user_defined(sasl.callbacks[name], config().static) if name in sasl.callbacks else None
    if name == "PLAIN":
        return PlainServer(verify or PlainUsers(sasl.listener, config).verify)
    found = verify or validate
    assert found is not None, "OAUTHBEARER has neither keys nor a callback"
    return OAuthBearerServer(found)


def _user_defined(name: str, texts: Mapping[str, str]) -> Callable[..., Any]:
    """Create the callback of an entry point. Raises ValueError."""
    try:
        created: object = installed_callbacks()[name].load()(dict(texts))
    except Exception as error:  # whatever the package raises
        raise ValueError(f"{CALLBACK_GROUP}: {name} cannot be created: {error!r}") from error
    if not callable(created):
        raise ValueError(f"{CALLBACK_GROUP}: {name}: {created!r} cannot be called")
    return created


class PlainUsers:
    """The users of PLAIN on a listener; a changed configuration is in force with the next login.

    Arguments:
        listener: its name in capitals.
        config: returns the present configuration.
    """

    def __init__(self, listener: str, config: Callable[[], "BrokerConfig"]) -> None:
        self._listener = listener
        self._config = config
        self._checked = config()
        self._check = self._check_of(self._checked)

    def verify(self, user: str, password: str) -> bool:
        """Whether a user has this password."""
        config = self._config()
        if config is not self._checked and any(each.listener == self._listener for each in config.listeners):
            self._checked, self._check = config, self._check_of(config)
        return self._check(user, password)

    def _check_of(self, config: "BrokerConfig") -> Callable[[str, str], bool]:
        return password_check(config.sasl_settings(self._listener).plain_users())


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
