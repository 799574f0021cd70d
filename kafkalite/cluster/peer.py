"""Calls from this broker to another one: requests with callbacks, over one connection that is made when it is needed.

1. Each call ends once, with `answer(response)` or `fail(reason)`, never inside `call`; after `close` with neither.
2. A broken connection fails its calls and is made again by the next call. Nothing is repeated: callers decide that.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from kafkalite.errors import AuthenticationError, EncodeError, KafkaError
from kafkalite.model import Endpoint
from kafkalite.net.client.connection import ClientConnection
from kafkalite.net.client.core import FRAME_BYTES_MAX
from kafkalite.net.peer_dial import PeerDial
from kafkalite.protocol.schema import Request

Answer = Callable[[Any], object]
Fail = Callable[[str], object]


class EncodingFailure(str):
    """The reason of a call whose request has a value that does not fit in the message: it was not sent."""

    __slots__ = ()


class Peer:
    """Another broker.

    Arguments:
        endpoint: its address for brokers.
        client_id: sent with each request.
        dial: connects and logs in.
        timeout_s: deadline of a connection and of each request, in seconds (`controller.socket.timeout.ms`).
        frame_bytes_max: largest accepted response, in bytes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        dial: PeerDial,
        timeout_s: float,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._dial = dial
        self._timeout_s = timeout_s
        self._frame_bytes_max = frame_bytes_max
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Request, Answer, Fail, int | None]] = []
        self._closed = False

    def call(self, request: Request, answer: Answer, fail: Fail, version_max: int | None = None) -> None:
        """Send a request.

        Arguments:
            request: any request message.
            answer: called with the response.
            fail: called with the reason instead: no connection, a broken one, a timeout, no common version.
            version_max: the highest version to use; None = the highest that both sides have.
        """
        assert not self._closed, "a closed peer is not called"
        if self._connection is not None and self._connection.failure is None:
            self._submit(self._connection, request, answer, fail, version_max)
            return
        self._waiting.append((request, answer, fail, version_max))
        if self._connecting is None:
            self._connection = None
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name=f"peer {self.endpoint}")

    def close(self) -> None:
        """End the connection; the calls that are open end without a callback."""
        self._closed = True
        self._waiting.clear()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()

    async def _connect(self) -> None:
        connection = ClientConnection(
            self.endpoint.host,
            self.endpoint.port,
            client_id=self._client_id,
            timeout_s=self._timeout_s,
            connect_timeout_s=self._timeout_s,
            frame_bytes_max=self._frame_bytes_max,
            sasl=self._dial.login,
            dial=self._dial.dial,
        )
        failure: KafkaError | None = None
        try:
            await connection.connect()
        except KafkaError as error:
            failure = error
            if isinstance(error, AuthenticationError):
                self._dial.rejected(self.endpoint, str(error))
        finally:
            self._connecting = None
        if self._closed:
            connection.abort()
            return
        waiting, self._waiting = self._waiting, []
        if failure is None:
            self._connection = connection
        for request, answer, fail, version_max in waiting:
            if failure is None:
                self._submit(connection, request, answer, fail, version_max)
            else:
                fail(str(failure))

    def _submit(
        self, connection: ClientConnection, request: Request, answer: Answer, fail: Fail, version_max: int | None
    ) -> None:
        def answered(response: Any) -> None:
            if not self._closed:
                answer(response)

        def failed(error: KafkaError) -> None:
            if not self._closed:
                fail(EncodingFailure(error) if isinstance(error, EncodeError) else str(error))

        try:
            connection.submit(request, answered, failed, version_max=version_max)
        except KafkaError as error:  # no common version, or a value that does not fit
            asyncio.get_running_loop().call_soon(failed, error)
