"""The tool loop: rounds, results in order, ends, and what is left behind when it is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from agentkit.agents import (
    Agent,
    MaxCost,
    MaxTokens,
    ReActCognition,
    RequestBuilder,
    Step,
    TextMatches,
    ToolCalled,
    ToolResult,
    deliver_result,
    tool,
)
from agentkit.core.contracts.messages import marked
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.types import ImageBlock, LLMResult, Message, ToolCall, Usage
from agentkit.core.contracts.validity import check
from agentkit.core.runtime import Budget, RunContext
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.context import WorkingContext

pytestmark = pytest.mark.anyio


def calls(*named: tuple[str, str, dict[str, Any]], text: str = "") -> LLMResult:
    return LLMResult(text, tuple(ToolCall(*given) for given in named), Usage(10, 5, 0.0001))


@tool(side_effecting=False)
async def look(what: str) -> str:
    """Look at something."""
    await asyncio.sleep(0)
    return f"saw {what}"


@tool(side_effecting=True)
def write(text: str) -> dict[str, int]:
    """Write something down."""
    return {"written": len(text)}


@tool(side_effecting=False)
def fail(reason: str) -> str:
    raise RuntimeError(reason)


def agent(*turns: Any, tools: Any = (look, write, fail), **options: Any) -> tuple[Agent, FakeLLM]:
    kept = {k: options.pop(k) for k in ("prompt", "parse", "output", "max_repairs", "hooks") if k in options}
    llm = FakeLLM(validate=check if options.pop("strict", True) else None).script(turns)
    return Agent("a", "fake", cognition=ReActCognition(tools, **options), **kept), llm


async def test_model_and_tools_in_turn() -> None:
    worker, llm = agent(calls(("c1", "look", {"what": "door"}), text="Let me see."), "It is open.", prompt="Be brief.")
    wc = WorkingContext()
    result = await worker.run("door?", make_test_ctx(llm=llm), context=wc)
    assert (result.output, result.partial, result.reason, result.usage) == (
        "It is open.",
        False,
        None,
        Usage(20, 10, 0.0002),
    )
    assert [(m.role, m.content) for m in wc.messages] == [
        ("user", "door?"), ("assistant", "Let me see."), ("tool", "saw door"), ("assistant", "It is open."),
    ]  # fmt: skip
    assert llm.requests[1].messages[: len(llm.requests[0].messages)] == llm.requests[0].messages
    assert [t.name for t in llm.requests[0].tools or ()] == ["fail", "look", "write"]


async def test_events_are_of_the_closed_list_and_in_order() -> None:
    worker, llm = agent(calls(("c1", "look", {"what": "x"})), "done")
    events = [event async for event in worker.stream("go", make_test_ctx(llm=llm))]
    assert [e.kind for e in events] == ["tool_call", "tool_result", "step", "message_delta", "final"]
    assert events[0].data == ToolCall("c1", "look", {"what": "x"})
    assert events[1].data.content == events[1].text == "saw x"
    assert events[2].data == {"iteration": 1}


@pytest.mark.parametrize("parallel", ["all", "read_only"])
async def test_results_stand_in_call_order(parallel: str) -> None:
    order: list[str] = []
    first_may_end = asyncio.Event()

    @tool(side_effecting=False)
    async def slow() -> str:
        await first_may_end.wait()
        order.append("slow")
        return "slow"

    @tool(side_effecting=False)
    async def quick() -> str:
        order.append("quick")
        first_may_end.set()
        return "quick"

    worker, llm = agent(calls(("1", "slow", {}), ("2", "quick", {})), "ok", tools=[slow, quick], parallel=parallel)
    wc = WorkingContext()
    events = [e async for e in worker.stream("go", make_test_ctx(llm=llm), context=wc)]
    assert order == ["quick", "slow"]
    assert [m.content for m in wc.messages[2:4]] == ["slow", "quick"]
    assert [e.text for e in events if e.kind == "tool_result"] == ["slow", "quick"]


async def test_read_only_runs_one_after_another_with_side_effects() -> None:
    running: list[str] = []
    seen: list[int] = []

    def body(name: str) -> Callable[[], Any]:
        async def run() -> str:
            running.append(name)
            await asyncio.sleep(0)
            seen.append(len(running))
            running.remove(name)
            return name

        return run

    for parallel, most in (("all", 2), ("read_only", 1)):
        seen.clear()
        tools = [
            tool(side_effecting=True, name="act")(body("act")),
            tool(side_effecting=False, name="see")(body("see")),
        ]
        worker, llm = agent(calls(("1", "act", {}), ("2", "see", {})), "ok", tools=tools, parallel=parallel)
        await worker.run("go", make_test_ctx(llm=llm))
        assert max(seen) == most


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("c", "nope", {}), "There is no tool named 'nope'. Known: fail, look, write."),
        (("c", "look", {}), "The arguments of look are not valid: missing: what."),
        (("c", "look", "{broken"), "The arguments of look are no JSON object. Call it again with a JSON object."),
        (("c", "look", {"what": 5}), "The arguments of look are not valid: what: expected a string, got 5."),
        (("c", "fail", {"reason": "no paper"}), "RuntimeError: no paper"),
    ],
)
async def test_what_goes_wrong_is_told_to_the_model(call: Any, told: str) -> None:
    worker, llm = agent(calls(call), "sorry", strict=False)
    wc = WorkingContext()
    assert (await worker.run("go", make_test_ctx(llm=llm), context=wc)).output == "sorry"
    assert (wc.messages[2].content, wc.messages[2].is_error) == (told, True)


async def test_value_without_a_form_is_an_error_result() -> None:
    @tool(side_effecting=False)
    def odd() -> object:
        return object()

    worker, llm = agent(calls(("c", "odd", {})), "ok", tools=[odd])
    wc = WorkingContext()
    await worker.run("go", make_test_ctx(llm=llm), context=wc)
    assert "a object has no form in JSON" in wc.messages[2].content


async def test_odd_exceptions_of_tools_end_no_run() -> None:
    """`next` of nothing in a thread, which no future can carry, and an exception that has no text."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    @tool(side_effecting=False)
    def first() -> str:
        return next(iter(()))

    @tool(side_effecting=False)
    async def odd() -> str:
        raise Odd

    worker, llm = agent(calls(("1", "first", {}), ("2", "odd", {})), "ok", tools=[first, odd])
    wc = WorkingContext()
    async with asyncio.timeout(5):
        assert (await worker.run("go", make_test_ctx(llm=llm), context=wc)).output == "ok"
    assert [m.content for m in wc.messages[2:4]] == ["RuntimeError: StopIteration was raised by the function", "Odd"]


async def test_base_exceptions_pass_and_leave_a_valid_transcript() -> None:
    class Halt(BaseException):
        pass

    @tool(side_effecting=True)
    async def halt() -> str:
        raise Halt

    @tool(side_effecting=True)
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    worker, llm = agent(calls(("1", "halt", {}), ("2", "never", {})), tools=[halt, never])
    wc = WorkingContext()
    with pytest.raises(Halt):
        await worker.run("go", make_test_ctx(llm=llm), context=wc)
    assert check(wc.messages) == ()
    assert [marked(m, "synthetic") is not None for m in wc.messages[2:]] == [True, True]


async def test_ceiling_is_partial_with_the_last_text() -> None:
    rounds = [calls((f"c{n}", "look", {"what": "x"}), text="thinking") for n in range(5)]
    worker, llm = agent(*rounds, max_iterations=3)
    wc = WorkingContext()
    result = await worker.run("go", make_test_ctx(llm=llm), context=wc)
    assert (result.output, result.partial, result.reason, llm.calls) == ("thinking", True, "exhausted_steps", 3)
    assert check(wc.messages) == ()


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (MaxCost(0.00015), "cost: 0.000200 of 0.000150 USD"),
        (MaxTokens(30), "tokens: 30 of 30"),
        (ToolCalled("write"), "tool called: write"),
        (TextMatches("ENOUGH$"), "text matches: ENOUGH$"),
        ([lambda step: None, lambda step: "counted" if step.number == 2 else None], "counted"),
    ],
)
async def test_stop_conditions_end_a_run(condition: Any, reason: str) -> None:
    worker, llm = agent(
        calls(("1", "look", {"what": "x"})), calls(("2", "write", {"text": "x"}), text="ENOUGH"), stop=condition
    )
    wc = WorkingContext()
    result = await worker.run("go", make_test_ctx(llm=llm), context=wc)
    assert (result.reason, result.partial, result.output, llm.calls) == (reason, False, "ENOUGH", 2)
    last = wc.messages[-1]
    assert (last.content, last.tool_call_id) == (f"This call was not run: the run stopped ({reason}).", "2")
    assert marked(last, "synthetic") is not None
    assert check(wc.messages) == ()


async def test_stop_conditions_are_copied_for_each_run() -> None:
    class Second:
        def __init__(self) -> None:
            self.seen = 0

        def __call__(self, step: Step) -> str | None:
            self.seen += 1
            return "second" if self.seen == 2 else None

    condition = Second()
    for _ in range(2):
        worker, llm = agent(calls(("1", "look", {"what": "x"})), stop=condition)
        assert (await worker.run("go", make_test_ctx(llm=llm))).reason == "second"
        assert llm.calls == 2
    assert condition.seen == 0


async def test_failing_stop_condition_answers_every_call_too() -> None:
    def bad(step: Step) -> str | None:
        raise ZeroDivisionError

    worker, llm = agent(calls(("1", "write", {"text": "x"})), stop=bad)
    wc = WorkingContext()
    with pytest.raises(ZeroDivisionError):
        await worker.run("go", make_test_ctx(llm=llm), context=wc)
    assert wc.messages[-1].content == "This call was not run: the run failed (ZeroDivisionError)."
    assert check(wc.messages) == ()


async def test_cancelled_run_answers_every_call_and_stays_cancelled() -> None:
    """W9, P4."""
    started = asyncio.Event()

    @tool(side_effecting=True)
    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    worker, llm = agent(calls(("1", "look", {"what": "x"}), ("2", "hang", {})), tools=[look, hang])
    wc = WorkingContext()
    task = asyncio.create_task(worker.run("go", make_test_ctx(llm=llm), context=wc))
    await started.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [m.content for m in wc.messages[2:]] == [
        "saw x",
        "It is not known whether this call took effect: the run was cancelled. It was not run again. Look before you "
        "repeat it.",
    ]
    assert check(wc.messages) == ()


async def test_leaving_a_stream_answers_every_call() -> None:
    worker, llm = agent(calls(("1", "look", {"what": "x"}), ("2", "write", {"text": "y"})))
    for kind in ("tool_call", "tool_result", "step"):
        llm.script([calls(("1", "look", {"what": "x"}), ("2", "write", {"text": "y"}))])
        wc = WorkingContext()
        async with aclosing(worker.stream("go", make_test_ctx(llm=llm), context=wc)) as events:
            async for event in events:
                if event.kind == kind:
                    break
        assert check(wc.messages) == ()
        assert [m.tool_call_id for m in wc.messages if m.role == "tool"] == ["1", "2"]


async def test_run_asked_to_stop_runs_no_more_tools() -> None:
    class Flag:
        on = False

        def is_set(self) -> bool:
            return self.on

    flag, wc = Flag(), WorkingContext()
    worker, llm = agent(calls(("1", "write", {"text": "x"})))
    ctx = make_test_ctx(llm=llm, cancel=flag)

    async def go() -> None:
        async for event in worker.stream("go", ctx, context=wc):
            flag.on = event.kind == "tool_call"

    with pytest.raises(asyncio.CancelledError):
        await go()
    assert wc.messages[-1].content == "This call was not run: the run was cancelled."


async def test_calls_without_ids_get_some() -> None:
    """P7."""
    worker, llm = agent(calls(("", "look", {"what": "a"}), ("", "look", {"what": "b"})), "ok")
    wc = WorkingContext()
    await worker.run("go", make_test_ctx(llm=llm), context=wc)
    assert [m.tool_call_id for m in wc.messages[2:4]] == ["call-1-0", "call-1-1"]
    assert [m.content for m in wc.messages[2:4]] == ["saw a", "saw b"]


async def test_one_id_in_every_round_is_no_trouble() -> None:
    """P7."""
    worker, llm = agent(*[calls(("c", "look", {"what": str(n)})) for n in range(3)], "ok", strict=False)
    wc = WorkingContext()
    assert (await worker.run("go", make_test_ctx(llm=llm), context=wc)).output == "ok"
    assert [m.content for m in wc.messages if m.role == "tool"] == ["saw 0", "saw 1", "saw 2"]


async def test_answer_without_calls_is_read_and_repaired() -> None:
    worker, llm = agent(calls(("1", "look", {"what": "x"})), "no number", "42", parse=int)
    events = [e async for e in worker.stream("go", make_test_ctx(llm=llm))]
    assert (events[-1].data.parsed, events[-1].data.partial) == (42, False)
    assert [e.data for e in events if e.kind == "step"] == [{"iteration": 1}, {"repair": 1}]
    worker, llm = agent("no number", parse=int, max_repairs=2)
    result = await worker.run("go", make_test_ctx(llm=llm))
    assert (result.reason, result.partial, llm.calls) == ("invalid_output", True, 3)
    worker, llm = agent("no number", parse=int, max_repairs=9, max_iterations=2)
    assert (await worker.run("go", make_test_ctx(llm=llm))).reason == "invalid_output"


async def test_tool_sees_the_run_and_not_the_model() -> None:
    seen: list[RunContext] = []

    @tool(side_effecting=False)
    async def who(ctx: Ctx, also: RunContext, name: str = "x") -> str:
        seen.append(also)
        assert ctx is also
        return "me"

    assert list(who.parameters["properties"]) == ["name"]
    turns = [calls(("c", "who", {"ctx": "evil"})), calls(("c", "who", {})), "ok"]
    worker, llm = agent(*turns, tools=[who], strict=False)
    ctx, wc = make_test_ctx(llm=llm), WorkingContext()
    await worker.run("go", ctx, context=wc)
    assert wc.messages[2].content == "The arguments of who are not valid: unknown: ctx (known: name)."
    assert (seen[0].scope, seen[0].path) == (ctx.scope, "/2.0")


async def test_rich_results() -> None:
    @tool(side_effecting=False)
    def picture() -> ToolResult:
        return ToolResult("a plot", (ImageBlock(b"png", "image/png"),))

    @tool(side_effecting=False)
    def later() -> ToolResult:
        return ToolResult("still running", pending=True)

    worker, llm = agent(calls(("1", "picture", {}), ("2", "later", {})), "ok", tools=[picture, later], strict=False)
    wc = WorkingContext()
    await worker.run("go", make_test_ctx(llm=llm), context=wc)
    assert (wc.messages[2].content, len(wc.messages[2].blocks)) == ("a plot", 2)
    assert marked(wc.messages[3], "pending") is not None


async def test_tool_loop_works_with_another_builder() -> None:
    built = RequestBuilder("p")
    worker = Agent("a", cognition=ReActCognition([look]), request_builder=built)
    llm = FakeLLM().script([calls(("1", "look", {"what": "x"})), "ok"])
    assert (await worker.run("go", make_test_ctx(llm=llm))).output == "ok"
    assert [m.role for m in llm.requests[1].messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"tools": [look, look]}, ValueError, "two tools are named 'look'"),
        ({"tools": [print]}, TypeError, r"tools\[0\] must be a Tool.*@tool"),
        ({"tools": [], "max_iterations": 0}, ValueError, "max_iterations"),
        ({"tools": [], "max_iterations": True}, TypeError, "max_iterations"),
        ({"tools": [], "parallel": "some"}, ValueError, "parallel"),
        ({"tools": [], "stop": 5}, TypeError, "stop condition"),
        ({"tools": [], "checkpointer": 5}, TypeError, "checkpointer"),
    ],
)
def test_bad_settings_are_named(options: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        ReActCognition(**options)


async def test_late_result_of_an_interim_one() -> None:
    wc = WorkingContext(messages=[
        Message("user", "go"), Message("assistant", tool_calls=[ToolCall("1", "job")]),
    ])  # fmt: skip
    assert marked(deliver_result(wc, "1", ToolResult("wait", pending=True)), "late") is None
    wc.record_usage(Usage(), layout=wc.segments())
    assert marked(deliver_result(wc, "1", {"n": 1}), "late") is not None
    assert check(wc.messages)[0].code == "late"
    with pytest.raises(ValueError, match="has its result already"):
        deliver_result(wc, "1", "again")
    with pytest.raises(LookupError):
        deliver_result(wc, "2", "x")


@pytest.mark.parametrize("permits", [1, 2, 8])
async def test_agents_inside_tools_of_agents_finish_with_any_number_of_permits(permits: int) -> None:
    """Only leaf work holds a permit: eight agents, each with a tool that asks another agent."""
    inner = Agent("inner", cognition=ReActCognition([look]))

    @tool(side_effecting=False)
    async def ask(task: str, ctx: RunContext) -> str:
        return (await inner.run(task, ctx.child())).output

    outer = Agent("outer", cognition=ReActCognition([ask]))

    def answer(system: str, user: str, model: str | None) -> Any:
        seen = [message.role for message in llm.requests[-1].messages]
        if "tool" in seen:
            return f"{user} done"
        name = "look" if user.startswith("sub") else "ask"
        arguments = [{"what": "x"}] if name == "look" else [{"task": f"sub {n}"} for n in range(2)]
        return calls(*[(f"c{n}", name, given) for n, given in enumerate(arguments)])

    llm = FakeLLM(answer)
    budget = Budget(max_concurrency=permits)
    runs = [outer.run(f"task {n}", make_test_ctx(llm=llm, budget=budget)) for n in range(8)]
    results = await asyncio.wait_for(asyncio.gather(*runs), 20)
    assert [result.output for result in results] == [f"task {n} done" for n in range(8)]
    assert budget.calls == llm.calls == 8 * (2 + 2 * 2)
    assert budget.spent.cost_usd == pytest.approx(8 * (3 * 0.0001 + 3 * 0.0001))
