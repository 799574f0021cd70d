"""The event loop in virtual time."""

import asyncio

from kafkalite.testing.virtual_loop import pass_time, run_virtually


def test_timers_are_called_at_their_time_and_not_a_rounding_error_before() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        called: list[float] = []
        for when in (1.6011999999999997, 1.6012):
            loop.call_at(when, lambda: called.append(loop.time()))
        await pass_time(2.0)
        return called

    assert run_virtually(main)[0] == [1.6011999999999997, 1.6012]
