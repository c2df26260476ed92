"""Writes that share a transaction, and its statements, answer and leave what they would one after the other."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.ports import Append, Delete, Put, Store
from agentkit.core.testing import FakeClock
from agentkit.core.testing.store_tools import everything
from agentkit.state.stores.memory import InMemoryStore
from agentkit.state.stores.sqlite import SQLiteStore

KEYS = st.sampled_from(["a", "b", "c\0d", "\U0001f600", "e,f g"])
SEEN = st.none() | st.integers(0, 6)
STEP = st.one_of(
    st.builds(Put, KEYS, st.integers(), expected=SEEN, ttl=st.sampled_from([None, None, 0, 0.1, 50])),
    st.builds(Append, KEYS, st.lists(st.text(max_size=5), max_size=3).map(tuple), at=st.none() | st.integers(0, 3)),
    st.builds(Delete, KEYS, expected=SEEN),
)
GROUPS = st.lists(st.lists(st.lists(STEP, max_size=4), max_size=8), max_size=4)


async def _answers(store: Store, clock: FakeClock, groups: list[list[list[Any]]], *, together: bool) -> list[Any]:
    async def one(batch: list[Any]) -> Any:
        try:
            return await store.commit(batch)
        except StoreError as refusal:
            return type(refusal), str(refusal)

    found: list[Any] = []
    for group in groups:
        if together:
            found += await asyncio.gather(*map(one, group))
        else:
            found += [await one(batch) for batch in group]
        clock.advance(0.1)
        found.append(await everything(store))
    return found


@given(GROUPS)
def test_a_group_of_writes_is_as_if_one_after_the_other(groups: list[list[list[Any]]]) -> None:
    async def run() -> None:
        clock, other = FakeClock(), FakeClock()
        with tempfile.TemporaryDirectory() as folder:
            async with SQLiteStore(Path(folder) / "store.db", exclusive=True, clock=clock) as store:
                await store.open()
                assert await _answers(store, clock, groups, together=True) == await _answers(
                    InMemoryStore(clock=other), other, groups, together=False
                )

    asyncio.run(run())
