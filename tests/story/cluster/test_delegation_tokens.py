"""Delegation tokens in a cluster of three brokers: each knows the tokens of the others, the controller removes them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalite.coordination.tree import Create
from kafkalite.model import Principal
from kafkalite.state.delegation_tokens import Change, Token, create, expire, renew
from kafkalite.testing.simulated_cluster import SimulatedCluster
from tests.story.cluster.test_three_brokers import Client, run, until

ALICE = Principal("User", "alice")
SETTINGS = {
    "delegation.token.secret.key": "the key of all brokers",
    "delegation.token.max.lifetime.ms": "60000",
    "delegation.token.expiry.time.ms": "8000",
    "delegation.token.expiry.check.interval.ms": "1000",
}
EFFECTIVE_S = 1.0  # after the response, on each broker
REMOVED_S = 15.0


def tokens_of(cluster: SimulatedCluster, broker_id: int) -> Any:
    running = cluster.brokers[broker_id].running
    assert running is not None and running.tokens is not None
    return running.tokens


def known(cluster: SimulatedCluster) -> dict[int, set[Token]]:
    return {at: set(tokens_of(cluster, at).all()) for at, each in cluster.brokers.items() if each.running is not None}


async def effective(cluster: SimulatedCluster, *tokens: Token, within_s: float = EFFECTIVE_S) -> None:
    """Wait until each broker knows exactly these tokens."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s

    async def look() -> Any:
        assert loop.time() <= end, known(cluster)
        return True if all(each == set(tokens) for each in known(cluster).values()) else None

    await until(look)


async def new(cluster: SimulatedCluster, broker_id: int, token_id: str) -> Token:
    running, tokens = cluster.brokers[broker_id].running, tokens_of(cluster, broker_id)
    token = create(token_id, ALICE, ALICE, (), -1, tokens.times, running.clock.wall_ms())
    return await change(lambda then: tokens.create(token, then)) or token


async def change(call: Any) -> Token | None:
    ended: asyncio.Future[Change] = asyncio.get_running_loop().create_future()
    call(ended.set_result)
    found = await ended
    assert not found.error
    return found.token


def test_each_broker_applies_changes_of_the_others_until_the_controller_removes_the_token(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        first, second = await new(cluster, 1, "first"), await new(cluster, 2, "second")
        await effective(cluster, first, second)
        assert tokens_of(cluster, 3).login("first") == tokens_of(cluster, 1).login("first")
        now_ms = cluster.brokers[3].running.clock.wall_ms()
        tokens, hmac = tokens_of(cluster, 3), tokens_of(cluster, 3).hmac_of(first)
        decide: Any = lambda token: renew(token, ALICE, 40_000, 0, now_ms)  # noqa: E731
        renewed = await change(lambda then: tokens.change(hmac, decide, then))
        assert renewed is not None
        await effective(cluster, renewed, second)
        await effective(cluster, renewed, within_s=REMOVED_S)  # the second one has expired
        decide = lambda token: expire(token, ALICE, -1, now_ms)  # noqa: E731
        assert await change(lambda then: tokens.change(hmac, decide, then)) is None
        await effective(cluster)

    run(tmp_path, scenario, settings=SETTINGS)


def test_tokens_of_another_program_and_invalid_notifications_are_followed(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        token = await new(cluster, 1, "first")
        await effective(cluster, token)
        running = cluster.brokers[2].running
        garbage = Create("/delegation_token/token_changes/token_change_", b"a/b", sequence=True)
        other = Create(
            "/delegation_token/tokens/other",
            b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Aalice","renewers":[],"tokenId":"other",'
            b'"issueTimestamp":1,"maxTimestamp":9000000000000,"expiryTimestamp":9000000000000}',
        )
        running.metadata.multi([other, garbage], lambda outcome: outcome.result())
        written = Token("other", ALICE, ALICE, (), 1, 9_000_000_000_000, 9_000_000_000_000)
        await effective(cluster, token, written)

    run(tmp_path, scenario, settings=SETTINGS)


def test_a_broker_reads_the_tokens_of_a_new_session_before_it_accepts_connections(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        cluster.kill(3)
        token = await new(cluster, 1, "first")
        await cluster.start(3)
        assert known(cluster)[3] == {token}
        listening, known_at_resume = cluster.brokers[3].running.listening, []
        resume = listening.resume

        def resumed() -> None:
            known_at_resume.append(known(cluster)[3])
            resume()

        listening.resume = resumed  # type: ignore[method-assign]
        client.network.disconnect("broker3", "zookeeper")
        cluster.expire(3)
        second = await new(cluster, 1, "second")
        client.network.reconnect("broker3", "zookeeper")

        async def look() -> Any:
            return known_at_resume or None

        await until(look)
        assert known_at_resume == [{token, second}]

    run(tmp_path, scenario, settings=SETTINGS)
