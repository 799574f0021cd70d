"""A power cut: unflushed data is lost, and so are names of files whose directory was not flushed.

A file system in an image is shut down under load without its journal being flushed, the broker is killed, the image is
mounted again. With flush.messages=1 nothing acknowledged may be missing, and nothing that a consumer saw. With another
flush the end of a partition may be missing, and only that: fewer than N records with flush.messages=N; with the default
flush any number, which is reported.

Responses after the moment of the cut do not count; a proxy keeps them from the idempotent producer. The machine is
still running then: while ext4 is being shut down, its fdatasync may answer 0 for what is not on
the disk, as another one has just ended the transaction of both with an error (jbd2_complete_transaction).
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from pathlib import Path
from random import Random

import pytest

from tests.fix_torture import SHORT
from tests.kit.brokers import Kafkalite
from tests.kit.checker import ACKNOWLEDGED, History, Partition, check
from tests.kit.load import IdempotentSender, Sender, Tail
from tests.kit.loop_disk import LoopDisk
from tests.kit.ports import free_port
from tests.kit.proxy import CuttingProxy
from tests.kit.readers import READERS
from tests.kit.rig import assert_files_are_good, assert_kept, create_topic

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
MEGABYTES = 2048
ACKS_MIN = 300
LOAD_S_MAX = 75.0  # in the long form: beyond the 35 s after which Linux has written what lies in its page cache
LOAD_S_SHORT = 0.5
# Which file system and which flush each cut gets, in turn.
KINDS = (("ext4", "always"), ("xfs", "always"), ("ext4", "default"), ("ext4", "always"), ("xfs", "always"),
         ("xfs", "default"))  # fmt: skip
N = 100
FLUSH = {"always": {"flush_messages": "1"}, "default": {}}


class Outage:
    """A broker on a disk whose power will be cut, and its loads."""

    def __init__(
        self, directory: Path, disk: LoopDisk, random: Random, flush: str, proxy: CuttingProxy, broker_port: int
    ) -> None:
        self.random = random
        self.disk = disk
        self.flush = flush
        self.proxy = proxy
        self.broker = Kafkalite(directory, {})
        self.broker.settings |= {
            "listeners": f"PLAINTEXT://{self.broker.address},PROXIED://127.0.0.1:{broker_port}",
            "advertised.listeners": f"PLAINTEXT://{self.broker.address},PROXIED://127.0.0.1:{proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
        }
        self.broker.data = disk.path / "data"
        self.history = History()
        self.numbers = itertools.count()
        self.partitions: list[Partition] = []
        self.sometimes: list[Partition] = []
        self.idempotent: IdempotentSender | None = None
        self.ending = threading.Event()  # never set: for waiting

    async def begin(self) -> None:
        await asyncio.to_thread(self.broker.start)
        configs = {"segment_bytes": str(1 << 20), **FLUSH[self.flush]}
        self.partitions = await create_topic(self.broker.address, "t", 3, **configs)
        if self.flush == "always":  # what it sends again must not meet a log that has forgotten the batch before
            configs["flush_messages"] = str(N)
            self.sometimes = await create_topic(self.broker.address, "sometimes", 2, **configs)
            configs["flush_messages"] = "1"
            await create_topic(self.broker.address, "idempotent", 1, **configs)
            self.idempotent = IdempotentSender(f"127.0.0.1:{self.proxy.port}", "idempotent", 1)
            self.idempotent.start()

    def over(self) -> None:
        """After any outcome: no file is open on the disk, and no thread runs."""
        if self.broker.running():
            self.broker.kill()
        if self.idempotent is not None and self.idempotent.is_alive():
            self.idempotent.give_up()

    async def load_and_cut(self, seconds: float) -> float:
        """Load; then the power goes at a random moment. Answers when it went, by time.monotonic()."""
        depth, names = (16, "abc") if seconds < 1 else (1, "ac")  # what is to be read again has an end
        senders = [
            Sender(
                name, self.history, self.numbers, self.random, topic_partitions, depth=depth, certain=False, silent=0.1
            )
            for name, topic_partitions in (("a", self.partitions), ("b", self.partitions), ("c", self.sometimes))
            if topic_partitions and name in names
        ]
        tails = [Tail("tail", self.history, self.partitions)] if self.flush == "always" else []
        loads = [asyncio.create_task(each.run(self.broker.address)) for each in (*senders, *tails)]
        try:
            await senders[0].until(ACKS_MIN + self.random.randint(0, ACKS_MIN))
            await asyncio.to_thread(self.ending.wait, seconds)
            cut = time.monotonic()
            self.history.deaf = True
            self.proxy.hang_up()
            await asyncio.to_thread(self.disk.cut_power)
            await asyncio.to_thread(self.broker.kill)
        finally:
            for each in senders:
                each.stop()
            await asyncio.gather(*loads)
        self.history.deaf = False
        return cut

    async def power_returns(self) -> None:
        """The disk is mounted again, and the broker starts by itself."""
        await asyncio.to_thread(self.disk.unmount)
        await asyncio.to_thread(self.disk.mount)
        await asyncio.to_thread(self.broker.start)
        self.proxy.resume()

    async def judge(self, cut: float) -> str:
        """Read all with every foreign client. Answers what is lost, in words."""
        said = ""
        for reader in READERS:
            name = reader.__name__
            topic_partitions = [*self.partitions, *self.sometimes]
            await asyncio.to_thread(reader, name, self.broker.address, topic_partitions, self.history)
            found = check(self.history, name)
            ends = [each for each in found if each.name == "unseen" and self.may_lose(each.partition)]
            assert_kept([each for each in found if each.name != "unseen" or not self.may_lose(each.partition)])
            for topic_partition in self.sometimes:
                assert sum(each.partition == topic_partition for each in ends) < N
            said = self.loss(name, cut)
        return said

    def may_lose(self, partition: Partition) -> bool:
        return self.flush == "default" or partition in self.sometimes

    def loss(self, reader: str, cut: float) -> str:
        seen = {number for found in self.history.reads[reader].values() for _, number in found}
        answered = {number: send for number, send in self.history.sends.items() if send.outcome == ACKNOWLEDGED}
        lost = [send for number, send in answered.items() if number not in seen]
        oldest_ms = max((cut - send.answered_s for send in lost), default=0.0) * 1000
        said = f"{len(lost)} of {len(answered)} acknowledged lost, the oldest {oldest_ms:.0f} ms old"
        beside = sum(send.partition in self.sometimes for send in lost)
        return f"{said}; all {beside} of a topic with flush.messages={N}" if self.sometimes else said

    async def end(self) -> None:
        """It serves on; the idempotent producer finishes; the files are good."""
        after = Sender("after", self.history, self.numbers, self.random, self.partitions)
        await after.run(self.broker.address, requests=50)
        assert after.acks == 50 and not after.refusals
        partitions = [*self.partitions, *self.sometimes]
        if self.idempotent is not None:
            await asyncio.to_thread(self.idempotent.finish)
            assert self.proxy.wrong == []
            partitions.append(("idempotent", 0))
            await asyncio.to_thread(
                READERS[0], "all", self.broker.address, [("idempotent", 0)], self.idempotent.history
            )
            assert_kept(check(self.idempotent.history, "all"))
        assert await asyncio.to_thread(self.broker.stop) == self.broker.clean_exit
        await asyncio.to_thread(assert_files_are_good, self.broker.data, partitions)


async def test_power_cut_keeps_what_the_flush_setting_guarantees(
    cut: int, random: Random, tmp_path: Path, pytestconfig: pytest.Config, record_property: pytest.RecordProperty
) -> None:
    filesystem, flush = KINDS[cut % len(KINDS)]
    long = pytestconfig.getoption("cuts") > SHORT["cuts"] and flush == "default"
    seconds = random.uniform(0, LOAD_S_MAX if long else LOAD_S_SHORT)
    port = free_port()
    with LoopDisk(tmp_path, filesystem, MEGABYTES) as disk:
        async with CuttingProxy(port, random, share=0) as proxy:
            lost = await cut_once(Outage(tmp_path, disk, random, flush, proxy, port), seconds)
    record_property("summary", f"power cut {cut}: {filesystem}, flush {flush}, after {seconds:.1f} s of load: {lost}")


async def cut_once(outage: Outage, seconds: float) -> str:
    """One cut after so many seconds of load; what it cost, in words."""
    try:
        await outage.begin()
        went = await outage.load_and_cut(seconds)
        await outage.power_returns()
        lost = await outage.judge(went)
        await outage.end()
        return lost
    finally:
        outage.over()
