"""An agent as a tool of another one: what the two share, and what they do not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from agentkit.agents import Agent, AgentTool, ReActCognition, deliver_result, store_checkpointer, tool
from agentkit.core.contracts.errors import MeterExceeded
from agentkit.core.contracts.messages import marked
from agentkit.core.contracts.types import Scope, ToolCall
from agentkit.core.contracts.validity import check
from agentkit.core.runtime import Budget
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.context import WorkingContext
from agentkit.state.stores import InMemoryStore

pytestmark = pytest.mark.anyio


@tool(side_effecting=False)
async def look(what: str) -> str:
    """Look at something."""
    return f"seen {what}"


@tool(side_effecting=True, requires_approval=True)
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def asks(*tasks: str, name: str = "critic") -> list[ToolCall]:
    return [ToolCall(f"c{n}", name, {"task": task}) for n, task in enumerate(tasks)]


def outer(*tools: Any, **how: Any) -> Agent:
    return Agent("outer", prompt="You delegate.", cognition=ReActCognition(tools, **how))


async def test_the_answer_is_the_result_and_each_has_a_context_of_its_own() -> None:
    critic = Agent("critic", prompt="You criticise.")
    llm, wc = FakeLLM().script([asks("Is it good?"), "It is.", "The critic agrees."]), WorkingContext()
    result = await outer(critic.as_tool("Judges texts.")).run("Ask.", make_test_ctx(llm=llm), context=wc)
    assert result.output == "The critic agrees."
    assert [m.content for m in llm.requests[1].messages] == ["You criticise.", "Is it good?"]
    assert [m.content for m in wc.messages] == ["Ask.", "", "It is.", "The critic agrees."]
    (told,) = llm.requests[0].tools or ()
    assert (told.name, told.description, list(told.parameters["properties"])) == ("critic", "Judges texts.", ["task"])


async def test_budget_tenant_and_services_are_the_callers() -> None:
    seen: list[Any] = []

    @tool(side_effecting=False)
    async def note(ctx: Any) -> str:
        """Note."""
        seen.append((ctx.scope, ctx.correlation_id, ctx.depth, ctx.path))
        return "noted"

    inner = Agent("inner", cognition=ReActCognition([note]))
    turns: list[Any] = [asks("a", name="inner"), [ToolCall("n", "note")], "inner done", "done"]
    budget = Budget()
    ctx = make_test_ctx(llm=FakeLLM().script(turns), budget=budget, scope=Scope("acme"))
    assert (await outer(inner.as_tool("Notes.")).run("go", ctx)).output == "done"
    assert seen == [(Scope("acme"), "test-run", 1, "/1.0/inner/1.0")]
    assert budget.calls == 4


async def test_a_budget_that_is_used_up_inside_ends_the_whole_run() -> None:
    critic = Agent("critic").as_tool("Judges.")
    ctx = make_test_ctx(llm=FakeLLM().script([asks("x"), "inner", "never"]), budget=Budget(max_calls=2))
    with pytest.raises(MeterExceeded):
        await outer(critic).run("go", ctx)


async def test_depth_is_bounded() -> None:
    """An agent that is given itself does not call itself for ever."""
    agent = outer()
    agent.cognition = ReActCognition([agent.as_tool("Goes on.", name="again", side_effecting=False)])
    llm = FakeLLM(lambda system, user, model: asks("deeper", name="again") if _is_first(llm) else "enough")
    wc = WorkingContext()
    await agent.run("go", make_test_ctx(llm=llm, budget=Budget(max_depth=3)), context=wc)
    assert llm.calls == 2 * 4
    refused = [m for request in llm.requests for m in request.messages if m.is_error]
    assert "depth 4 is beyond the allowed 3" in refused[0].content


def _is_first(llm: FakeLLM) -> bool:
    return llm.requests[-1].messages[-1].role == "user"


async def test_cancelling_the_caller_cancels_the_agent_and_leaves_a_valid_context() -> None:
    reached = asyncio.Event()

    @tool(side_effecting=True)
    async def wait() -> str:
        """Wait."""
        reached.set()
        await asyncio.Event().wait()
        return "never"

    inner = Agent("inner", cognition=ReActCognition([wait]))
    llm, wc = FakeLLM().script([asks("a", name="inner"), [ToolCall("w", "wait")]]), WorkingContext()
    job = asyncio.create_task(outer(inner.as_tool("Waits.")).run("go", make_test_ctx(llm=llm), context=wc))
    await asyncio.wait_for(reached.wait(), 5)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert check(wc.messages) == ()
    assert wc.messages[-1].role == "tool"


async def test_what_the_parser_made_is_the_result() -> None:
    @dataclass
    class Verdict:
        score: int

    judge = Agent("critic", output=Verdict)
    llm, wc = FakeLLM().script([asks("x"), '{"score": 7}', "done"]), WorkingContext()
    await outer(judge.as_tool("Judges.")).run("go", make_test_ctx(llm=llm), context=wc)
    assert wc.messages[2].content == '{"score": 7}'


async def test_a_run_that_stopped_short_is_an_error_with_what_it_said() -> None:
    lost = Agent("critic", cognition=ReActCognition([look], max_iterations=1))
    turns: list[Any] = [asks("x"), [ToolCall("l", "look", {"what": "y"})], "done"]
    wc = WorkingContext()
    await outer(lost.as_tool("Looks.")).run("go", make_test_ctx(llm=FakeLLM().script(turns)), context=wc)
    assert wc.messages[2].is_error
    assert wc.messages[2].content == "The agent stopped short: exhausted_steps."


async def test_a_run_that_waits_for_approval_is_an_interim_result_until_it_is_delivered() -> None:
    store = InMemoryStore()
    keeper = Agent("keeper", cognition=ReActCognition([delete], checkpointer=store_checkpointer))
    turns: list[Any] = [
        asks("tidy", name="keeper"),
        [ToolCall("d", "delete", {"path": "a"})],
        "It waits.",
        "Deleted.",
        "All done.",
    ]
    llm, wc = FakeLLM().script(turns), WorkingContext()
    caller = outer(keeper.as_tool("Tidies up."))
    ctx = make_test_ctx(llm=llm, store=store)
    assert (await caller.run("go", ctx, context=wc)).output == "It waits."
    assert marked(wc.messages[2], "pending") is not None
    assert "Its run is test-run/1.0/keeper" in wc.messages[2].content
    answer = await keeper.resume("test-run/1.0/keeper", {"d": "approve"}, ctx)
    assert answer.output == "Deleted."
    deliver_result(wc, "c0", answer.output)
    assert (await caller.run("", ctx, context=wc)).output == "All done."
    assert "Deleted." in llm.requests[-1].messages[-1].content


@pytest.mark.parametrize(
    ("agent", "has_effects"),
    [
        (Agent("a"), False),
        (Agent("a", cognition=ReActCognition([look])), False),
        (Agent("a", cognition=ReActCognition([look, delete])), True),
    ],
)
def test_it_has_side_effects_if_one_of_its_tools_has(agent: Agent, has_effects: bool) -> None:
    assert agent.as_tool("Does it.").side_effecting is has_effects
    assert agent.as_tool("Does it.", side_effecting=True).side_effecting is True


def test_mistakes_are_named() -> None:
    class Own:
        pass

    agent = Agent("a", cognition=Own())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="say side_effecting: Own does not tell its tools"):
        agent.as_tool("Does it.")
    with pytest.raises(ValueError, match="description must not be empty"):
        Agent("a").as_tool("")
    with pytest.raises(TypeError, match="description must be a str, not int"):
        Agent("a").as_tool(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{}, {"task": 3}, {"task": " "}, {"task": "x", "model": "y"}], ids=str)
async def test_bad_arguments_are_told_to_the_model(arguments: dict[str, Any]) -> None:
    made = AgentTool(Agent("critic"), "Judges.", side_effecting=False)
    with pytest.raises(ValueError, match="task"):
        made.check(arguments)
    wc = WorkingContext()
    llm = FakeLLM().script([[ToolCall("c", "critic", arguments)], "done"])
    await outer(made).run("go", make_test_ctx(llm=llm), context=wc)
    assert (llm.calls, wc.messages[2].is_error) == (2, True)
