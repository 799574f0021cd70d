"""The cluster client in a simulation: requests of each sort while connections, network and broker fail."""

import asyncio
from pathlib import Path

import pytest
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.settings import ClientSettings, parse_bootstrap

from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.world import BOOTSTRAP, SECONDS, World, run, seeds

RUNS = 40
SLACK_S = 1e-6  # a deadline is a time of the loop; the call that it ends is in the same iteration


class Calls:
    """The requests of a client with their outcomes and times."""

    def __init__(self, world: World, client: ClusterClient) -> None:
        self.world = world
        self.client = client
        self.open = 0
        self.answered = 0
        self.failed = 0
        self.after: list[tuple[float, float]] = []  # (duration, deadline) in seconds of those that ended

    def begin(self) -> None:
        random, loop = self.world.random, self.world.loop
        timeout_s = random.choice((0.2, 1.0, 5.0))
        ended, began = [], loop.time()
        self.open += 1

        def end(outcome: object) -> None:
            assert not ended, f"a second outcome: {outcome} after {ended[0]}"
            ended.append(outcome)
            self.open -= 1
            self.answered += not isinstance(outcome, KafkaError)
            self.failed += isinstance(outcome, KafkaError)
            self.after.append((loop.time() - began, timeout_s))

        form = random.randrange(4)
        if form == 0:
            self.client.submit_any(MetadataRequest(topics=[]), end, end, timeout_s=timeout_s)
        elif form == 1:
            node = random.choice([*self.client.view.brokers, 99])
            self.client.submit(node, ListGroupsRequest(), end, end, timeout_s=timeout_s)
        elif form == 2:
            request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
            for node in self.client.view.brokers:
                self.client.submit(node, request, end, end, timeout_s=timeout_s, channel="group")
                return
            end(None)
        else:
            future = self.client.call_any(MetadataRequest(topics=[]), timeout_s=timeout_s)
            future.add_done_callback(lambda done: end(None if done.cancelled() else done.exception() or done.result()))
            if random.random() < 0.2:
                loop.call_later(random.uniform(0, timeout_s), future.cancel)


async def scenario(world: World) -> Calls:
    settings = ClientSettings(parse_bootstrap(BOOTSTRAP), request_timeout_s=3.0, connect_timeout_s=2.0)
    client = ClusterClient(settings, world.environment())
    calls = Calls(world, client)
    await client.start()
    client.use_topics(["orders"], create=True)
    faults = asyncio.ensure_future(world.inject_faults(world.loop.time() + SECONDS))
    while not faults.done():
        for _ in range(world.random.choice((1, 1, 10))):
            calls.begin()
        await pass_time(world.random.expovariate(2.0))
    await faults
    await pass_time(10.0)
    assert calls.open == 0, "a request has no outcome"
    assert client.view.topics.keys() == {"orders"}, "the client does not recover"
    calls.begin()
    began = world.loop.time()
    await client.close(timeout_s=0.5)
    assert world.loop.time() - began <= 0.5 + SLACK_S
    await pass_time(5.0)  # the callbacks of futures, and the timer of a cancellation
    assert calls.open == 0
    return calls


@pytest.mark.torture
def test_each_request_has_one_outcome_in_time_and_close_leaves_nothing(tmp_path: Path, simulations: int) -> None:
    answered = failed = 0
    for seed in seeds(simulations, RUNS):
        calls = run(tmp_path, seed, scenario)
        late = [each for each in calls.after if each[0] > each[1] + SLACK_S]
        assert not late, f"(seconds, deadline): {late}"
        answered += calls.answered
        failed += calls.failed
    assert answered > failed
