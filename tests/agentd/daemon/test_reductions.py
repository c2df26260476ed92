"""Reductions through the whole daemon: what stays under the window, what a summariser may not do, when none is made,
and what a restart remembers of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentd.context.record import Compaction, ContextState, Entry, Masking, NoteMsg, Pin
from agentd.runtime.daemon import Daemon
from agentd.runtime.events import Event
from agentd.runtime.reducing import Situation
from agentkit.core.contracts.errors import ContextOverflowError, PermanentError, TransientError
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.offers import canonical_tools
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.tokens import estimate_message_tokens
from agentkit.core.contracts.usage import Usage
from tests.agentd.daemon.house import House, Said, StrictLLM, answers, forever, log_of, results, texts, users
from tests.agentd.daemon.test_ends import at_once

pytestmark = pytest.mark.anyio
WINDOW, OUTPUT = 4_000, 200
SUMMARY = json.dumps({"facts": [{"text": "the summariser wrote this", "n": 1}], "narrative": "it went on"})


def house(**given: Any) -> House:
    """A small window, so that a few messages fill it."""
    small: dict[str, Any] = {"context__model_window": WINDOW, "intelligence__max_output": OUTPUT,
                             "context__keep_last": 4, "agent__tools__internal": "[context.recall]"}  # fmt: skip
    return House(**(small | given))


def size(request: ChatRequest) -> int:
    """Tokens of a request, as a provider would count them."""
    offered = sum(len(text) for text in canonical_tools(request.tools or ())) // 4
    return estimate_message_tokens(request.messages) + offered


class CountingLLM(StrictLLM):
    """Reports what a request really holds, refuses one over its window, and writes summaries as `summary` says."""

    def __init__(self, *turns: Said, window: int = WINDOW, summary: Said | Callable[[ChatRequest], Any] = SUMMARY,
                 answer: Callable[[ChatRequest], Said | Awaitable[Said]] | None = None) -> None:  # fmt: skip
        super().__init__(*turns, answer=answer)
        self.window, self.summary = window, summary
        self.sizes: list[int] = []
        self.refused = 0
        self.summaries: list[ChatRequest] = []

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        self.usage = Usage(size(request), 10)
        if size(request) > self.window:
            self.refused += 1
            raise ContextOverflowError(f"400: the maximum is {self.window} tokens", window=self.window)
        if request.response_format is not None:
            self.summaries.append(request)
            said = self.summary(request) if callable(self.summary) else self.summary
            if isinstance(said, Awaitable):
                said = await said
            if isinstance(said, BaseException):
                raise said
            if isinstance(said, LLMResult):
                return said
            return LLMResult(str(said), (), self.usage, "stop", request.model)
        self.sizes.append(size(request))
        return await super().chat(request)


def told(agent: Daemon, name: str) -> list[Event]:
    found = agent.events.since(0)
    assert isinstance(found, list)
    return [event for event in found if event.name == name]


def state(agent: Daemon, context: str = "c") -> ContextState:
    held = agent.contexts.get(context)
    assert held is not None
    return held.state


def folds(log: list[Entry]) -> list[Compaction]:
    return [entry.body for entry in log if isinstance(entry.body, Compaction)]


async def fill(agent: Daemon, turns: int, *, context: str = "c", words: int = 100) -> None:
    """So many turns, each with a message of about so many words."""
    for n in range(turns):
        task = await agent.ask(f"message {n}: {'lorem ' * words}", context=context)
        assert task.state == "completed", task.reason
    await agent.until_idle()


# Under the window


async def test_f22_a_context_of_notes_alone_stays_under_the_window() -> None:
    model = CountingLLM("done")
    async with house().life(model) as agent:
        for n in range(120):
            await agent.note(f"note {n}: {'something happened ' * 20}")
            await agent.until_idle()
            assert state(agent, "root").est_tokens < WINDOW * 0.75
        assert len(folds(await log_of(agent, "root"))) >= 2
        assert (await agent.ask("what is new?", context="root")).text == "done"
        assert "note 119" in texts(model.requests[-1])
        assert max(model.sizes) + OUTPUT <= WINDOW


async def test_f22_a_turn_of_300_rounds_is_reduced_between_them() -> None:
    own = house()

    async def look(asked: Any) -> str:
        return f"result {asked.arguments['n']}: {'found a thing or two ' * 8}"

    own.hands.do["look"] = look
    rounds: list[Said] = [[("look", {"n": n})] for n in range(300)]
    model = CountingLLM(*rounds, "done")
    async with own.life(model) as agent:
        task = await agent.ask("look at all of it, please: ORDER-17", context="c")
        assert (task.state, task.text, task.usage["rounds"]) == ("completed", "done", 301)
        log = await log_of(agent, "c")
        made = folds(log)
        assert len(made) > 5
        assert len(own.hands.calls) == 300
        assert all("ORDER-17" in texts(request) for request in model.requests), "the request in hand is always shown"
        assert {entry.turn for entry in log if entry.kind == "tool"} == {task.turn}
        assert max(model.sizes) + OUTPUT <= WINDOW


async def test_f24_a_prefix_near_the_window_gives_sizes_and_no_loop() -> None:
    """The instruction alone is over the trigger, and then over the window."""
    for words, state in ((2_600, "completed"), (9_000, "failed")):
        model = CountingLLM("done", window=100_000)
        own = house(agent__instruction="lorem " * words)
        async with own.life(model) as agent:
            task = await agent.ask("go", context="c")
            await agent.until_idle()
            assert task.state == state
            if state == "failed":
                assert task.reason.startswith("context_overflow: the request has about")
                assert "prompt " in task.reason
                assert told(agent, "context.overflow")[0].data["sizes"]["prompt"] > WINDOW
                assert model.requests == [], "a request over the window is never sent"
            else:
                declined = told(agent, "context.declined")[0]
                assert declined.data["reason"] == "prefix_too_large"
                assert "prompt " in declined.data["detail"]
            assert model.summaries == []
            assert folds(await log_of(agent, "c")) == []
            assert len(told(agent, "context.declined")) <= 3


# What a summariser may not do


RUBBISH: dict[str, Said | Callable[[ChatRequest], Any]] = {
    "calls a tool": LLMResult("", (ToolCall("x", "post", {"n": 1}),), Usage(10, 10), "tool_calls"),
    "answers rubbish": "RUBBISH and no JSON",
    "answers another form": '{"facts": "RUBBISH"}',
    "answers nothing": "",
    "is cut off": LLMResult('{"facts": [{"text": "RUBBISH', (), Usage(10, 10), "length"),
    "is refused": PermanentError("400: RUBBISH"),
    "is not reached": TransientError("503: RUBBISH"),
    "times out": TimeoutError("RUBBISH"),
    "loses its connection": ConnectionResetError("RUBBISH"),
    "raises anything": ZeroDivisionError("RUBBISH"),
}


@pytest.mark.parametrize("how", RUBBISH)
async def test_f29_a_summariser_that_fails_gives_a_degraded_summary_and_nothing_of_it_is_in_the_log(how: str) -> None:
    own = house()
    model = CountingLLM("done", summary=RUBBISH[how])
    async with own.life(model, sleep=at_once) as agent:
        await agent.ask("never touch FILE-88/path.py, that is a rule", context="c")
        await fill(agent, 20)
        assert model.summaries
        log = await log_of(agent, "c")
        assert folds(log)
        assert all(fold.degraded for fold in folds(log))
        assert "RUBBISH" not in "".join(map(repr, log))
        assert [entry.kind for entry in log if entry.kind in ("tool", "effect")] == []
        assert own.hands.names() == []
        assert all(event.data["degraded"] for event in told(agent, "context.reduced"))
        assert "FILE-88/path.py" in texts(model.requests[-1])
        assert agent.halted is None
        assert max(model.sizes) + OUTPUT <= WINDOW


async def test_f29_a_summariser_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    own = house()
    model = CountingLLM("done", summary=lambda request: forever())
    async with own.life(model) as agent:
        requests = agent.services.requests
        situation = requests.situation

        def hasty(*args: Any, **how: Any) -> Situation:
            return replace(situation(*args, **how), timeout=0.0)

        monkeypatch.setattr(requests, "situation", hasty)
        await fill(agent, 20)
        made = folds(await log_of(agent, "c"))
        assert made
        assert all(fold.degraded for fold in made)
        assert "no answer within 0 s" in told(agent, "context.reduced")[0].data["degraded"]
        assert agent.halted is None


async def test_a_summary_that_is_one_is_shown_and_no_degraded_one() -> None:
    model = CountingLLM("done")
    async with house().life(model) as agent:
        await fill(agent, 20)
        assert not any(fold.degraded for fold in folds(await log_of(agent, "c")))
        assert "the summariser wrote this" in texts(model.requests[-1])


class CachingLLM:
    """Behind an adapter, so that requests come as they are laid out, and behind a prompt cache, from which nine tenths
    of a request are read. `records`: requests for a summary at the end of the conversation; `summaries`: those of
    their own."""

    repairs = True

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []
        self.records: list[ChatRequest] = []
        self.summaries: list[ChatRequest] = []

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        whole, text = size(request), SUMMARY
        usage = Usage(whole // 10, 10, cache_read_tokens=whole - whole // 10)
        if request.response_format is not None:
            self.summaries.append(request)
        elif "asks for a record of the entries" in request.messages[-1].content:
            self.records.append(request)
        else:
            self.requests.append(request)
            text = "done"
        return LLMResult(text, (), usage, "stop", request.model)

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        result = await self.chat(request)
        yield Delta(result.text, result.tool_calls, result.usage, result.finish_reason)


@pytest.mark.parametrize(("model", "is_priced"), [("claude-sonnet-4-6", True), ("of-nobody", False)])
async def test_c13_a_summary_is_asked_for_at_the_end_of_the_conversation_that_the_cache_has(
    model: str, is_priced: bool
) -> None:
    """What the turn before was sent, its closing block left out, begins the request for the summary: the same objects,
    tools and options. Without a price nobody knows that it pays, and the entries are sent by themselves."""
    llm = CachingLLM()
    given = {"context__model_window": 20_000, "intelligence__model": model}
    async with house(**given).life(llm) as agent:
        await fill(agent, 16, words=1_000)
        assert folds(await log_of(agent, "c"))
        assert "the summariser wrote this" in texts(llm.requests[-1])
    assert bool(llm.records) is is_priced
    assert bool(llm.summaries) is not is_priced
    for record in llm.records:
        sent = next(one for one in llm.requests if one.messages[1:3] == record.messages[1:3])
        assert record.messages[0] is sent.messages[0]
        assert (record.tools, record.options, record.model) == (sent.tools, sent.options, sent.model)
        assert record.response_format is None
        before = [one for one in llm.requests if len(one.messages) <= len(record.messages)]
        shared = max(_common(one, record) for one in before)
        assert shared >= len(record.messages) - 3, "all but the latest answer and the instruction was sent before"


def _common(one: ChatRequest, other: ChatRequest) -> int:
    pairs = zip(one.messages, other.messages, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a is not b), len(one.messages))


# Which window


async def test_f30_a_refusal_for_length_teaches_the_window_and_the_turn_goes_on() -> None:
    """The catalogue knows nothing of the model, which takes less than is assumed of it."""
    own = house(context__model_window="null")
    model = CountingLLM("done", window=6_000)
    async with own.life(model) as agent:
        await fill(agent, 60)
        status = await agent.command("status", context="c")
        assert (status["window"], status["window_source"]) == (6_000, "learned")
        assert model.refused == 1, "it is told once"
        assert len(await users(agent, "c")) == 60
        assert folds(await log_of(agent, "c"))


async def test_f30_a_smaller_model_reduces_old_contexts_at_their_next_turn() -> None:
    own = house(context__model_window=40_000)
    async with own.life(CountingLLM("done", window=40_000)) as agent:
        await fill(agent, 40)
        assert folds(await log_of(agent, "c")) == []
    model = CountingLLM("done")
    async with own.life(model, given={"context__model_window": WINDOW}) as agent:
        assert (await agent.ask("go on", context="c")).text == "done"
        assert folds(await log_of(agent, "c"))
        assert max(model.sizes) + OUTPUT <= WINDOW
        assert len(model.sizes) == 1


async def test_f30_a_configured_window_beats_the_catalogue() -> None:
    own = house(intelligence__model="claude-sonnet-4-5", context__model_window="null")
    async with own.life(CountingLLM("done", window=40_000)) as agent:
        await agent.ask("go", context="c")
        told_by = await agent.command("status", context="c")
        assert told_by["window_source"] == "catalogue"
    async with own.life(CountingLLM("done"), given={"context__model_window": WINDOW}) as agent:
        await agent.ask("go", context="c")
        told_by = await agent.command("status", context="c")
        assert (told_by["window"], told_by["window_source"]) == (WINDOW, "declared")


async def test_f27_a_history_just_over_the_window_when_first_looked_at_is_summarised_in_parts_and_kept_whole() -> None:
    own = house(context__model_window=40_000)
    async with own.life(CountingLLM("done", window=40_000)) as agent:
        while (held := agent.contexts.get("c")) is None or held.state.est_tokens < WINDOW * 1.02:
            await fill(agent, 1)
        before = await log_of(agent, "c")
    model = CountingLLM("done")
    async with own.life(model, given={"context__model_window": WINDOW}) as agent:
        assert (await agent.ask("go on", context="c")).text == "done"
        assert len(model.summaries) > 1, "one request would not have held it"
        assert (await log_of(agent, "c"))[: len(before)] == before
        (made,) = folds(await log_of(agent, "c"))
        assert not made.degraded
        assert max(model.sizes) + OUTPUT <= WINDOW


# When none is made


async def test_f26_usage_from_before_a_reduction_triggers_nothing_and_a_second_one_is_declined() -> None:
    model = CountingLLM("done")
    async with house().life(model) as agent:
        await fill(agent, 12)
        assert state(agent).anchor is not None
        first = await agent.command("context.compact", context="c")
        assert first["folded"] > 0
        assert state(agent).anchor is None, "what was reported before counts for nothing"
        second = await agent.command("context.compact", context="c")
        assert (second["folded"], second["version"]) == (0, first["version"])
        assert second["declined"] in ("nothing_to_fold", "no_progress", "below_trigger")
        made = len(folds(await log_of(agent, "c")))
        await fill(agent, 1, words=5)
        assert len(folds(await log_of(agent, "c"))) == made


async def test_f25_a_compaction_that_wins_too_little_is_not_applied_and_the_breaker_outlives_a_restart() -> None:
    own = house(context__min_gain=0.95)
    model = CountingLLM("done")
    async with own.life(model) as agent:
        turns = 0
        while not told(agent, "context.breaker"):
            turns += 1
            assert turns < 60
            await fill(agent, 1)
        reasons = [event.data["reason"] for event in told(agent, "context.declined")]
        assert reasons.count("no_progress") == 3
        assert [fold for fold in folds(await log_of(agent, "c")) if fold.tier == 4] == []
        opened = state(agent).breaker
        assert (opened.failures, opened.window) == (3, WINDOW)
        asked = len(model.summaries)
    async with own.life(model) as agent:
        await fill(agent, 2)
        assert state(agent).breaker == opened
        assert len(model.summaries) == asked, "no summary is paid for"
        assert "breaker_open" in {event.data["reason"] for event in told(agent, "context.declined")}
        assert max(model.sizes) + OUTPUT <= WINDOW, "the guard goes on"
        await agent.command("context.compact", context="c")
        assert len(model.summaries) > asked, "an explicit one is tried"


async def test_f28_a_summary_is_stale_once_an_entry_that_it_folds_was_pinned() -> None:
    model = CountingLLM("done")
    async with house().life(model) as agent:
        await fill(agent, 12)
        held = agent.contexts.get("c")
        assert held is not None
        first = held

        def pinned_meanwhile(request: ChatRequest) -> str:
            first.append(Pin(1), now=1)
            return SUMMARY

        model.summary = pinned_meanwhile
        version, log = held.state.version, folds(await log_of(agent, "c"))
        told_stale = await agent.command("context.compact", context="c")
        assert (told_stale["declined"], told_stale["version"]) == ("stale", version)
        assert folds(await log_of(agent, "c")) == log
        model.summary = SUMMARY
        assert (await agent.command("context.compact", context="c"))["folded"] > 0
        await fill(agent, 1)
        assert "message 0:" in texts(model.requests[-1]), "what is pinned stays"


async def test_f28_entries_that_come_while_a_summary_is_written_do_no_harm_and_are_not_folded() -> None:
    model = CountingLLM("done")
    async with house().life(model) as agent:
        await fill(agent, 12)
        held = agent.contexts.get("c")
        assert held is not None
        first = held

        def noted_meanwhile(request: ChatRequest) -> str:
            first.append(NoteMsg("it arrived meanwhile"), now=1)
            return SUMMARY

        model.summary = noted_meanwhile
        made = await agent.command("context.compact", context="c")
        assert "declined" not in made
        assert made["folded"] > 0
        await fill(agent, 1)
        assert "it arrived meanwhile" in texts(model.requests[-1])


# What was masked or folded


async def test_f31_masked_results_are_had_back_by_recall_and_the_current_round_is_spared() -> None:
    own = house(context__mask__keep_rounds=1, context__mask__min_gain=200)

    async def look(asked: Any) -> dict[str, Any]:
        n = asked.arguments["n"]
        return {"n": n, "text": f"secret-{n} " + "lorem ipsum " * 60}

    own.hands.do["look"] = look
    rounds: list[Said] = [[("look", {"n": n})] for n in range(20)]
    model = CountingLLM(*rounds, "done")
    async with own.life(model) as agent:
        task = await agent.ask("look", context="c")
        assert task.state == "completed", task.reason
        log = await log_of(agent, "c")
        marks = [entry.body for entry in log if isinstance(entry.body, Masking) and entry.body.how == "masked"]
        assert marks
        for n, request in enumerate(model.requests[1:]):
            assert f"secret-{n} " in texts(request), "the newest result is always whole"
        masked = sorted({n for mark in marks for n in mark.entries})
        wanted = masked[0]
        whole = next(entry.body.content for entry in log if entry.n == wanted)
        again = CountingLLM([("context.recall", {"entries": str(wanted)})], "done")
    async with own.life(again) as agent:
        assert (await agent.ask("recall it", context="c")).text == "done"
        assert whole["text"].strip() in texts(again.requests[-1])
        assert not (await results(agent, "c"))[-1].is_error


async def test_f33_each_request_is_answered_once_whatever_was_folded_in_front_of_it() -> None:
    """The model answers the newest message of a person that it is shown, also in a later life."""

    def newest(request: ChatRequest) -> str:
        found = [m.content for m in request.messages if m.role == "user" and m.content.startswith("message ")]
        return f"re: {found[-1].split(':')[0]}"

    own = house()
    for life in range(2):
        model = CountingLLM(answer=newest)
        async with own.life(model) as agent:
            for n in range(life * 15, life * 15 + 15):
                assert (await agent.ask(f"message {n}: {'lorem ' * 100}", context="c")).text == f"re: message {n}"
            await agent.until_idle()
            assert await answers(agent, "c") == [f"re: message {n}" for n in range(life * 15 + 15)]
            assert len(folds(await log_of(agent, "c"))) > life
            numbers = [entry.n for entry in await log_of(agent, "c") if entry.kind == "user"]
            assert state(agent).handled == numbers[-1]
