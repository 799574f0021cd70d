"""The space of an asynchronous producer: a record that takes none leaves it to the next one."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from kafkalite_sdk.zk.producer.queue import OpenRecords

DEADLINE_S = 10.0


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, DEADLINE_S))


def full() -> OpenRecords:
    return OpenRecords(1, None, 1, 0.0, lambda: None)


def test_space_is_counted_for_the_record_that_waited_for_it() -> None:
    async def story() -> None:
        queue = full()
        await queue.space()
        first, second = (asyncio.create_task(queue.space()) for _ in range(2))
        await asyncio.sleep(0)
        queue.ended()
        await first
        await asyncio.sleep(0)
        assert queue.count == 1 and not second.done(), "two records would be above the limit"
        queue.ended()
        await second

    run(story())


def test_space_of_a_cancelled_record_is_that_of_the_next_one() -> None:
    async def story() -> None:
        queue = full()
        await queue.space()
        first, second = (asyncio.create_task(queue.space()) for _ in range(2))
        await asyncio.sleep(0)
        queue.ended()
        first.cancel()
        await second
        assert queue.count == 1

    run(story())
