"""A store that counts what checkpoints cost, and one that fails on demand."""

import builtins
from typing import Any

from agentkit.core.contracts.codec import encode
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import Append, Batch, Lease, Put
from agentkit.state.stores import InMemoryStore


class CountingStore(InMemoryStore):
    """`written`: bytes of all keys and values written; `statements`: single writes; `commits`: calls of commit;
    `read`: log items that were read, by key."""

    def __init__(self) -> None:
        super().__init__()
        self.written = self.statements = self.commits = 0
        self.read: dict[str, int] = {}

    async def commit(self, batch: Batch, *, fence: Lease | None = None) -> tuple[int, ...]:
        self.commits += 1
        for op in batch:
            items = op.items if isinstance(op, Append) else [op.value] if isinstance(op, Put) else []
            self.statements += max(len(items), 1)
            self.written += len(op.key) + sum(len(encode(item)) for item in items)
        return await super().commit(batch, fence=fence)

    async def list(self, key: str, *, start: int = 0, stop: int | None = None) -> builtins.list[Any]:
        found = await super().list(key, start=start, stop=stop)
        self.read[key] = self.read.get(key, 0) + len(found)
        return found


class FlakyStore(InMemoryStore):
    """The next commit raises `failure`: before it is carried out, or, with `late`, afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: BaseException | None = None
        self.late = False

    def fail(self, failure: BaseException | None = None, *, late: bool) -> None:
        self.failure, self.late = failure or StoreError("connection lost"), late

    async def commit(self, batch: Batch, *, fence: Lease | None = None) -> tuple[int, ...]:
        failure, self.failure = self.failure, None
        if failure is not None and not self.late:
            raise failure
        done = await super().commit(batch, fence=fence)
        if failure is not None:
            raise failure
        return done
