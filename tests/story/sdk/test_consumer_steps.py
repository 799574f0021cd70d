"""An exception in each step of a consumer's polls: what was sent is delivered, and no commit covers the rest.

`Stepper` finds the steps by running the story, so a new step is tested without a change here. The application handles
what `poll` returns, commits, and continues after an exception; it replaces a consumer that has failed or
returns nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafkalite_sdk.consumer.consumer import Consumer

from kafkalite.errors import KafkaError
from kafkalite.testing.virtual_loop import run_virtually
from tests.kit.steps import Bug, Step, Stepper
from tests.story.sdk.client_rig import Story
from tests.story.sdk.consumer_rig import A, B, append, committed, new_consumer

COUNT = 8
SOURCES = tuple(
    f"sdk/kafkalite_sdk/consumer/{name}.py"
    for name in (
        *("fetch/fetcher", "fetch/partition_buffer", "fetch/response_memory", "offsets/positions"),
        *("iteration", "poison", "poll_loop"),
    )
)
STEPPER = Stepper(SOURCES, frozenset())
EXCEPTIONS_MAX = 5
EMPTY_MAX = 3


class Application:
    """Reads two partitions, commits after each poll, and notes what was delivered when it commits."""

    def __init__(self, world: Story) -> None:
        self.world = world
        self.delivered: dict[Any, set[int]] = {A: set(), B: set()}
        self.exceptions = self.empty = 0

    async def run(self) -> None:
        while sum(map(len, self.delivered.values())) < 2 * COUNT:
            with self.noted():
                settings: Any = {"group": "g", "enable_auto_commit": False, "max_poll_records": 3, "on_poison": "raise"}
                consumer = new_consumer(self.world, value_deserializer=int, **settings)
                try:
                    await consumer.start()
                    consumer.assign([A, B])
                    await self.read(consumer)
                finally:
                    await consumer.close()

    async def read(self, consumer: Consumer[Any, Any]) -> None:
        self.empty = 0
        while sum(map(len, self.delivered.values())) < 2 * COUNT and self.empty <= EMPTY_MAX:
            with self.noted():
                await self.step(consumer)
            consumer._driver.client.check_owner()
        assert self.empty <= EMPTY_MAX, "the consumer returns no records any more"

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Count an exception that the application gets."""
        try:
            yield
        except (Bug, KafkaError):
            self.exceptions += 1
            assert self.exceptions <= EXCEPTIONS_MAX

    async def step(self, consumer: Consumer[Any, Any]) -> None:
        records = await consumer.poll(1.0)
        self.empty = 0 if records else self.empty + 1
        for record in records:
            self.delivered[record.topic, record.partition].add(record.offset)
        await consumer.commit()
        for (_, number), offset in committed(self.world)[-1].items():
            assert self.delivered[(A, B)[number]] >= set(range(offset)), "a commit covers what was not delivered"


async def story_of_the_application() -> Application:
    world = Story(1)
    world.expect_failures()
    application = Application(world)
    async with world.broker:
        world.broker.cluster.create_topic("orders", 2)
        for partition in (A, B):
            for first in range(0, COUNT, 2):
                append(world, partition, b"%d" % first, b"%d" % (first + 1))
        await application.run()
    return application


def steps() -> list[Step]:
    with STEPPER.found() as found:
        run_virtually(story_of_the_application)
    return found


@pytest.mark.filterwarnings("ignore:unclosed Consumer")  # an exception in a step of the close
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("after", [0, 6, 8])
def test_exception_in_any_step_of_a_poll_loses_no_record_and_commits_none_that_was_not_delivered(after: int) -> None:
    """In the first execution of a step, and in later ones, when records were taken; not each step has so many."""
    found = steps()
    assert len(found) > 60
    failed: dict[str, str] = {}
    raised = 0
    for step in found:
        with STEPPER.fails_at(step, after):
            try:
                application, _ = run_virtually(story_of_the_application)
            except Exception as error:  # each step is reported
                failed[str(step)] = repr(error)
                continue
        raised += STEPPER.raised
        assert application.delivered == {A: set(range(COUNT)), B: set(range(COUNT))}
    assert failed == {}
    assert raised == len(found) if after == 0 else raised > 20
