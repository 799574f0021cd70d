"""Opens clients of the SDK for a command.

1. Of several addresses the first one that answers is used. A broker that refuses connections may be starting: it is
   tried again for STARTING_S seconds.
2. If a cluster answers, but none of its brokers at the address that it advertises, the command ends at once, and the
   error names the addresses that led there. A broker that was reached before, or beside another one that answers, is
   down or restarting: the clients connect to it again by themselves.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar

import click
from kafkalite_sdk import Admin, Environment

from kafkalite.cli.client_options import CLIENT_ID, Cluster, client_error
from kafkalite.cli.failure import fail
from kafkalite.cli.retry import Retry
from kafkalite.cli.retry_report import report_retries
from kafkalite.errors import KafkaConnectionError, KafkaTimeoutError
from kafkalite.net.client.connection import dial
from kafkalite.net.client.failures import reason_of

STARTING_S = 20.0  # maximum wait for a broker that is starting
# No broker that is starting: a host name that does not resolve, and a connection that ends in the TLS handshake.
OTHER_REASONS = (socket.gaierror, ssl.SSLError, ConnectionResetError, ConnectionAbortedError)
logging.getLogger("kafkalite_sdk").addHandler(logging.NullHandler())  # the commands report outages themselves
report_retries()


class Client(Protocol):
    """A client of the SDK."""

    async def start(self) -> None: ...
    async def __aexit__(self, *exc: Any) -> None: ...


C = TypeVar("C", bound=Client)


@asynccontextmanager
async def open_client(
    cluster: Cluster, create: Callable[..., C], *, on_outage: Callable[[str], object] | None = None, **settings: Any
) -> AsyncIterator[C]:
    """Start a client of the cluster, and close it at the end.

    Arguments:
        cluster: addresses and settings.
        create: `Admin`, `Producer`, `Consumer` or `Connection` of the SDK.
        on_outage: called with the reason whenever a broker that was reached before cannot be reached.
        settings: of this client, beside those of the cluster.
    Raises KafkaConnectionError, KafkaTimeoutError, AuthenticationError. Ends the command if a setting is not valid.
    """
    dialer = Dialer(cluster)
    settings = {"client_id": CLIENT_ID, "environment": Environment(dial=dialer), **cluster.settings, **settings}
    try:
        async with AsyncExitStack() as stack:
            client = await when_started(cluster, lambda address: create_client(create, address, settings))
            stack.push_async_exit(client.__aexit__)
            dialer.on_outage = on_outage
            yield client
    except asyncio.CancelledError:
        dialer.raise_failure()
        raise


@asynccontextmanager
async def connect(cluster: Cluster) -> AsyncIterator[Admin]:
    """Open the administration of the cluster; see `open_client`."""
    async with open_client(cluster, Admin) as admin:
        yield admin


async def require_brokers(admin: Admin, *broker_ids: int) -> None:
    """End the command if the cluster has no such broker; a request to it would be repeated until its timeout."""
    known = sorted(each.broker_id for each in (await admin.cluster.describe()).brokers)
    if missing := sorted({*broker_ids} - {*known}):
        wrong = f"broker {', '.join(map(str, missing))}: not in the cluster, or not running"
        fail(f"{wrong}; the cluster has broker{'' if len(known) == 1 else 's'} {', '.join(map(str, known))}")


def create_client(create: Callable[..., C], address: str, settings: dict[str, Any]) -> C:
    """Create a client; ends the command if a setting is not valid. No error of the SDK contains a secret."""
    try:
        return create(address, **settings)
    except (ValueError, TypeError) as error:
        from kafkalite.cli.client_config import with_cli_names  # few commands fail so

        fail(with_cli_names(f"client settings: {error}"))


async def when_started(cluster: Cluster, create: Callable[[str], C]) -> C:
    """Start a client at the first broker that answers; a broker that refuses connections may be starting.

    Raises KafkaTimeoutError, and KafkaConnectionError: after STARTING_S seconds, at once for `OTHER_REASONS`.
    """
    retries, report = Retry(STARTING_S), True
    while True:
        try:
            return await first_that_answers(cluster, create, report=report)
        except KafkaConnectionError as error:
            if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, OTHER_REASONS):
                raise
            await retries.pause(error)
        report = False


async def first_that_answers(cluster: Cluster, create: Callable[[str], C], *, report: bool) -> C:
    """Return a started client, or raise the error of the last broker. `report`: print the errors of the others."""
    *others, last = cluster.servers
    for address in others:
        client = create(address)
        try:
            await client.start()
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            if report:
                click.echo(f"kafkalite: {client_error(error)}", err=True)
        else:
            return client
    client = create(last)
    await client.start()
    return client


class Dialer:
    """Connects to brokers, and ends the command if no broker is reachable at the address that it advertises.

    Arguments:
        cluster: its addresses may be unreachable; the addresses that were reached are added to it.

    Attributes:
        on_outage: called with the reason when a broker cannot be reached; None = ignored.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.on_outage: Callable[[str], object] | None = None
        self._cluster = cluster
        self._failure: KafkaConnectionError | None = None
        self._command = asyncio.current_task()

    async def __call__(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, context: ssl.SSLContext | None
    ) -> None:
        """Connect; see `kafkalite.net.client.connection.dial`."""
        try:
            await dial(protocol, host, port, context)
        except ssl.SSLError:
            raise
        except (OSError, UnicodeError) as error:
            await self._failed((host, port), f"cannot connect to {host}:{port}: {reason_of(error)}; is a broker there?")
            raise
        self._cluster.reached.add((host, port))

    async def _failed(self, address: tuple[str, int], text: str) -> None:
        if await self._is_wrong(address):
            given = ",".join(self._cluster.servers)
            self._failure = KafkaConnectionError(
                f"{text} The cluster behind {given} advertises this address; check advertised.listeners"
            )
            assert self._command is not None
            self._command.cancel()
        elif self.on_outage is not None:
            self.on_outage(text)

    async def _is_wrong(self, address: tuple[str, int]) -> bool:
        """Whether an address that does not answer is a wrong one."""
        reached, given = self._cluster.reached, frozenset(self._cluster.addresses)
        if address in given or reached - given:
            return False
        from kafkalite.cli.advertised import advertised_wrongly

        return await advertised_wrongly(self._cluster)

    def raise_failure(self) -> None:
        """Raise the error of an advertised address, if there is one. Called when the command was cancelled."""
        if self._failure is not None and self._command is not None:
            self._command.uncancel()
            raise self._failure
