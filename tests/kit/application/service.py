"""An aiohttp service: POST /flights produces the body and answers with partition and offset.

`python -m tests.kit.application.service ADDRESS PORT`; SIGTERM ends it after the requests in progress.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import uvloop
from aiohttp import web
from kafkalite_sdk import Producer

from tests.kit.application import READY, SLOW_CALLBACK_S, TOPIC

PRODUCER = web.AppKey("producer", Producer)
KEY = "X-Key"


async def post(request: web.Request) -> web.Response:
    key = request.headers.get(KEY)
    metadata = await request.app[PRODUCER].send(TOPIC, await request.read(), key=key.encode() if key else None)
    return web.Response(text=f"{metadata.partition} {metadata.offset}")


def application(address: str) -> web.Application:
    """The service; its producer is closed with the application."""

    async def producing(app: web.Application) -> AsyncIterator[None]:
        async with Producer(address, linger_ms=1) as producer:
            app[PRODUCER] = producer
            yield

    app = web.Application()
    app.router.add_post("/flights", post)
    app.cleanup_ctx.append(producing)
    return app


async def main(address: str, port: str) -> None:
    ending, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.slow_callback_duration = SLOW_CALLBACK_S
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    runner = web.AppRunner(application(address), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(port)).start()
    print(READY, flush=True)
    await ending.wait()
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
