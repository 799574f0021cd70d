"""A caching client of the REST API of a schema registry, on aiohttp.

Invariants:
1. Each schema is requested once; requests for one schema that is being loaded wait for the same response.
2. A response has at most `response_bytes_max` bytes after decompression and arrives within `timeout_s`; a schema has at
   most REFERENCES_MAX references, directly or not, each loaded once: references in a circle end.
3. Only the response of the registry decides that there is no such schema: it is not requested again for
   `retry_after_s`, and logged once in this time. A registry that does not decide is asked again every RETRY_S; records
   wait, and one warning in `retry_after_s` says so. One that rejects the credentials is an error of each call, also
   asked again after RETRY_S: records wait for correct ones.
4. After `close` no task is left.
5. No message contains the user name and password of an address.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

from kafkalite.errors import AuthenticationError, ClientUseError, RetriableError, SchemaError
from kafkalite_sdk.consumer.poison import DeserializerNotReady
from kafkalite_sdk.registry.address import without_userinfo
from kafkalite_sdk.registry.wire import Key

if TYPE_CHECKING:
    import aiohttp

LOGGER = logging.getLogger("kafkalite_sdk.registry.client")

REFERENCES_MAX = 100
OK, NOT_FOUND = 200, 404
UNDECIDED = (408, 429)
"""Statuses, beside those from 500 on, that do not say whether there is such a schema."""

REJECTED = {
    401: "the registry rejects the credentials: check auth, headers and the user of url of SchemaRegistry",
    403: "the registry permits no access: check auth, headers and the user of url of SchemaRegistry, or its rights",
}
"""Statuses that depend on the settings of the client, and the next step."""

RETRY_S = 1.0
"""Pause before a registry that is not available is asked again."""

CHUNK_BYTES = 1 << 16
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class SchemaNotFoundError(SchemaError):
    """The registry has no schema with this id."""


class RegistryUnavailableError(SchemaError, RetriableError):
    """A registry did not respond, or without a decision: the schema may exist, and can be loaded later."""


class RegistryAccessError(SchemaError, AuthenticationError):
    """A registry rejects the credentials, or permits no access. It says nothing about the schema, nor the record."""

    fatal = False


class Schema:
    """A schema of a registry.

    Attributes:
        text: the schema.
        kind: "AVRO", "PROTOBUF" or "JSON".
        references: texts of the schemas that it names, by name, those without references first.
        parsed: kept by the deserializer.
    """

    __slots__ = ("kind", "parsed", "references", "text")

    def __init__(self, text: str, kind: str, references: Mapping[str, str]) -> None:
        self.text = text
        self.kind = kind
        self.references = references
        self.parsed: Any = None


class Registered(NamedTuple):
    """The result of a registration; `guid` is None where the registry has none."""

    id: int
    guid: str | None


class SchemaRegistry:
    """A client of a schema registry; an async context manager.

    Arguments:
        url: of the registry, such as "http://localhost:8081"; with "user:password@" they are used as `auth`.
        auth: user name and password.
        headers: sent with every request, such as a token.
        timeout_s: deadline of a request in seconds.
        response_bytes_max: largest response.
        schemas_max: number of schemas in the cache.
        retry_after_s: how long a schema that could not be loaded is not requested again.
        ssl: of `aiohttp`: an ssl.SSLContext; None = the default one.

    Raises:
        ValueError: url is no address.
    """

    def __init__(
        self,
        url: str,
        *,
        auth: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
        response_bytes_max: int = 1 << 20,
        schemas_max: int = 1000,
        retry_after_s: float = 30.0,
        ssl: Any = None,
    ) -> None:
        address, userinfo = without_userinfo(url)
        self._url = address.rstrip("/")
        self._auth = auth or userinfo
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s
        self._response_bytes_max = response_bytes_max
        self._schemas_max = schemas_max
        self._retry_after_s = retry_after_s
        self._ssl = ssl
        self._closed = False
        self._session: aiohttp.ClientSession | None = None
        self._schemas: dict[Key, Schema] = {}
        self._failed: dict[Key, tuple[float, SchemaError]] = {}
        self._loading: dict[Key, asyncio.Task[None]] = {}
        self._attempts: dict[Key, asyncio.Future[None]] = {}
        self._unavailable_until = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel open requests and close the connections. Schemas of the cache are still returned."""
        self._closed = True
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # their callbacks
        if self._session is not None:
            await self._session.close()
            self._session = None

    def schema(self, key: Key) -> Schema:
        """Return a schema of the cache.

        Raises:
            DeserializerNotReady: it is being loaded, or the registry is not available. RegistryAccessError: the
            registry rejects the credentials. SchemaError: it cannot be loaded. ClientUseError: the registry client was
            closed.
        """
        found = self._schemas.get(key)
        if found is not None:
            return found
        loop = asyncio.get_running_loop()
        error = self._failure(key)
        if error is not None and not isinstance(error, RegistryUnavailableError):
            raise error.with_traceback(None)
        self._check_open()
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = loop.create_task(self._load(key))
            task.add_done_callback(lambda _: self._ended(key))
            self._attempts[key] = loop.create_future()
        raise DeserializerNotReady(task)

    def _failure(self, key: Key) -> SchemaError | None:
        """Why a schema cannot be loaded now; None = it is not known."""
        until, error = self._failed.get(key, (0.0, None))
        return error if asyncio.get_running_loop().time() < until else None

    def _ended(self, key: Key) -> None:
        del self._loading[key]
        attempt = self._attempts.pop(key)
        if not attempt.done():
            attempt.set_result(None)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientUseError("this SchemaRegistry was closed; create another one")

    async def fetch(self, key: Key) -> Schema:
        """Return a schema, and load it if need be.

        Raises:
            SchemaError: it cannot be loaded. RegistryUnavailableError: it cannot be loaded now. RegistryAccessError: as
            `schema`. ClientUseError: the registry client was closed.
        """
        while True:
            try:
                return self.schema(key)
            except DeserializerNotReady:
                failure = self._failure(key)
                if failure is not None:
                    raise failure.with_traceback(None) from None
                await asyncio.wait([self._attempts[key]])

    async def register(self, subject: str, text: str, kind: str) -> Registered:
        """Register a schema of a subject; one that is registered returns its id.

        Arguments:
            subject: such as "orders-value".
            text: the schema.
            kind: "AVRO", "PROTOBUF" or "JSON".

        Raises:
            SchemaError: the registry rejects it. RegistryUnavailableError: it is not available. RegistryAccessError,
            ClientUseError: as `schema`.
        """
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        response = await self._request("POST", f"subjects/{quote(subject, safe='')}/versions", body)
        number = response.get("id")
        if not isinstance(number, int):
            raise SchemaError(f"{self._url}: the registration of {subject} returned no id")
        return Registered(number, response.get("guid"))

    async def _load(self, key: Key) -> None:
        """Load a schema into the cache, or remember the error. Ends after a pause if the registry is not available."""
        try:
            path = f"schemas/ids/{key}" if isinstance(key, int) else f"schemas/guids/{key}"
            self._keep(key, await self._resolved(await self._request("GET", path)))
        except RegistryUnavailableError as error:
            await self._pause(key, error)
        except RegistryAccessError as error:
            self._fail(key, error, asyncio.get_running_loop().time() + RETRY_S)
        except MemoryError as error:
            await self._pause(key, RegistryUnavailableError(f"{self._url}: schema {key}: {error!r}"))
        except SchemaError as error:
            self._remember(key, error)
        except Exception as error:  # it is reported as any other, and not requested again at once
            failure = SchemaError(f"{self._url}: schema {key}: {error!r}")
            failure.__cause__ = error
            self._remember(key, failure)

    async def _pause(self, key: Key, error: RegistryUnavailableError) -> None:
        """Fail open calls of `fetch`, and wait before records have the schema requested again."""
        now = asyncio.get_running_loop().time()
        self._fail(key, error, now + RETRY_S)
        if now >= self._unavailable_until:
            self._unavailable_until = now + self._retry_after_s
            LOGGER.warning("records wait for schema %s, it is requested every %g s: %s", key, RETRY_S, error)
        self._attempts[key].set_result(None)
        await asyncio.sleep(RETRY_S)

    def _remember(self, key: Key, error: SchemaError) -> None:
        self._fail(key, error, asyncio.get_running_loop().time() + self._retry_after_s)
        LOGGER.warning("schema %s cannot be loaded, retried after %g s: %s", key, self._retry_after_s, error)

    def _fail(self, key: Key, error: SchemaError, until: float) -> None:
        if len(self._failed) >= self._schemas_max:
            self._failed.pop(next(iter(self._failed)))
        self._failed[key] = until, error

    def _keep(self, key: Key, schema: Schema) -> None:
        if len(self._schemas) >= self._schemas_max:
            self._schemas.pop(next(iter(self._schemas)))
        self._schemas[key] = schema
        self._failed.pop(key, None)

    async def _resolved(self, response: dict[str, Any]) -> Schema:
        texts: dict[str, str] = {}
        await self._references(response, texts, set())
        return Schema(_text(response), str(response.get("schemaType") or "AVRO"), texts)

    async def _references(self, response: dict[str, Any], texts: dict[str, str], seen: set[str]) -> None:
        """Load the schemas that a response refers to, the innermost first."""
        for each in response.get("references") or ():
            try:
                name, subject, version = str(each["name"]), str(each["subject"]), int(each["version"])
            except (KeyError, TypeError, ValueError) as error:
                raise SchemaError(f"{self._url}: a reference of a schema is malformed: {each!r}") from error
            path = f"subjects/{quote(subject, safe='')}/versions/{version}"
            if path in seen:
                continue
            seen.add(path)
            if len(seen) > REFERENCES_MAX:
                raise SchemaError(f"{self._url}: a schema has more than {REFERENCES_MAX} references")
            inner = await self._request("GET", path)
            await self._references(inner, texts, seen)
            texts[name] = _text(inner)

    async def _request(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request. Raises SchemaError and its subclasses, which name the URL and the reason."""
        import aiohttp

        self._check_open()
        url = f"{self._url}/{path}"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Accept": CONTENT_TYPE, **self._headers},
                auth=None if self._auth is None else aiohttp.BasicAuth(*self._auth),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            )
        tls = {} if self._ssl is None else {"ssl": self._ssl}
        try:
            async with self._session.request(method, url, json=body, allow_redirects=False, **tls) as response:
                text = await self._body(response)
                status = response.status
        except TimeoutError as error:
            raise RegistryUnavailableError(f"{url}: no response within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RegistryUnavailableError(f"{url}: {error}") from error
        return _checked(url, status, text)

    async def _body(self, response: "aiohttp.ClientResponse") -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            body += chunk
            if len(body) > self._response_bytes_max:
                raise SchemaError(f"{response.url}: the response has more than {self._response_bytes_max} bytes")
        return bytes(body)


def _checked(url: str, status: int, text: bytes) -> dict[str, Any]:
    """The JSON object of a response. Raises SchemaError, or one of its subclasses if it decides nothing."""
    if status in REJECTED:  # also by a proxy, whose response may be any
        raise RegistryAccessError(f"{url}: status {status}: {REJECTED[status]}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RegistryUnavailableError(f"{url}: status {status}, the response is no JSON") from error
    if isinstance(found, dict) and status == OK:
        return found
    reason = f"{url}: status {status}: {str(found.get('message') if isinstance(found, dict) else found)[:200]}"
    # A proxy, or another service at this address, has statuses without a code of the registry.
    if status in UNDECIDED or status >= 500 or not isinstance(found, dict) or "error_code" not in found:
        raise RegistryUnavailableError(reason)
    raise (SchemaNotFoundError if status == NOT_FOUND else SchemaError)(reason)


def _text(response: dict[str, Any]) -> str:
    text = response.get("schema")
    if not isinstance(text, str):
        raise SchemaError("the response of the registry has no schema")
    return text
