"""Recorded conversations, answered again: in order, by a model made anew before every turn, behind a summary, and in a
runtime that runs the recorded tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.messages import Message, ToolCall, mark
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import repair
from agentkit.models.adapters.recording import answer_key
from agentkit.models.adapters.replay import INTERRUPTED, RecordedTools, ReplayLLM, recorded_usage, user_turns
from agentkit.transcripts import load
from tests.transcripts.samples import FOLDER, LARGE, SAMPLES

pytestmark = pytest.mark.anyio


@cache
def histories(name: str) -> list[tuple[Message, ...]]:
    return [transcript.history for transcript in load(FOLDER / name)]


SMALL = [(name, at) for name in SAMPLES if name not in LARGE for at in range(len(histories(name)))]
NUMBERED = [
    *SMALL,
    ("claude-code/worktree-long.jsonl", 0),
    ("tau-bench/gpt4o-airline-mixed.json", 0),
    ("tau-bench/gpt4o-airline-mixed.json", 8),
]
"""Conversations of the samples; of the large list of runs the first and the longest."""


def request(messages: Sequence[Message], **more: Any) -> ChatRequest:
    """What would be sent of these messages, repaired as every caller does it."""
    return ChatRequest(repair(messages).messages, **more)


def answers_in(history: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Each answer of a recording, neighbours joined, with the number of messages in front of it."""
    at = 0
    while at < len(history):
        end = at
        while end < len(history) and history[end].role == "assistant":
            end += 1
        if end > at:
            items = [item for message in history[at:end] for item in message.ordered]
            yield at, history[at] if end == at + 1 else Message("assistant", None, blocks=items)
        at = max(end, at + 1)


def asked_at(history: Sequence[Message]) -> list[tuple[int, Message]]:
    """Those answers in front of which somebody said something."""
    return [
        (at, m) for at, m in answers_in(history) if any(one.role not in ("system", "developer") for one in history[:at])
    ]


def same(found: LLMResult, recorded: Message) -> bool:
    return answer_key(found.message) == answer_key(recorded)


# Samples


@pytest.mark.parametrize(("name", "number"), NUMBERED)
def test_sample_is_answered_in_order(name: str, number: int) -> None:
    history = histories(name)[number]
    model = ReplayLLM(history)
    for at, recorded in asked_at(history):
        assert same(model.answer(request(history[:at])), recorded), f"message {at}"


@pytest.mark.parametrize(("name", "number"), SMALL)
def test_sample_is_answered_in_order_by_a_model_made_anew(name: str, number: int) -> None:
    """A restart before every turn: nothing but the request tells where the conversation stands."""
    history = histories(name)[number]
    for at, recorded in asked_at(history):
        assert same(ReplayLLM(history).answer(request(history[:at])), recorded), f"message {at}"


@pytest.mark.parametrize("name", ["tau-bench/gpt4o-airline-mixed.json", "tau-bench/gpt4o-airline-two.json"])
def test_conversations_of_one_file_are_told_apart(name: str) -> None:
    """All of one agent, under one prompt, and answered by one model."""
    model = ReplayLLM(*histories(name))
    for history in histories(name):
        for at, recorded in asked_at(history):
            assert same(model.answer(request(history[:at])), recorded), f"message {at}"


def folded(history: Sequence[Message], start: int, end: int) -> list[Message]:
    """The messages from `start` to `end` behind a summary of those in front of them."""
    system = [message for message in history[:start] if message.role == "system"][:1]
    summary = frame("context-summary", "This is a record. The user asked, the assistant answered.", covers=f"1-{start}")
    return [*system, mark(Message("user", summary), "summary"), *history[start:end]]


def round_of(history: Sequence[Message], at: int) -> int:
    """Where the question of an answer begins, a round with its calls included: what no reduction takes away."""
    first = at - 1
    while first > 0 and history[first].role != "assistant":
        first -= 1
    while first > 0 and history[first - 1].role == "assistant":
        first -= 1
    return first


@pytest.mark.parametrize(("name", "number"), NUMBERED)
def test_sample_is_answered_behind_a_summary(name: str, number: int) -> None:
    """Everything but the question in hand is folded, and the process is a new one."""
    history = histories(name)[number]
    places = asked_at(history)
    for at, recorded in places[:: max(len(places) // 12, 1)]:
        found = ReplayLLM(history).answer(request(folded(history, round_of(history, at), at)))
        assert same(found, recorded), f"message {at}"


@given(st.data())
def test_any_fold_of_a_sample_is_answered(data: st.DataObject) -> None:
    """Wherever the head was cut off, with one model for all or a new one for each request."""
    name, number = data.draw(st.sampled_from(NUMBERED))
    history = histories(name)[number]
    places = asked_at(history)
    if not places:
        return
    chosen = sorted(data.draw(st.sets(st.integers(0, len(places) - 1), min_size=1, max_size=4)))
    model = ReplayLLM(history)
    anew = data.draw(st.booleans())
    for at, recorded in [places[n] for n in chosen]:
        start = data.draw(st.integers(0, round_of(history, at)))
        found = (ReplayLLM(history) if anew else model).answer(request(folded(history, start, at)))
        assert same(found, recorded), f"{name} message {at} from {start}"


# A runtime around it


class Runtime:
    """Sends what users sent, runs the recorded tools, and does to the record what a daemon does: own ids, notes, a
    volatile block, old results masked, long ones shortened, old exchanges folded, restarts."""

    def __init__(self, history: Sequence[Message], **how: Any) -> None:
        self.history = history
        self.log: list[Message] = []
        self.answers: list[Message] = []
        self.own_ids: bool = how.get("own_ids", False)
        self.notes: bool = how.get("notes", False)
        self.keep: int | None = how.get("keep")
        self.part_max: int | None = how.get("part_max")
        self.restart: Callable[[], bool] = how.get("restart", lambda: False)
        self.crash: Callable[[], bool] = how.get("crash", lambda: False)
        self.start()

    def start(self) -> None:
        self.model, self.tools = ReplayLLM(self.history), RecordedTools(self.history)

    def run(self) -> list[Message]:
        for turn in user_turns(self.history):
            self.log.append(turn)
            if self.notes:
                self.log.append(Message("user", frame("runtime-note", f"note {len(self.log)}")))
            for _ in range(10_000):
                if self.restart():
                    self.start()
                message = self.model.answer(self.request()).message
                if self.own_ids and message.tool_calls:
                    calls = [
                        ToolCall(f"own-id-{len(self.log)}-{n}", c.name, c.arguments)
                        for n, c in enumerate(message.tool_calls)
                    ]
                    message = Message("assistant", message.content, tool_calls=calls)
                self.log.append(message)
                if message.content != INTERRUPTED:
                    self.answers.append(message)
                if not message.tool_calls:
                    break
                self.log += [self.called(call) for call in message.tool_calls]
        return self.answers

    def called(self, call: ToolCall) -> Message:
        if self.crash():
            self.start()
            return Message("tool", "It is not known whether this call took effect.", call.name, call.id, is_error=True)
        try:
            result = self.tools.result(call)
        except LookupError as error:
            return Message("tool", str(error), call.name, call.id, is_error=True)
        if self.part_max is not None and len(result.content) > self.part_max:
            return Message(
                "tool", result.content[: self.part_max] + " ...", call.name, call.id, is_error=result.is_error
            )
        return result

    def request(self) -> ChatRequest:
        start = 0
        if self.keep is not None and len(self.log) > self.keep:
            start = round_of(self.log, len(self.log))
            start = max(min(start, len(self.log) - self.keep), 0)
        shown = folded(self.log, start, len(self.log)) if start else self.log
        state = Message("user", frame("runtime-state", f"plan: none\ntime: {len(self.log)}"))
        return request([Message("system", "An agent of its own."), *shown, *([state] if self.notes else [])])


def expected(history: Sequence[Message]) -> list[Message]:
    """The recorded answers less those that nobody asked for: behind late system text alone."""
    found: list[Message] = []
    before = 0
    for at, message in answers_in(history):
        if not found or any(one.role in ("user", "tool") for one in history[before:at]):
            found.append(message)
        before = at
    return found


@pytest.mark.parametrize("how", [{}, {"notes": True, "own_ids": True}, {"keep": 6, "notes": True}, {"part_max": 50}])
@pytest.mark.parametrize(("name", "number"), NUMBERED)
def test_sample_runs_again_with_its_tools(name: str, number: int, how: dict[str, Any]) -> None:
    history = histories(name)[number]
    found = Runtime(history, **how).run()
    assert [answer_key(message) for message in found] == [answer_key(message) for message in expected(history)]


@given(st.data())
def test_sample_runs_again_through_restarts_and_crashes(data: st.DataObject) -> None:
    """Killed in front of any call of the model, and in the middle of tools: the recording goes on all the same."""
    name, number = data.draw(st.sampled_from(SMALL))
    history = histories(name)[number]
    chance = st.integers(0, 4)
    runtime = Runtime(
        history,
        notes=data.draw(st.booleans()),
        keep=data.draw(st.sampled_from([None, 3, 8])),
        restart=lambda: data.draw(chance) == 0,
        crash=lambda: data.draw(chance) == 0,
    )
    assert [answer_key(m) for m in runtime.run()] == [answer_key(m) for m in expected(history)]


# Repeats


@st.composite
def repetitive(draw: st.DrawFn) -> list[Message]:
    """Conversations of few different words, calls and results."""
    messages = [Message("system", "s")]
    for number in range(draw(st.integers(1, 8))):
        messages += [
            Message("user", text) for text in draw(st.lists(st.sampled_from(["go on", "yes"]), min_size=1, max_size=2))
        ]
        for at in range(draw(st.integers(0, 3))):
            id = draw(st.sampled_from(["", "same", f"call-{number}-{at}"]))
            name = draw(st.sampled_from(["look", "post.it"]))
            call = ToolCall(id, name, draw(st.sampled_from(["{}", '{"a": 1}', "{"])))
            messages.append(Message("assistant", draw(st.sampled_from(["", "ok"])), tool_calls=[call]))
            messages.append(Message("tool", draw(st.sampled_from(["", "done"])), name, id or None))
        messages.append(Message("assistant", draw(st.sampled_from(["ok", "ok", f"answer {number}"]))))
    return messages


@given(repetitive())
def test_repeated_questions_are_told_apart_by_what_is_in_front(history: list[Message]) -> None:
    """A whole request leaves no doubt where the recording stands, however alike its questions are."""
    for at, recorded in asked_at(history):
        assert same(ReplayLLM(history).answer(request(history[:at])), recorded)


@given(repetitive())
def test_repeated_questions_behind_a_summary_are_answered_in_order(history: list[Message]) -> None:
    """Without what is in front only the order of the requests tells; a process that lives on knows it."""
    model = ReplayLLM(history)
    assert [answer_key(m) for m in drive_folded(model, history)] == [answer_key(m) for _, m in asked_at(history)]


def drive_folded(model: ReplayLLM, history: Sequence[Message]) -> Iterator[Message]:
    """Answers to the questions in order, each behind a summary of all that is in front; ids as the model gave them."""
    log: list[Message] = []
    before = 0
    for at, _ in asked_at(history):
        asked = history[before + len(list(recorded_in(history, before))) : at]
        before = at
        calls = log[-1].tool_calls if log and log[-1].role == "assistant" else ()
        ids = iter(call.id for call in calls)
        log += [Message("tool", m.content, m.name, next(ids)) if m.role == "tool" else m for m in asked]
        answer = model.answer(request(folded(log, round_of(log, len(log)), len(log)))).message
        yield answer
        log.append(answer)


def recorded_in(history: Sequence[Message], at: int) -> Iterator[Message]:
    """The assistant messages that stand at a place."""
    while at < len(history) and history[at].role == "assistant":
        yield history[at]
        at += 1


# What it refuses, and what may be set

REPORTED = {"input_tokens": 70, "output_tokens": 3, "cache_read_input_tokens": 30}
TALK = (
    Message("system", "prompt"),
    Message("user", "What is the weather in Rome?"),
    Message("assistant", "", tool_calls=[ToolCall("call-weather-rome", "weather", {"city": "Rome"})]),
    Message("tool", "sunny", "weather", "call-weather-rome"),
    Message(
        "assistant", "Sunny.", meta={"usage": {"input_tokens": 70, "output_tokens": 3, "cache_read_input_tokens": 30}}
    ),
    Message("user", "Thanks"),
    Message("assistant", "You are welcome."),
    Message("user", "Bye"),
)


def test_unknown_question_is_refused_by_name() -> None:
    with pytest.raises(PermanentError, match=r"no answer to the message 'Who are you\?'; it has 3 answers, 0 of them"):
        ReplayLLM(TALK).answer(request([Message("user", "Who are you?")]))


def test_results_of_unknown_calls_are_refused_by_name() -> None:
    asked = [
        *TALK[:2],
        Message("assistant", "", tool_calls=[ToolCall("x", "guess")]),
        Message("tool", "?", "guess", "x"),
    ]
    with pytest.raises(PermanentError, match=r"the results of guess \(x\)"):
        ReplayLLM(TALK).answer(request(asked))


def test_end_of_the_recording_is_told() -> None:
    with pytest.raises(PermanentError, match="the recording ends with the message 'Bye'"):
        ReplayLLM(TALK).answer(request(TALK))


def test_request_without_a_person_is_refused() -> None:
    with pytest.raises(PermanentError, match="nobody said anything"):
        ReplayLLM(TALK).answer(request([Message("user", frame("runtime-note", "What is the weather in Rome?"))]))


def test_invalid_request_is_refused_as_a_provider_does() -> None:
    with pytest.raises(PermanentError, match=r"400: .*messages\[1\] first: "):
        ReplayLLM(TALK).answer(ChatRequest((Message("system", "s"), Message("assistant", "hi"), Message("user", "hm"))))
    with pytest.raises(PermanentError, match="400: A request needs"):
        ReplayLLM(TALK).answer(ChatRequest((Message("system", "s"),)))


def test_loose_gives_the_next_answer_that_was_not_given() -> None:
    model = ReplayLLM(TALK, loose=True)
    assert model.answer(request([Message("user", "Weather?")])).tool_calls[0].name == "weather"
    assert model.answer(request(TALK[:6])).text == "You are welcome."
    assert ReplayLLM(TALK, loose=True).answer(request([*TALK[:5], Message("user", "Ta")])).text == "You are welcome."
    assert model.answer(request([Message("user", "Go on")])).text == "Sunny."
    with pytest.raises(PermanentError, match="no answer to the message 'More'"):
        model.answer(request([Message("user", "More")]))


def test_f29_request_for_a_summary_is_refused_unless_an_answer_is_set() -> None:
    asked = request([Message("user", "Thanks")], response_format={"type": "object"})
    with pytest.raises(PermanentError, match="response format"):
        ReplayLLM(TALK).answer(asked)
    assert ReplayLLM(TALK, structured='{"facts": []}').answer(asked).text == '{"facts": []}'
    made = LLMResult("made", usage=Usage(1, 2))
    assert ReplayLLM(TALK, structured=lambda request: made).answer(asked) is made


def test_same_request_again_gets_the_same_answer() -> None:
    """After a fault on the way, say; the position of the recording does not move on."""
    twice = [m for n in range(2) for m in (Message("user", "again"), Message("assistant", f"answer {n}"))]
    model, asked = ReplayLLM(twice), request(folded([*twice, Message("user", "again")], 4, 5))
    assert [model.answer(asked).text for _ in range(3)] == ["answer 0"] * 3


def test_interrupted_turn_ends_and_the_next_words_go_on() -> None:
    history = [*TALK[:4], Message("user", "Stop, what about Oslo?"), Message("assistant", "Oslo is cold.")]
    model = ReplayLLM(history)
    paused = model.answer(request(history[:4]))
    assert (paused.text, paused.finish_reason) == (INTERRUPTED, "stop")
    asked = [*history[:4], paused.message, history[4]]
    assert model.answer(request(asked)).text == "Oslo is cold."
    assert [turn.content for turn in user_turns(history)] == [history[1].content, history[4].content]


def test_words_of_a_person_may_be_cut_into_other_pieces() -> None:
    asked = [Message("user", ["What is the ", "weather in Rome?"])]
    assert ReplayLLM(TALK).answer(request(asked)).tool_calls[0].name == "weather"


def test_f52_odd_characters_are_found_again() -> None:
    """Half a surrogate pair is replaced on its way into a request."""
    history = [Message("user", "Grüße \ud83d 你好"), Message("assistant", "hallo")]
    assert ReplayLLM(history).answer(request([Message("user", "Grüße \ufffd 你好")])).text == "hallo"


def test_usage_is_measured_or_as_recorded() -> None:
    asked = request(TALK[:4])
    longer = request([Message("system", "p" * 4_000), *TALK[1:4]])
    measured = ReplayLLM(TALK).answer(asked).usage
    assert 0 < measured.input_tokens < ReplayLLM(TALK).answer(longer).usage.input_tokens - 900
    assert ReplayLLM(TALK, usage="recorded").answer(asked).usage == Usage(70, 3, cache_read_tokens=30)
    assert ReplayLLM(TALK, usage="recorded").answer(request(TALK[:6])).usage.input_tokens > 0
    with pytest.raises(ValueError, match="measured or recorded"):
        ReplayLLM(TALK, usage="guessed")  # type: ignore[arg-type]


def test_recorded_usage_is_read_by_its_form() -> None:
    chat = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    assert recorded_usage(Message("assistant", "", meta={"usage": chat})) == Usage(5, 2, cache_read_tokens=4)
    assert recorded_usage(Message("assistant", "")) is None
    assert recorded_usage(Message("assistant", "", meta={"usage": "many"})) is None


async def test_stream_adds_up_to_the_answer() -> None:
    model = ReplayLLM(TALK)
    text = "".join([delta.text async for delta in model.stream(request(TALK[:6]))])
    assert text == (await model.chat(request(TALK[:6]))).text == "You are welcome."


def test_answers_have_ids_that_no_other_call_has() -> None:
    calls = [
        Message("assistant", "", tool_calls=[ToolCall(id, "look", {"n": n})]) for n, id in enumerate(("", "a", "a"))
    ]
    history = [m for n, call in enumerate(calls) for m in (Message("user", f"{n}"), call, Message("tool", f"r{n}"))]
    model, tools = ReplayLLM(history), RecordedTools(history)
    found = [model.answer(request([Message("user", f"{n}")])).tool_calls[0] for n in range(3)]
    assert len({call.id for call in found}) == 3
    assert all(call.id for call in found)
    assert [tools.result(call).content for call in found] == ["r0", "r1", "r2"]


# Tools


def test_recorded_tools_offer_open_schemas() -> None:
    tools = RecordedTools(TALK)
    assert tools.names == ("weather",)
    assert [(schema.name, schema.parameters) for schema in tools.schemas] == [("weather", {"type": "object"})]


def test_recorded_result_is_found_by_id_then_by_arguments() -> None:
    tools = RecordedTools(TALK)
    assert tools.result(ToolCall("call-weather-rome", "weather", {"city": "Rome"})) is TALK[3]
    renamed = tools.result(ToolCall("own", "weather", '{"city":"Rome"}'))
    assert (renamed.content, renamed.tool_call_id) == ("sunny", "own")
    with pytest.raises(LookupError, match="no result of weather"):
        tools.result(ToolCall("call-weather-rome", "weather", {"city": "Oslo"}))


def test_same_call_of_several_results_gets_them_in_order() -> None:
    history = [Message("user", "go")]
    for n in range(2):
        history += [
            Message("assistant", "", tool_calls=[ToolCall(f"c{n}", "look")]),
            Message("tool", f"r{n}", None, f"c{n}"),
        ]
    tools = RecordedTools(history)
    found = [tools.result(ToolCall(id, "look")).content for id in ("own-0", "own-1", "own-0", "own-2")]
    assert found == ["r0", "r1", "r0", "r1"]


def test_user_turns_join_what_was_sent_before_one_answer() -> None:
    history = [Message("user", "a"), Message("user", "b"), Message("assistant", "c"), Message("user", "open")]
    assert [[spoken.text for spoken in turn.ordered if hasattr(spoken, "text")] for turn in user_turns(history)] == [
        ["a", "b"]
    ]
