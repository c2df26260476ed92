"""A process that works on a SQLite store until it ends or is killed; run as a script by the tests beside it.

`write PATH MODE NAME`: turns of four writers, each of which commits entries and head together; a line `writer turn` on
standard output acknowledges what the store has. `count PATH TIMES`: adds to one counter by compare-and-set.
`hold PATH`: keeps the store to itself.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from agentkit.core.contracts.errors import Conflict
from agentkit.core.contracts.ports import Append, Put
from agentkit.core.contracts.types import Message
from agentkit.state.stores import SQLiteStore

WRITERS = 4


def say(line: str) -> None:
    os.write(1, (line + "\n").encode())


async def write(path: str, mode: str, name: str) -> None:
    store = SQLiteStore(path, exclusive=mode == "exclusive")

    async def writer(number: int) -> None:
        key = f"{name}/{number}"
        found = await store.versioned(f"head/{key}")
        turn, version = found if found is not None else (0, 0)
        length = len(await store.list(f"log/{key}"))
        while True:
            turn += 1
            entries = tuple(Message("user", f"turn {turn} part {part} " + "x" * 300) for part in range(3))
            batch: list[Put | Append] = [
                Append(f"log/{key}", entries, at=length),
                Put(f"head/{key}", turn, expected=version),
            ]
            if turn % 7 == 0:
                batch.append(Put(f"passing/{key}", turn, ttl=0.01))
            version = (await store.commit(batch))[1]
            length += 3
            say(f"{key} {turn}")

    await asyncio.gather(*[writer(number) for number in range(WRITERS)])


async def count(path: str, times: str) -> None:
    async with SQLiteStore(path) as store:
        for _ in range(int(times)):
            while True:
                found = await store.versioned("counter")
                value, version = found if found is not None else (0, 0)
                try:
                    await store.compare_and_set("counter", value + 1, expected=version)
                except Conflict:
                    continue
                break
            await store.append("log", os.getpid())
            await store.get_or_set("once", os.getpid)
        say(str(await store.get("once")))


async def hold(path: str) -> None:
    async with SQLiteStore(path, exclusive=True) as store:
        await store.open()
        await store.lease("name", "the holder", 3600)
        say("held")
        await asyncio.sleep(3600)


if __name__ == "__main__":
    works: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"write": write, "count": count, "hold": hold}
    asyncio.run(works[sys.argv[1]](*sys.argv[2:]))
