"""A store that breaks down in a commit, so that nobody can tell whether it was done."""

from __future__ import annotations

from typing import Any

from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore


class Doubtful(FaultyStore):
    """The commit that is `left` commits away is done (`lost`) or not, and from then on the store is broken until
    `mend`. With 0 it goes on for ever."""

    def __init__(self, *, lost: bool) -> None:
        super().__init__(InMemoryStore())
        self.left, self.lost = 0, lost

    async def commit(self, *args: Any, **how: Any) -> Any:
        self.left -= 1
        if self.left != 0:
            return await super().commit(*args, **how)
        if self.lost:
            await super().commit(*args, **how)
        self.break_down()
        raise OSError(5, "the store broke down at this commit, on purpose")
