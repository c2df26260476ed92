"""Memory whose values are with an MCP server: the official one, a knowledge graph, as a process. What memory promises
holds all the same: lifetimes, limits, keys, lists (F38)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentd.config.thinking import Memory, MemoryOverrides
from agentd.context.memory import MemoryRefused
from agentd.mcp import Server
from agentd.runtime.server_memory import OverriddenMemory, WrongMapping
from agentd.runtime.servers import McpServers
from agentd.runtime.tools.box import ToolBox
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.house import House, StrictLLM, results, texts
from tests.agentd.daemon.test_servers import is_up, servers
from tests.agentd.mcp.peers import npm, settings_of
from tests.agentd.records.making import records
from tests.agentd.runtime.desks import Clock

pytestmark = pytest.mark.anyio
PRESET = MemoryOverrides(preset="knowledge-graph", server="memory")


class Place:
    """One store and one file of the server, over several lives."""

    def __init__(self, folder: Path, limits: Memory | None = None) -> None:
        self.file, self.store, self.clock = folder / "graph.jsonl", InMemoryStore(), Clock()
        self.limits = limits or Memory()

    @asynccontextmanager
    async def life(self) -> AsyncIterator[OverriddenMemory]:
        found = McpServers(ToolBox())
        settings = settings_of("memory", npm("memory"), env={"MEMORY_FILE_PATH": str(self.file)})
        await found.open([settings])
        server = found.find("memory")
        assert isinstance(server, Server)
        try:
            assert await server.ready(30), server.error
            mine = records(self.store, clock=self.clock)
            yield OverriddenMemory(mine, self.limits, self.clock, PRESET, found.memory_call)
        finally:
            await found.aclose()

    def graph(self) -> dict[str, list[Any]]:
        """What the server has in its file."""
        lines = [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []
        return {
            one["name"]: [json.loads(text) for text in one["observations"]] for one in lines if one["type"] == "entity"
        }


async def put(memory: OverriddenMemory, key: str, value: Any, **how: Any) -> Any:
    async with memory.writing():
        return await memory.commit(await memory.set(key, value, **how))


async def drop(memory: OverriddenMemory, key: str) -> Any:
    async with memory.writing():
        return await memory.commit(await memory.delete(key))


async def value(memory: OverriddenMemory, key: str) -> Any:
    found, _ = await memory.get(key)
    return None if found is None else found.record.value


async def test_f38_values_are_with_the_server_and_lifetimes_here(tmp_path: Path) -> None:
    place = Place(tmp_path)
    values = [{"a": [1, "für", None]}, "text", 7.5, True, "{not json", ""]
    async with place.life() as memory:
        for at, one in enumerate(values):
            change = await put(memory, f"k{at}", one, by="ann")
            assert (change.meta or {})["seq"] == 1
        assert [await value(memory, f"k{at}") for at in range(len(values))] == values
        await put(memory, "k0", "new", ttl="90s")
        assert place.graph()["k0"] == ["new"], "the old value is gone from the server"
        found, _ = await memory.get("k0")
        assert found is not None
        assert (found.meta["ttl_ms"], found.seq) == (90_000, 2)
    place.clock.now += 89_999
    async with place.life() as memory:
        assert await value(memory, "k0") == "new"
        place.clock.now += 1
        assert await memory.get("k0") == (None, True)
        assert "k0" not in (await memory.list()).keys
        assert await memory.sweep() == 1
        assert "k0" not in place.graph()
        assert await memory.get("k0") == (None, False)
        assert list((await memory.list(limit=2)).keys) == ["k1", "k2"]
        assert (await drop(memory, "k1")).found
        assert not (await drop(memory, "k1")).found
        assert "k1" not in place.graph()


async def test_limits_and_keys_are_refused_before_the_server_hears_of_them(tmp_path: Path) -> None:
    place = Place(tmp_path, Memory(max_value_bytes=10, max_keys=2, max_bytes=1_000))
    async with place.life() as memory:
        await put(memory, "a", 1)
        await put(memory, "b", 1)
        wrong: list[tuple[str, Any, dict[str, Any]]] = [
            ("c", 1, {}), ("a", "x" * 20, {}), ("_a", 1, {}), ("a b", 1, {}), ("a", 1, {"ttl": "soon"}),
            ("a", 1, {"if_seq": 7}), ("a", float("nan"), {}),
        ]  # fmt: skip
        for key, given, how in wrong:
            with pytest.raises(MemoryRefused):
                await put(memory, key, given, **how)
        assert place.graph() == {"a": [1], "b": [1]}
        await put(memory, "a", 2, if_seq=1)
        with pytest.raises(MemoryRefused, match="at seq 2, not 1"):
            await put(memory, "a", 3, if_seq=1)


async def test_what_others_put_there_is_found_and_never_lost(tmp_path: Path) -> None:
    place = Place(tmp_path)
    entity = {"type": "entity", "name": "theirs", "entityType": "person", "observations": ["likes tea", "likes cake"]}
    place.file.write_text(json.dumps(entity))
    async with place.life() as memory:
        found, _ = await memory.get("theirs")
        assert found is not None
        assert (found.record.value, found.seq, found.record.by) == ("likes cake", 1, "memory")
        assert (await memory.list()).keys == ("theirs",)
        with pytest.raises(MemoryRefused, match="at seq 1, not 0"):
            await put(memory, "theirs", "x", if_seq=0)


async def test_server_that_is_away_is_said_and_nothing_is_guessed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.life() as memory:
        await put(memory, "a", 1)
        await memory._call.__self__.aclose()  # type: ignore[attr-defined]
        for work in (memory.get("a"), memory.list(), put(memory, "a", 2), drop(memory, "a")):
            with pytest.raises(MemoryRefused, match="the memory is with the MCP server 'memory'"):
                await work
    async with place.life() as memory:
        assert await value(memory, "a") == 1


def test_mapping_that_is_none_is_refused() -> None:
    wrong = MemoryOverrides.model_validate({"get": {"server": "s", "tool": "t", "args": {"key": "key ||"}}})
    with pytest.raises(WrongMapping, match=r"get\[0\].args.key: 'key \|\|' is no expression"):
        OverriddenMemory(records(InMemoryStore()), Memory(), Clock(), wrong, lambda *a: None)  # type: ignore[arg-type]


async def test_agent_with_the_memory_server_remembers_over_lives(tmp_path: Path) -> None:
    given = servers(
        {"name": "memory", "command": npm("memory"), "env": {"MEMORY_FILE_PATH": str(tmp_path / "g.jsonl")}}
    )
    overrides = '{"preset": "knowledge-graph", "server": "memory"}'
    house = House(mcp__servers=given, tools__overrides__memory=overrides)
    model = StrictLLM([("memory.set", {"key": "colour", "value": "red"})], "kept",
                      [("memory.get", {"key": "colour"}), ("memory.list", {})], "there")  # fmt: skip
    async with house.life(model) as agent:
        await is_up(agent, "memory")
        assert (await agent.ask("keep", context="c")).text == "kept"
    async with house.life(model) as agent:
        await is_up(agent, "memory")
        assert (await agent.ask("look", context="d")).text == "there"
        found, listed = await results(agent, "d")
        assert (found.content["value"], found.content["meta"]["by"]) == ("red", "operator")
        assert listed.content["keys"] == ["colour"]
        assert "colour" in texts(model.requests[-1]), "the closing block names the key"
