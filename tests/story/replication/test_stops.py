"""Brokers with replicas that stop: their leaderships move before, and a whole cluster stops without a wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.state.replica_sessions import ReplicaSessions
from tests.story.cluster.administrator import Administrator
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import in_a_cluster, leader_of, send, until_in_sync, values
from tests.story.replication.world import ReplicatedWorld

STOP_S = 0.5  # of virtual time, in which nothing is waited for
BACK_OFF_S = 5.0  # between requests for a controlled shutdown


def test_leadership_moves_before_its_broker_stops(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        stopped, began = leader_of(world), world.loop.time()
        await world.brokers[stopped].stop()
        assert leader_of(world) != stopped and world.loop.time() - began < STOP_S
        await send(world, b"two")
        assert world.loop.time() - began < 2 * STOP_S, "no session had to end"
        await world.cluster.start(stopped)
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two"]
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_whole_cluster_that_stops_waits_for_no_back_off(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        began = world.loop.time()
        await asyncio.gather(*(broker.stop() for broker in world.brokers.values()))
        assert world.loop.time() - began < BACK_OFF_S
        for broker_id in world.brokers:
            await world.cluster.start(broker_id)
        await send(world, b"two")
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two"]

    in_a_cluster(tmp_path, scenario)


def test_new_leader_answers_the_waiting_fetches_of_its_followers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not name the partition that it leads now, and would wait for up to replica.fetch.wait.max.ms."""
    answered: list[int] = []
    answer_waiting = ReplicaSessions.answer_waiting

    def counted(sessions: ReplicaSessions) -> None:
        answered.append(len(sessions))
        answer_waiting(sessions)

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        assert await Administrator(world).create("others", 6, 3)
        await until_in_sync(world)
        monkeypatch.setattr(ReplicaSessions, "answer_waiting", counted)
        await world.brokers[leader_of(world)].stop()
        await send(world, b"after")
        assert any(answered)

    in_a_cluster(tmp_path, scenario)
