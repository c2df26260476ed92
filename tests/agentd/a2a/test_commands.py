"""Commands over A2A and the extended card: each sender has what its role may, and no secret is in any of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, create_client

from agentd.a2a.server import Server
from agentd.config.values import Address
from tests.agentd.a2a.serving import CLOSED, TOKENS, Served, message, served
from tests.agentd.a2a.test_owners import house
from tests.agentd.daemon.house import House, StrictLLM
from tests.agentd.runtime.test_skills import Scripted

pytestmark = pytest.mark.anyio


async def give(at: Served, op: str, who: str = "ops", context: str = "", **given: Any) -> Any:
    """What a command answers, or its error's code."""
    where = {"contextId": context} if context else {}
    params = message(id=f"{who}-{op}-{len(str(given))}", **where)
    params["message"]["parts"] = [{"data": {"agentd": {"op": op, **given}}}]
    told = await at.rpc("SendMessage", params, who=who)
    return told["error"]["code"] if "error" in told else told["result"]["message"]["parts"][0]["data"]["agentd"]


async def test_operators_read_and_change_the_memory_and_the_instance(tmp_path: Path) -> None:
    async with served(StrictLLM("hello"), house(tmp_path, CLOSED)) as at:
        assert (await give(at, "memory.set", key="colour", value={"of": "shed"}, ttl="5m"))["meta"]["ttl_ms"] == 300_000
        assert (await give(at, "memory.get", key="colour"))["value"] == {"of": "shed"}
        assert (await give(at, "memory.list"))["keys"] == ["colour"]
        assert (await give(at, "memory.delete", key="colour"))["found"] is True
        assert await give(at, "memory.get") == -32602
        config = await give(at, "config")
        assert config["agent"]["name"] == "house"
        assert not any(token in str(config) for token in TOKENS.values()), "of a secret only the reference"
        assert await give(at, "pause") == {"paused": True}
        sent = {**message("wait", id="m1", contextId="of-ann"), "configuration": {"returnImmediately": True}}
        task = await at.task(params=sent, who="ann")
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert await give(at, "resume") == {"paused": False}
        assert (await at.agent.wait(task["id"])).text == "hello"
        assert await give(at, "drain") == {"draining": True}
        await at.agent.until_over()


async def test_owners_have_their_own_and_no_more(tmp_path: Path) -> None:
    async with served(StrictLLM("hello"), house(tmp_path, CLOSED)) as at:
        for who in ("ann", "bob"):
            await at.task(params=message("hi", id=who, contextId=f"of-{who}"), who=who)
        mine = await give(at, "context.list", who="ann")
        assert [one["id"] for one in mine["contexts"]] == ["of-ann"]
        assert {one["id"] for one in (await give(at, "context.list"))["contexts"]} >= {"of-ann", "of-bob"}
        for op in ("config", "drain", "pause", "resume", "memory.list"):
            assert await give(at, op, who="ann") == -32010, op
        task = next(iter((await at.rpc("ListTasks", who="bob"))["result"]["tasks"]))["id"]
        assert await give(at, "cancel", who="ann", task=task) == -32602
        assert await give(at, "cancel", who="bob", task=task) == {"cancelled": False}


async def test_memory_of_its_own_is_reached_by_its_sender(tmp_path: Path) -> None:
    async with served(StrictLLM("x"), house(tmp_path, CLOSED), **{"a2a.scope": "principal"}) as at:
        await give(at, "memory.set", who="ann", key="colour", value="red")
        assert (await give(at, "memory.get", who="ann", key="colour"))["value"] == "red"
        assert (await give(at, "memory.get", who="bob", key="colour"))["found"] is False
        assert (await give(at, "memory.list"))["keys"] == []


async def test_extended_card_tells_what_its_reader_may_use(tmp_path: Path) -> None:
    place = house(tmp_path, a2a__extended_card="true")
    async with place.life(StrictLLM("x"), skills=[Scripted("s", {"pdf": "List the fields."})]) as agent:
        server = Server(agent, Address("127.0.0.1", 0), None)
        async with server.serving(), httpx.AsyncClient(base_url=server.url) as http:
            at = Served(agent, server, http)
            card = (await http.get("/.well-known/agent-card.json")).json()
            assert card["capabilities"]["extendedAgentCard"] is True
            assert [one["id"] for one in card["skills"]] == ["converse"]
            for who, has in (("ops", True), ("ann", False)):
                told = (await at.rpc("GetExtendedAgentCard", {}, who=who))["result"]
                assert [one["id"] for one in told["skills"]] == ["converse", "skill:pdf", "commands"]
                assert ("drain" in told["skills"][2]["description"]) == has
            assert (await at.rpc("GetExtendedAgentCard", {}))["error"]["code"] == -32010


async def test_without_the_setting_there_is_no_extended_card() -> None:
    async with served(StrictLLM("x"), House()) as at:
        client = await create_client(at.url, ClientConfig(streaming=False))
        assert (await at.rpc("GetExtendedAgentCard", {}))["error"]["code"] == -32004
        await client.close()
