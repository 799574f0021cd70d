"""Connects a command to the first broker that answers, and waits for a broker that is starting."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import click

from kafkalite.cli.client_options import CLIENT_ID, parse_address
from kafkalite.cli.retry import Retry
from kafkalite.errors import KafkaConnectionError, KafkaTimeoutError
from kafkalite.net.client import ClientConnection

STARTING_S = 20.0  # maximum wait for a broker that is starting


@asynccontextmanager
async def connect(bootstrap: str) -> AsyncIterator[ClientConnection]:
    """Connect to the first of these brokers that answers. Raises KafkaConnectionError, KafkaTimeoutError."""
    peer = await connect_when_started([parse_address(address) for address in bootstrap.split(",")])
    try:
        yield peer
    finally:
        await peer.close()


async def connect_when_started(addresses: Sequence[tuple[str, int]]) -> ClientConnection:
    """Connect to the first broker that answers; one that refuses connections may be starting, and is tried again.

    Arguments:
        addresses: hosts and ports.
    Raises KafkaTimeoutError, and KafkaConnectionError: at once for a host name that does not resolve, else after
    STARTING_S seconds.
    """
    retries, report = Retry(STARTING_S), True
    while True:
        try:
            return await first_that_answers(addresses, report=report)
        except KafkaConnectionError as error:
            if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, socket.gaierror):
                raise
            await retries.pause(error)
        report = False


async def first_that_answers(addresses: Sequence[tuple[str, int]], *, report: bool = True) -> ClientConnection:
    """Return an open connection, or raise the error of the last broker. `report`: print the errors of the others."""
    *others, last = addresses
    for host, port in others:
        peer = ClientConnection(host, port, client_id=CLIENT_ID)
        try:
            await peer.connect()
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            if report:
                click.echo(f"kafkalite: {error}", err=True)
        else:
            return peer
    peer = ClientConnection(*last, client_id=CLIENT_ID)
    await peer.connect()
    return peer
