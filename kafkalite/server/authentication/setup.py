"""Puts the authentication of a broker together: the listeners with SASL, their mechanisms, the users."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.cluster.credentials.store import ScramCredentials
from kafkalite.cluster.tokens.store import DelegationTokens
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.sasl import SaslSettings
from kafkalite.net.sasl.oauthbearer import ValidateToken
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.authentication.authentication import Authentication
from kafkalite.server.authentication.login import LOGGER, ListenerLogin, Serve
from kafkalite.server.authentication.mechanisms import mechanisms_of, uses_scram
from kafkalite.server.authentication.principals import principals_of
from kafkalite.server.process.resources import BrokerResources
from kafkalite.server.requests.dispatch import BrokerService

if TYPE_CHECKING:
    from kafkalite.server.authentication.key_refresh import KeyRefresh


def require_logins(
    service: BrokerService,
    config: Callable[[], BrokerConfig],
    resources: BrokerResources,
    serve: Serve,
    users: ScramCredentials | None,
    keys: "Mapping[str, KeyRefresh]",
    tokens: DelegationTokens | None,
) -> None:
    """Let clients of listeners with SASL authenticate.

    Arguments:
        service: of all connections.
        config: returns the present configuration of the broker.
        resources: clock and jobs.
        serve: serves the requests that a connection may send.
        users: of SCRAM; None: no listener offers it.
        keys: verify tokens, by listener.
        tokens: of SCRAM; None: they are disabled.

    Raises ValueError: something user-defined cannot be created: a callback, a mechanism, a principal builder.
    """
    log, first = RateLimitedLog(LOGGER, resources.clock), config()
    principals = principals_of(first)
    listeners = [
        ListenerLogin(
            each.listener,
            mechanisms_of(each, users or ScramCredentials(), config, _validator(each, keys), tokens),
            first.listener_security(each.listener).reauth_ms,
            first.connection_failed_authentication_delay_ms / 1000,
            resources.clock,
            resources.offload,
            log,
            serve,
            service.admits,
            principals.get(each.listener),
        )
        for each in listeners_with_sasl(first)
    ]
    service.authenticate_with(Authentication(listeners, serve, principals, log))


def _validator(sasl: SaslSettings, keys: "Mapping[str, KeyRefresh]") -> ValidateToken | None:
    return keys[sasl.listener].validator if sasl.listener in keys else None


def token_keys_of(config: BrokerConfig, resources: BrokerResources) -> "dict[str, KeyRefresh]":
    """Return what reads the keys of tokens, by listener; it has none yet."""
    found = {}
    for each in listeners_with_sasl(config):
        if each.oauthbearer is not None and "OAUTHBEARER" not in each.callbacks:
            from kafkalite.server.authentication.key_refresh import KeyRefresh  # few brokers offer OAUTHBEARER

            log = RateLimitedLog(LOGGER, resources.clock)
            found[each.listener] = KeyRefresh(each.oauthbearer, resources.clock, resources.offload, log)
    return found


def credentials_of(config: BrokerConfig) -> ScramCredentials | None:
    """Return what holds the credentials of users; None: no listener offers SCRAM."""
    return ScramCredentials() if uses_scram(listeners_with_sasl(config)) else None


def listeners_with_sasl(config: BrokerConfig) -> list[SaslSettings]:
    """Return the settings of each listener with SASL."""
    names = [endpoint.listener for endpoint in config.listeners]
    return [config.sasl_settings(name) for name in names if config.listener_security(name).uses_sasl]
