"""The schemas of a registry in a worker or the driver, which have no event loop. Each is requested once per process."""

import asyncio
import os
from functools import cache

from kafkalite_sdk.registry import Schema, SchemaRegistry
from kafkalite_sdk.registry.wire import Key


class Schemas:
    """The schemas of one registry.

    Arguments:
        url: of the registry.
        auth: user name and password.
    """

    def __init__(self, url: str, auth: tuple[str, str] | None) -> None:
        self._url = url
        self._auth = auth
        self._schemas: dict[Key, Schema] = {}

    def get(self, key: Key) -> Schema:
        """Return a schema.

        Raises:
            SchemaNotFoundError: the registry does not have it. SchemaError: it cannot be loaded.
        """
        found = self._schemas.get(key)
        if found is None:
            found = self._schemas[key] = asyncio.run(self._fetch(key))
        return found

    async def _fetch(self, key: Key) -> Schema:
        async with SchemaRegistry(self._url, auth=self._auth) as registry:
            return await registry.fetch(key)


@cache
def _of_process(url: str, auth: tuple[str, str] | None, _process: int) -> Schemas:
    return Schemas(url, auth)


def schemas_of(url: str, auth: tuple[str, str] | None) -> Schemas:
    """Return the schemas of a registry that this process has loaded.

    Arguments:
        url: of the registry.
        auth: user name and password.
    """
    return _of_process(url, auth, os.getpid())
