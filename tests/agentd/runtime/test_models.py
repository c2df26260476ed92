"""The daemon's model: endpoints in order, pauses, time limits, cut streams, and what the dialects open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config import Settings, load
from agentd.runtime.models import Backoff, Endpoint, Failure, Models, Route, Unreachable, models_of, open_models
from agentd.runtime.replayed import replayed_tools
from agentd.runtime.tools.base import Invocation, ToolError
from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    FormatError,
    PermanentError,
    TransientError,
)
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.models.testing import ScriptedLLM
from agentkit.transcripts import load as load_transcripts
from tests.transcripts.samples import FOLDER

pytestmark = pytest.mark.anyio

ASKED = ChatRequest((Message("user", "hi"),), "main")
SAMPLE = FOLDER / "langchain" / "thread-small.json"
NAMES = ("present_files", "read_file", "write_file")


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def models(*scripts: Any, clock: Clock | None = None, timeout: float = 5.0, **how: Any) -> Models:
    """Models whose endpoints e0, e1 ... follow these scripts."""
    clock = clock or Clock()
    made = [Endpoint(f"e{n}", f"m{n}", s if hasattr(s, "chat") else ScriptedLLM(s)) for n, s in enumerate(scripts)]
    return Models(
        made, timeout=timeout, default_model="main", max_output=77, sleep=clock.sleep, random=lambda: 0.0, clock=clock,
        **how,
    )  # fmt: skip


def script_of(found: Models, at: int) -> ScriptedLLM:
    llm = found.endpoints[at].llm
    assert isinstance(llm, ScriptedLLM)
    return llm


class Silent:
    """A model that never answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_asked = asyncio.Event()

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        self.asked += 1
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        yield Delta((await self.chat(request)).text)


# Order, pauses, tries


async def test_first_endpoint_answers() -> None:
    found = models(["one"], ["two"])
    result = await found.chat(ASKED)
    assert (result.text, result.model) == ("one", "m0")
    assert script_of(found, 1).requests == []


async def test_each_endpoint_is_asked_for_its_own_model() -> None:
    found = models(["one", "two"])
    await found.chat(ASKED)
    await found.chat(ChatRequest(ASKED.messages, "summariser", max_tokens=5, temperature=0.5))
    first, second = script_of(found, 0).requests
    assert (first.model, first.max_tokens, first.temperature) == ("m0", 77, 0.0)
    assert (second.model, second.max_tokens, second.temperature) == ("summariser", 5, 0.5)


async def test_passing_fault_is_tried_again_after_growing_pauses() -> None:
    clock = Clock()
    found = models([{"error": "transient", "times": 2, "text": "fine"}], clock=clock)
    assert (await found.chat(ASKED)).text == "fine"
    assert clock.slept == [0.5, 1.0]


async def test_endpoint_that_stays_down_gives_way_to_the_next() -> None:
    clock, heard = Clock(), list[Failure]()
    down = {"turns": [{"error": "transient"}], "repeat": True}
    found = models(down, ["two"], clock=clock, told=heard.append)
    assert (await found.chat(ASKED)).text == "two"
    assert [(one.endpoint, one.wait) for one in heard] == [("e0", 0.5), ("e0", 1.0), ("e0", 0.0)]
    assert "503" in heard[0].reason


async def test_endpoint_that_was_given_up_is_asked_last_for_a_while() -> None:
    clock = Clock()
    down = {"rules": [{"when": "hi", "error": "transient", "times": 3, "text": "back"}]}
    found = models(down, {"turns": "two", "repeat": True}, clock=clock)
    assert (await found.chat(ASKED)).text == "two"
    asked = len(script_of(found, 0).requests)
    assert (await found.chat(ASKED)).text == "two"
    assert len(script_of(found, 0).requests) == asked
    assert [one["resting"] for one in found.status()] == [True, False]
    clock.now += 31
    assert (await found.chat(ASKED)).text == "back"
    assert [one["answered"] for one in found.status()] == [1, 2]


async def test_no_endpoint_reached_is_told_and_counted() -> None:
    """What lets a turn end as failed with exit code 4."""
    down = {"turns": [{"error": "transient"}], "repeat": True}
    found = models(down, down)
    with pytest.raises(Unreachable, match=r"no model could be reached at e0, e1; last: 503"):
        await found.chat(ASKED)
    assert found.unreachable == 1
    assert [len(script_of(found, at).requests) for at in (0, 1)] == [3, 3]


@pytest.mark.parametrize(("kind", "error"), [("auth", AuthError), ("permanent", PermanentError)])
async def test_refusal_is_the_answer_and_is_tried_nowhere_else(kind: str, error: type[Exception]) -> None:
    clock = Clock()
    found = models([{"error": kind}], ["two"], clock=clock)
    with pytest.raises(error):
        await found.chat(ASKED)
    assert script_of(found, 1).requests == []
    assert (clock.slept, found.unreachable) == ([], 0)


async def test_f30_refusal_for_length_passes_with_its_window() -> None:
    found = models({"window": 3, "turns": "one"}, ["two"])
    with pytest.raises(ContextOverflowError) as refused:
        await found.chat(ASKED)
    assert refused.value.window == 3
    assert script_of(found, 1).requests == []


async def test_model_that_does_not_answer_in_time_gives_way_at_once() -> None:
    clock, silent = Clock(), Silent()
    found = models(silent, ["two"], clock=clock, timeout=0.01)
    assert (await found.chat(ASKED)).text == "two"
    assert (silent.asked, clock.slept) == (1, [])


async def test_only_model_that_does_not_answer_in_time_is_tried_again() -> None:
    silent, heard = Silent(), list[Failure]()
    found = models(silent, timeout=0.01, told=heard.append)
    with pytest.raises(Unreachable, match="no answer in time"):
        await found.chat(ASKED)
    assert silent.asked == 3
    assert heard[-1].wait is None


async def test_connection_that_breaks_is_tried_again() -> None:
    class Broken(ScriptedLLM):
        async def chat(self, request: ChatRequest, /) -> LLMResult:
            if len(self.received) == 0:
                self._note(request, "broken")
                raise ConnectionResetError("reset")
            return await super().chat(request)

    assert (await models(Broken(["fine"])).chat(ASKED)).text == "fine"


async def test_cancelling_a_call_ends_it() -> None:
    silent = Silent()
    call = asyncio.create_task(models(silent).chat(ASKED))
    await silent.is_asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert silent.asked == 1


# Cut streams


@pytest.mark.parametrize("fault", [{}, {"error": "transient"}])
async def test_f29_answer_that_was_cut_off_is_asked_for_again_whole(fault: dict[str, Any]) -> None:
    """It leaves nothing behind, whether the stream just ended or broke."""
    found = models([{"text": "a long answer", "cut": 3, **fault}, "whole"])
    assert (await found.chat(ASKED)).text == "whole"


async def test_answer_that_is_always_cut_off_is_no_answer() -> None:
    found = models({"turns": {"text": "a long answer", "cut": 3}, "repeat": True})
    with pytest.raises(TransientError, match="cut off"):
        await found.chat(ASKED)


async def test_stream_passes_the_pieces_on() -> None:
    found = models(["x" * 200])
    pieces = [delta async for delta in found.stream(ASKED)]
    assert "".join(delta.text for delta in pieces) == "x" * 200
    assert pieces[-1].finish_reason == "stop"
    assert script_of(found, 0).requests[0].model == "m0"


async def test_stream_is_tried_again_before_its_first_piece() -> None:
    clock = Clock()
    found = models([{"error": "transient", "times": 1, "text": "fine"}], clock=clock)
    assert [delta.text async for delta in found.stream(ASKED)] == ["fine", ""]
    assert clock.slept == [0.5]


@pytest.mark.parametrize("fault", [{}, {"error": "transient"}])
async def test_stream_that_is_cut_off_raises(fault: dict[str, Any]) -> None:
    heard = list[Failure]()
    found = models([{"text": "a long answer", "cut": 3, **fault}, "whole"], told=heard.append)
    stream = found.stream(ASKED)
    assert (await anext(stream)).text == "a l"
    with pytest.raises(TransientError):
        await anext(stream)
    assert len(heard) == 1


async def test_stream_without_an_answer_in_time_gives_way() -> None:
    found = models(Silent(), ["two"], timeout=0.01)
    assert "".join([delta.text async for delta in found.stream(ASKED)]) == "two"


# Decisions


@given(st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_pause_grows_to_its_limit_and_chance_takes_half_at_most(failed: int, share: float) -> None:
    backoff = Backoff()
    whole = backoff.pause(failed, 0.0)
    assert whole == min(0.5 * 2 ** (failed - 1), 30.0)
    assert whole / 2 <= backoff.pause(failed, share) <= whole


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.booleans(), max_size=40))
def test_route_asks_each_endpoint_a_bounded_number_of_times_in_order(
    endpoints: int, tries: int, timeouts: list[bool]
) -> None:
    route = Route(range(endpoints), Backoff(tries))
    asked = [route.here]
    for timed_out in timeouts:
        if route.after_failure(timed_out=timed_out, share=0.0) is None:
            break
        asked.append(route.here)
    assert asked == sorted(asked)
    assert max(asked.count(one) for one in asked) <= tries
    assert len(timeouts) < endpoints * tries or asked[-1] == endpoints - 1


def test_models_without_an_endpoint_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one endpoint"):
        Models([], timeout=1, default_model="m")
    with pytest.raises(ValueError, match="tries must be at least 1"):
        Backoff(0)


# What the settings open


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """Settings over these endpoints."""

    def made(*endpoints: str, **flags: str) -> Settings:
        path = tmp_path / "agent.yaml"
        thinking = {"endpoints": list(endpoints), "model": "m"}
        path.write_text(json.dumps({"agent": {"name": "t"}, "intelligence": thinking}))
        return load([path], environ={}, flags=[(f"intelligence.{key}", value) for key, value in flags.items()])

    return made


async def test_replay_answers_from_a_recording(settings: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_bytes(SAMPLE.read_bytes())
    found = open_models(settings("replay:talk.json", timeout="3s"), folder=tmp_path)
    history = [Message("user", "nobody ever said this")]
    with pytest.raises(PermanentError, match="the recording has no answer"):
        await found.chat(ChatRequest(tuple(history), "m"))
    assert found.recorded is not None
    assert found.recorded.names == NAMES


async def test_fake_answers_from_a_script_and_logs_requests(settings: Callable[..., Settings], tmp_path: Path) -> None:
    script = "log: seen.jsonl\nrules:\n  - when: hi\n    text: hello\nturns: [{text: on, delay: 0}]\n"
    (tmp_path / "script.yaml").write_text(script)
    found = open_models(settings("fake:script.yaml"), folder=tmp_path)
    assert (await found.chat(ASKED)).text == "hello"
    (line,) = (tmp_path / "seen.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["outcome"], told["messages"], told["structured"]) == ("answered", 1, False)
    assert set(told["digests"]) == {"prefix", "summary", "tail"}
    assert found.recorded is None


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "is not UTF-8"),
        (b"turns: [a\n", r"script\.yaml:\d+: not YAML"),
        (b"turn: a\n", "turn is not known here"),
    ],
)
def test_script_that_cannot_be_read_is_told(
    settings: Callable[..., Settings], tmp_path: Path, script: bytes | None, told: str
) -> None:
    if script is not None:
        (tmp_path / "script.yaml").write_bytes(script)
    with pytest.raises(FormatError, match=told):
        open_models(settings("fake:script.yaml"), folder=tmp_path)


def test_recording_that_cannot_be_read_is_told(settings: Callable[..., Settings], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"gone\.jsonl cannot be read"):
        open_models(settings("replay:gone.jsonl"), folder=tmp_path)


def test_dialect_that_nothing_speaks_is_refused(settings: Callable[..., Settings], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing here speaks the dialect fake; known are replay"):
        open_models(settings("fake:script.yaml"), dialects={"replay": lambda where: ScriptedLLM("a")})


async def test_further_dialect_comes_through_the_same_table(settings: Callable[..., Settings]) -> None:
    opened: list[str] = []

    def opener(where: Any) -> ScriptedLLM:
        opened.append(where.url)
        return ScriptedLLM(["own"])

    found = open_models(settings("fake:anything"), dialects={"fake": opener})
    assert (await found.chat(ASKED)).text == "own"
    assert opened == ["fake:anything"]


async def test_own_model_is_used_with_the_same_care(settings: Callable[..., Settings]) -> None:
    """It need not say why it ended, and may raise what its transport raises."""

    class Own:
        def __init__(self) -> None:
            self.asked = 0

        async def chat(self, request: ChatRequest, /) -> LLMResult:
            self.asked += 1
            if self.asked == 1:
                raise ConnectionRefusedError
            return LLMResult("own")

        async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
            yield Delta((await self.chat(request)).text)

    clock, own = Clock(), Own()
    found = models_of(own, settings("fake:unused"), sleep=clock.sleep, clock=clock)
    result = await found.chat(ASKED)
    assert (result.text, result.model, own.asked) == ("own", "m", 2)
    assert [delta.text async for delta in found.stream(ASKED)] == ["own"]


# The tools of a recording


def invocation(call: str, tool: str, arguments: dict[str, Any]) -> Invocation:
    where: dict[str, Any] = {"key": "k", "context": "c", "turn": "t", "round": 1, "index": 0}
    unused: Any = None
    return Invocation(tool, arguments, call, **where, principal=unused, desk=unused)


async def test_replayed_tools_give_recorded_results(settings: Callable[..., Settings]) -> None:
    found = open_models(settings(f"replay:{SAMPLE}"))
    assert found.recorded is not None
    tools = {tool.name: tool for tool in replayed_tools(found.recorded)}
    assert list(tools) == sorted(tools)
    assert all(tool.idempotent and tool.parameters == {"type": "object"} for tool in tools.values())
    (transcript,) = load_transcripts(SAMPLE)
    history = transcript.history
    call = next(m for m in history if m.tool_calls).tool_calls[0]
    recorded = next(m for m in history if m.tool_call_id == call.id)
    answer = await tools[call.name].run(invocation("own-id", call.name, dict(call.arguments)))
    assert (answer.content, answer.is_error) == (recorded.content, recorded.is_error)
    with pytest.raises(ToolError, match="was recorded"):
        await tools[call.name].run(invocation("x", call.name, {"never": "asked"}))
