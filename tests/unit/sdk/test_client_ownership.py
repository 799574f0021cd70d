"""A client belongs to the loop, thread and process that started it."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest
import uvloop
from kafkalite_sdk.client.ownership import Owner

from kafkalite.errors import ClientUseError

FORK = """
import asyncio, os, sys
from kafkalite_sdk.client.ownership import Owner

async def main():
    owner = Owner("producer")
    owner.begin()
    if os.fork():
        _, status = os.wait()
        owner.check()
        print("child:", os.waitstatus_to_exitcode(status))
        return
    try:
        owner.check()
    except RuntimeError as error:
        print(error, flush=True)
    try:
        asyncio.new_event_loop().run_until_complete(checked(owner))
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(7)

async def checked(owner):
    owner.check()

if sys.argv[1] == "uvloop":
    import uvloop
    loop = uvloop.new_event_loop()
else:
    loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""


def started(name: str = "producer") -> tuple[Owner, asyncio.AbstractEventLoop]:
    owner = Owner(name)

    async def begin() -> None:
        owner.begin()
        owner.check()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    return owner, loop


async def check(owner: Owner) -> None:
    owner.check()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_use_from_another_loop_is_rejected(new_loop) -> None:
    owner, loop = started()
    other = new_loop()
    with pytest.raises(ClientUseError, match="this producer belongs to another event loop; create one in each loop"):
        other.run_until_complete(check(owner))
    other.close()
    loop.run_until_complete(check(owner))
    with pytest.raises(ClientUseError, match="this producer is used outside of its event loop"):
        owner.check()  # no loop is running
    loop.close()


def test_use_from_another_thread_is_rejected() -> None:
    owner, loop = started("consumer")
    errors = []

    def use() -> None:
        try:
            owner.check()
        except ClientUseError as error:
            errors.append(str(error))

    async def main() -> None:
        await asyncio.to_thread(use)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert len(errors) == 2 and set(errors) == {
        "this consumer belongs to another thread; call it through asyncio.run_coroutine_threadsafe() or "
        "loop.call_soon_threadsafe(), or create one in this thread"
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_use_after_a_fork_is_rejected_in_the_child_only(loop: str) -> None:
    command = [sys.executable, "-W", "error", "-c", FORK, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    fork = "this producer was started before a fork; create another one in the child process"
    assert done.stdout.splitlines() == [fork, fork, "child: 7"], done.stderr


def test_start_needs_a_running_loop() -> None:
    with pytest.raises(ClientUseError, match=r"start a producer inside a running event loop, as with asyncio\.run\(\)"):
        Owner("producer").begin()


def test_errors_are_runtime_errors() -> None:
    assert issubclass(ClientUseError, RuntimeError) and not ClientUseError("x").retriable
