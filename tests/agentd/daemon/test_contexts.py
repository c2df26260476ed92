"""Contexts through the whole daemon: what a turn writes at any length, checkpoints, who may have which, room in memory,
and what commands do to them."""

from __future__ import annotations

import msgspec
import pytest

from agentd.context.record import AssistantMsg, ContextKind, TextPart, Visible, entry_of
from agentd.context.registry import Contexts, NotYours
from agentd.context.rows import encode_entry
from agentd.records import Add, Records
from agentd.runtime.principals import Principal
from agentkit.core.contracts.errors import Conflict
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.testing import FaultyStore
from agentkit.state.stores import InMemoryStore
from tests.agentd.daemon.house import House, Said, StrictLLM, answers, log_of, texts, users

pytestmark = pytest.mark.anyio
LONG = 100_000
ANN, BOB = Principal("ann"), Principal("bob")


# What is written


async def lengthen(records: Records, id: str, n: int) -> None:
    """Give a context a log of `n` entries, of which the last few are shown, as reductions would leave it."""
    contexts = Contexts()
    row = await records.get("context", id)
    assert row is not None
    assert contexts.restore([row]) == []
    held = contexts.get(id)
    assert held is not None
    first, state = held.state.next, held.state
    template = encode_entry(entry_of(7_777_777, AssistantMsg("a line of an earlier day"), ts=1, est=9))
    lines = tuple(template.replace(b"7777777", str(at).encode()) for at in range(first, n + 1))
    held.update(next=n + 1, view=Visible((), n - 20), updated=state.updated)
    saves = held.writes()
    await records.commit([*saves, Add("log", id, first, lines)])


def posted(request: ChatRequest) -> bool:
    """Whether the request in hand was worked on."""
    roles = [message.role for message in request.messages if "runtime-state" not in message.content]
    return roles[-1] == "tool"


async def test_f12_what_a_turn_writes_does_not_grow_with_the_log() -> None:
    store = FaultyStore(InMemoryStore())
    house = House(store=store)
    async with house.life(StrictLLM("done")) as agent:
        for id in ("short", "large"):
            await agent.ask("go", context=id)
        await agent.until_idle()
        await lengthen(agent.services.records, "short", 100)
        await lengthen(agent.services.records, "large", LONG)
        await house.end(agent)
    spent = {}
    model = StrictLLM(answer=lambda request: "done" if posted(request) else [("post", {"n": 1})])
    async with house.life(model) as agent:
        for id in ("short", "large"):
            await agent.ask("warm up", context=id)
            await agent.until_idle()
            before = store.written, store.operations["commit"]
            task = await agent.ask("go", context=id)
            await agent.until_idle()
            assert task.text == "done"
            spent[id] = store.written - before[0], store.operations["commit"] - before[1]
        held = agent.contexts.get("large")
        assert held is not None
        assert held.state.next > LONG
        assert len(held.entries) < 60, "what is not shown is not in memory"
    assert spent["large"][1] == spent["short"][1]
    assert spent["large"][0] <= spent["short"][0] * 1.1


async def test_f12_a_second_checkpoint_straight_after_the_first_writes_nothing() -> None:
    store = FaultyStore(InMemoryStore())
    async with House(store=store).life(StrictLLM("done")) as agent:
        for id in ("b", "a"):
            await agent.ask("go", context=id)
        await agent.until_idle()
        records = agent.services.records
        assert await agent.contexts.checkpoint(records) == [], "a turn leaves nothing to be written"
        for held in agent.contexts:
            held.update(turns=7)
        before = store.operations["commit"]
        assert await agent.contexts.checkpoint(records) == ["a", "b"]
        assert store.operations["commit"] == before + 2
        written = store.written
        assert await agent.contexts.checkpoint(records) == []
        assert (store.operations["commit"], store.written) == (before + 2, written)
        again = Contexts()
        assert again.restore([row for id in "ab" if (row := await records.get("context", id))]) == []
        assert [held.state.turns for held in again] == [7, 7]


async def test_a_checkpoint_stops_at_the_first_refusal_and_what_was_written_stays() -> None:
    store = FaultyStore(InMemoryStore())
    async with House(store=store).life(StrictLLM("done")) as agent:
        for id in ("c", "a", "b"):
            await agent.ask("go", context=id)
        await agent.until_idle()
        records, contexts = agent.services.records, agent.contexts
        for held in contexts:
            held.update(turns=7)
        store.fail(2, "commit", error=Conflict("somebody else was here"))
        with pytest.raises(Conflict):
            await contexts.checkpoint(records)
        assert [held.id for held in contexts if held.is_dirty] == ["c", "b"]
        row = await records.get("context", "a")
        assert row is not None
        assert msgspec.json.decode(row.state)["turns"] == 7
        assert await contexts.checkpoint(records) == ["b", "c"]


# Who may have which


async def test_the_registry_makes_root_and_conversations_and_keeps_them_apart() -> None:
    contexts = Contexts()
    root = contexts.root(now=5)
    assert (root.id, root.state.kind, root.state.created) == ("root", ContextKind.ROOT, 5)
    assert contexts.root() is root
    made = contexts.conversation("c", "ann", now=6)
    assert (made.state.kind, made.state.principal, made.state.created) == (ContextKind.CONVERSATION, "ann", 6)
    assert contexts.conversation("c", "ann") is made
    assert contexts.conversation("c", None) is made, "whoever may reach all"
    for principal in ("bob", "Ann", ""):
        with pytest.raises(NotYours, match="there is no conversation 'c'"):
            contexts.conversation("c", principal)
    for reaching_root in ("bob", None):
        with pytest.raises(NotYours, match="there is no conversation 'root'"):
            contexts.conversation("root", reaching_root)
    assert (contexts.ids(), len(contexts), "c" in contexts, contexts.get("d")) == (["c", "root"], 2, True, None)


async def test_the_first_that_speaks_owns_a_conversation_for_good() -> None:
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        await agent.ask("go", context="o")
        assert (await agent.command("status", context="o"))["principal"] == "operator"
        with pytest.raises(NotYours, match="there is no"):
            await agent.send("go", context="o", principal=ANN)
        await agent.ask("go", context="c", principal=ANN)
        await agent.ask("go", context="c")
        assert (await agent.command("status", context="c"))["principal"] == "ann"
        with pytest.raises(NotYours, match="there is no"):
            await agent.send("go", context="c", principal=BOB)
    async with house.life(StrictLLM("done")) as agent:
        for context in ("c", "root"):
            with pytest.raises(NotYours):
                await agent.send("go", context=context, principal=BOB)
            with pytest.raises(NotYours):
                await agent.command("status", context=context, principal=BOB)
        with pytest.raises(NotYours):
            await agent.command("status", context="nowhere", principal=BOB)
        assert (await agent.ask("go", context="c", principal=ANN)).text == "done"
        assert len(await users(agent, "c")) == 3


async def test_what_is_not_stored_is_not_taken_out_of_memory() -> None:
    async with House().life(StrictLLM("done")) as agent:
        await agent.ask("go", context="c")
        await agent.until_idle()
        held = agent.contexts.get("c")
        assert held is not None
        held.update(turns=7)
        with pytest.raises(ValueError, match="'c' has changes that are not stored"):
            agent.contexts.remove("c")
        await agent.contexts.checkpoint(agent.services.records)
        assert agent.contexts.remove("c")
        assert not agent.contexts.remove("c")
        assert len(agent.contexts) == 0


async def test_status_tells_of_each_context_without_its_content() -> None:
    plan: Said = [("plan.create", {"goal": "all", "items": ["one", "two"]}),
                  ("plan.update", {"item": 1, "status": "done"})]  # fmt: skip
    house = House(context__model_window=50_000)
    async with house.life(StrictLLM(plan, "done")) as agent:
        await agent.ask("a secret", context="c", principal=ANN)
        await agent.until_idle()
        told = await agent.command("status", context="c", principal=ANN)
        entries = len(await log_of(agent, "c"))
        assert {name: told[name] for name in ("id", "kind", "version", "entries", "turns", "principal", "plan")} == {
            "id": "c", "kind": "conversation", "version": 1, "entries": entries, "turns": 1, "principal": "ann",
            "plan": (1, 2)}  # fmt: skip
        assert (told["window"], told["window_source"], told["status"]) == (50_000, "declared", "open")
        assert told["seq"] > 0
        assert 0 < told["est_tokens"] == agent.contexts.max_est_tokens
        assert "secret" not in str(told)
        (status,) = agent.contexts.status(50_000, "declared")
        more = {"degraded": False, "servers": [], "triggers": [], "at_work": []}
        assert msgspec.to_builtins(status) | {"plan": (1, 2), "skills": ()} | more == told
        assert await agent.command("context.get", context="c") | more == told
    async with house.life(StrictLLM("done")) as agent:
        after = await agent.command("status", context="c")
        assert after == told, "a restart changes nothing of it"


async def test_an_empty_registry_has_nothing_to_tell() -> None:
    contexts = Contexts()
    assert (contexts.max_est_tokens, contexts.status(), len(contexts), list(contexts)) == (0, [], 0, [])


# Room in memory


async def test_idle_contexts_leave_memory_and_come_back_as_they_were() -> None:
    house = House(context__resident=4)
    async with house.life(StrictLLM("done")) as agent:
        for n in range(12):
            await agent.ask(f"number {n}", context=f"c{n}")
            await agent.until_idle()
            assert len(agent.contexts) <= 4
        assert agent.contexts.ids() == ["c10", "c11", "c8", "c9"], "those that were idle longest went first"
        assert (await agent.ask("more", context="c0")).text == "done"
        assert [entry.parts for entry in await users(agent, "c0")] == [(TextPart("number 0"),), (TextPart("more"),)]


async def test_a_context_that_comes_back_shows_the_model_what_it_was_told() -> None:
    house, model = House(context__resident=1), StrictLLM("done")
    async with house.life(model) as agent:
        await agent.ask("the first word", context="a")
        await agent.ask("something else", context="b")
        await agent.until_idle()
        assert agent.contexts.ids() == ["b"]
        await agent.ask("and more", context="a")
        assert "the first word" in texts(model.requests[-1])
        assert "something else" not in texts(model.requests[-1])


# Commands


async def test_clear_empties_the_view_and_not_the_log_and_restore_brings_it_back() -> None:
    house, model = House(), StrictLLM([("plan.create", {"goal": "all", "items": ["one"]})], "done", "then so")
    async with house.life(model) as agent:
        await agent.ask("the first word", context="c")
        assert await agent.command("context.pin", context="c", entries=[1]) == {"pins": [1]}
        before = await log_of(agent, "c")
        assert await agent.command("context.clear", context="c") == {"version": 2}
        held = agent.contexts.get("c")
        assert held is not None
        assert (held.state.plan, held.state.pins, held.state.skills, held.state.est_tokens) == (None, (), (), 0)
        assert (await log_of(agent, "c"))[: len(before)] == before
        await agent.ask("after", context="c")
        assert "the first word" not in texts(model.requests[-1])
        with pytest.raises(ValueError, match="version 2 is the current one"):
            await agent.command("context.restore", context="c", version=2)
        with pytest.raises(ValueError, match="needs a version"):
            await agent.command("context.restore", context="c", version="1")
        told = await agent.command("context.restore", context="c", version=1)
        assert told["version"] == 3
        await agent.ask("again", context="c")
        assert "the first word" in texts(model.requests[-1])
    async with house.life(model) as agent:
        await agent.ask("and again", context="c")
        assert "the first word" in texts(model.requests[-1]), "in the next life too"


@pytest.mark.parametrize("version", [0, 9, -1])
async def test_a_version_that_never_was_is_not_restored(version: int) -> None:
    async with House().life(StrictLLM("done")) as agent:
        await agent.ask("go", context="c")
        before = await log_of(agent, "c")
        with pytest.raises((ValueError, LookupError), match=str(version)):
            await agent.command("context.restore", context="c", version=version)
        assert await log_of(agent, "c") == before
        assert (await agent.ask("more", context="c")).text == "done"


async def test_a_pin_that_makes_no_sense_is_refused_and_pins_nothing() -> None:
    async with House().life(StrictLLM("done")) as agent:
        await agent.ask("go", context="c")
        for entries in ([99], [0], ["1"], "1", [True], [1, 99]):
            with pytest.raises((ValueError, LookupError)):
                await agent.command("context.pin", context="c", entries=entries)
        held = agent.contexts.get("c")
        assert held is not None
        assert held.state.pins == ()
        assert await answers(agent, "c") == ["done"]


async def test_a_start_under_another_configuration_names_the_section(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    async with house.life(StrictLLM("done")) as agent:
        await agent.ask("go", context="c")
    async with house.life(StrictLLM("done")):
        assert "the configuration differs" not in caplog.text
    async with house.life(StrictLLM("done"), given={"context__keep_last": 3}):
        assert "differs from that of the start before in: context" in caplog.text
