"""A process that commits a row and two lines at a time, and says each number once its commit is acknowledged. It takes
up where the one before it was killed."""

import asyncio
import sys

from agentd.records import Add, Ids, Records, Save, acquire, this_process
from agentd.records.ids import wall_ms
from agentd.records.keys import lease_name
from agentkit.core.contracts.scope import Scope
from agentkit.state.stores import SQLiteStore


async def main(path: str) -> None:
    async with SQLiteStore(path, exclusive=True, synchronous="NORMAL") as store:
        lease = await acquire(store, lease_name("agentd", Scope(), "me"), this_process(), 15)
        mine = Records(store, Scope(), instance="me", lease=lease, clock=wall_ms, ids=Ids())
        row = await mine.get("context", "root")
        n = 0 if row is None else int(row.state)
        while True:
            n += 1
            lines = (b'"line %d"' % (2 * n - 1), b'"line %d"' % (2 * n))
            (row,) = await mine.commit([Save("context", "root", b"%d" % n, row), Add("log", "root", 2 * n - 1, lines)])
            print(n, flush=True)


asyncio.run(main(sys.argv[1]))
