"""A small schema registry: registers schemas and returns them, also badly on request."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Registry:
    """The schemas of a registry.

    Attributes:
        url: of the server.
        requests: path of each request.
        authorizations: values of their header.
        fault: "slow" = responses never end, "large" = they have 16 MiB, "short" = they end before their content length,
            "broken" = they are no JSON, "down" = status 500, "forbidden" = status 403, "unauthorized" = status 401 of a
            proxy, "proxy" = status 404 of another service; None = the registry works.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.fault: str | None = None
        self.released = asyncio.Event()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def add(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """Register a schema; return its entry."""
        known = json.dumps(body, sort_keys=True)
        number = next((n for n, each in enumerate(self._schemas, 1) if each["known"] == known), 0)
        if not number:
            number = len(self._schemas) + 1
            guid = str(uuid.uuid5(uuid.NAMESPACE_OID, known))
            self._schemas.append({"known": known, "id": number, "guid": guid, **body})
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return self._entry(number, subject)

    def _entry(self, number: int, subject: str = "") -> dict[str, Any]:
        entry = {name: value for name, value in self._schemas[number - 1].items() if name != "known"}
        if subject:
            entry |= {"subject": subject, "version": self._subjects[subject].index(number) + 1}
        return entry

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to any request."""
        self.requests.append(request.path)
        self.authorizations.add(request.headers.get("Authorization"))
        match self.fault:
            case "slow":
                await self.released.wait()
            case "large":
                return web.Response(body=b"[" + b" " * (16 << 20), content_type="application/json")
            case "short":
                response = web.StreamResponse(headers={"Content-Length": "100000"})
                await response.prepare(request)
                await response.write(b'{"schema": ')
                assert request.transport is not None
                request.transport.close()
                return response
            case "broken":
                return web.Response(text="[" * 200_000)
            case "down":
                return web.json_response({"message": "no leader"}, status=500)
            case "forbidden":
                return web.json_response({"error_code": 40301, "message": "forbidden"}, status=403)
            case "unauthorized":
                return web.Response(text="<html>log in", status=401)
            case "proxy":
                return web.json_response({"detail": "Not Found"}, status=404)
        match request.path.strip("/").split("/"):
            case ["schemas", "ids", number] if 0 < int(number) <= len(self._schemas):
                return web.json_response(self._entry(int(number)))
            case ["schemas", "guids", guid]:
                for each in self._schemas:
                    if each["guid"] == guid:
                        return web.json_response(self._entry(each["id"]))
            case ["subjects", subject, "versions"] if request.method == "POST":
                return web.json_response(self.add(subject, await request.json()))
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                numbers = self._subjects[subject]
                return web.json_response(self._entry(numbers[-1 if version == "latest" else int(version) - 1], subject))
            case ["subjects", subject] if subject in self._subjects:
                return web.json_response(self.add(subject, await request.json()))
        return web.json_response({"error_code": 40403, "message": "not found"}, status=404)


@asynccontextmanager
async def schema_registry() -> AsyncIterator[Registry]:
    """A registry on a free port."""
    registry = Registry()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", registry.handle)
    runner = web.AppRunner(application, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    registry.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield registry
    finally:
        registry.released.set()
        await runner.cleanup()
