"""Single flight in itself: nothing is left behind, whatever ends a flight."""

import asyncio
import gc
from typing import Any, NoReturn

import pytest

from agentkit.state.stores.flights import Flights

pytestmark = pytest.mark.anyio


async def nothing() -> None:
    return None


async def stored(value: Any) -> str:
    return str(value)


async def hang() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


def fail() -> NoReturn:
    raise ValueError("no")


async def test_flights_are_freed() -> None:
    flights = Flights()
    assert await flights.run("k", nothing, lambda: 1, stored) == "1"
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await flights.run("k", nothing, fail, stored)
    tasks = [asyncio.ensure_future(flights.run("k", nothing, hang, stored)) for _ in range(5)]
    await asyncio.sleep(0)
    assert len(flights) == 1
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(flights) == 0


def test_flight_of_a_closed_loop_holds_up_nobody() -> None:
    """A loop that was closed in the middle, with its tasks left as they were."""
    flights = Flights()
    loop = asyncio.new_event_loop()
    left = [loop.create_task(flights.run("k", nothing, hang, stored)) for _ in range(3)]
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    assert len(flights) == 1
    assert asyncio.run(flights.run("k", nothing, lambda: 1, stored)) == "1"
    assert len(flights) == 0
    loop.set_exception_handler(lambda loop, context: None)  # it complains of tasks that never ended
    del left
    gc.collect()
    assert asyncio.run(flights.run("k", nothing, lambda: 2, stored)) == "2"
    assert len(flights) == 0
