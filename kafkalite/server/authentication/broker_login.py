"""The login of this broker at the other brokers, and the reports of logins that they reject."""

import logging
from collections.abc import Callable

from kafkalite.config.sasl import BrokerCredentials, jaas_key
from kafkalite.model import Endpoint
from kafkalite.net.sasl.plain import PlainClient
from kafkalite.net.sasl.scram import ScramClient
from kafkalite.net.sasl.steps import ClientMechanism, ClientSteps
from kafkalite.rate_limited_log import RateLimitedLog


class BrokerLogin:
    """The SASL mechanism between brokers with the present credentials: the next login uses changed ones, also that of
    a session that is renewed.

    Arguments:
        credentials: returns those of the configuration.
    """

    def __init__(self, credentials: Callable[[], BrokerCredentials]) -> None:
        self._credentials = credentials
        self._used = credentials()
        self._client = client_of(self._used)

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self._client.name

    async def begin(self, host: str) -> ClientSteps:
        """Return the steps of one login; see `ClientMechanism`."""
        present = self._credentials()
        if present != self._used:
            self._used, self._client = present, client_of(present)
        return await self._client.begin(host)


def client_of(credentials: BrokerCredentials) -> ClientMechanism:
    """Return the client of a mechanism, which keeps the hashes of its password."""
    if credentials.mechanism == PlainClient.name:
        return PlainClient(credentials.username, credentials.password)
    return ScramClient(credentials.mechanism, credentials.username, credentials.password)


class RejectedLogins:
    """Logs why other brokers reject this one, once a minute for each reason.

    Arguments:
        log: rate limited.
        listener: between brokers.
        mechanism: between brokers; None: the listener has no SASL.
    """

    def __init__(self, log: RateLimitedLog, listener: str, mechanism: str | None) -> None:
        self._log = log
        self._hint = "ssl.*" if mechanism is None else jaas_key(listener, mechanism)

    def __call__(self, endpoint: Endpoint, reason: str) -> None:
        text = "no connection to the broker at %s:%d: %s (%s)"
        self._log(logging.ERROR, f"peer {reason}", text, endpoint.host, endpoint.port, reason, self._hint)
