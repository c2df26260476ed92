"""A summary by a model: asked for in chunks, merged into the old one, or refused whole."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import TransientError
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.types import Message, ToolCall, mark, marked
from agentkit.core.contracts.validity import check, repair
from agentkit.state.compaction import (
    Compacted,
    Declined,
    Source,
    Summariser,
    SummarizeCompactor,
    Summary,
    apply,
    summarising,
)
from agentkit.state.compaction.summarize import object_in
from agentkit.state.context import PrefixContext, WorkingContext
from tests.strategies import transcripts

pytestmark = pytest.mark.anyio
Call = Callable[[ChatRequest], Awaitable[LLMResult]]


class Scripted:
    """Answers every request with the same result, or with what a function makes of the request."""

    def __init__(
        self, answer: LLMResult | Exception | dict[str, Any] | Callable[[ChatRequest], dict[str, Any]]
    ) -> None:
        self.answer, self.requests = answer, list[ChatRequest]()

    async def __call__(self, request: ChatRequest) -> LLMResult:
        self.requests.append(request)
        found = self.answer(request) if callable(self.answer) else self.answer
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, LLMResult) else LLMResult(json.dumps(found), finish_reason="stop")


def talk(exchanges: int, size: int = 800) -> list[Message]:
    found = []
    for n in range(exchanges):
        call = ToolCall(f"c{n}", "read", {"path": f"src/{n}.py"})
        found += [Message("user", f"question {n}. Never touch file {n}."), Message("assistant", "", tool_calls=(call,)),
                  Message("tool", "x " * size, "read", call.id), Message("assistant", f"answer {n}")]  # fmt: skip
    return found


GOOD = {"goals": [{"text": "understand the code"}], "narrative": "Files were read."}


async def test_old_exchanges_give_way_to_a_summary() -> None:
    call = Scripted(GOOD)
    source = [Message("system", "be brief"), *talk(20)]
    kept = await SummarizeCompactor(call, max_tokens=6_000).compact(source)
    assert kept[0] is source[0]
    info = marked(kept[1], "summary")
    assert info is not None
    assert info["covers"] == len(source) - len(kept) + 1
    assert kept[2].role == "user"
    assert list(kept[2:]) == source[-len(kept) + 2 :]
    assert not [p for p in check(kept) if p.code != "same-role"]


async def test_second_compaction_merges_into_the_first() -> None:
    """The old summary is given along and never an entry; numbers go on where they stopped."""
    call = Scripted(lambda request: {"facts": [{"text": f"call {len(call.requests)}"}], "narrative": "so far"})
    compactor = SummarizeCompactor(call, max_tokens=6_000)
    first = await compactor.compact(talk(20))
    second = await compactor.compact([*first, *talk(20)])
    info = marked(second[0], "summary")
    assert info is not None
    state = Summary.from_dict(info["state"])
    assert {fact.text for fact in state.facts} == {"call 1", "call 2"}
    assert len(state.narrative) == 2
    assert state.covers == ((1, info["covers"]),)
    assert sum(1 for m in second if marked(m, "summary") is not None) == 1
    assert "call 1" in call.requests[-1].messages[-1].content
    assert "<entry" not in call.requests[-1].messages[-1].content.split("</context-summary>")[0]


async def test_pins_and_their_numbers_survive() -> None:
    source = talk(20)
    source[4] = mark(source[4], "pinned")
    compactor = SummarizeCompactor(Scripted(GOOD), max_tokens=6_000)
    first = await compactor.compact(source)
    assert any(m is source[4] for m in first)
    second = await compactor.compact([*first, *talk(20)])
    info = marked(second[0], "summary")
    assert info is not None
    covers = Summary.from_dict(info["state"]).covers
    assert not any(a <= 5 <= b for a, b in covers)
    assert any(m is source[4] for m in second)


@pytest.mark.parametrize(
    "answer",
    [
        LLMResult(""),
        LLMResult("  \n"),
        LLMResult("I would rather not."),
        LLMResult("{}"),
        LLMResult(json.dumps(GOOD), finish_reason="length"),
        LLMResult(json.dumps(GOOD), finish_reason="max_tokens"),
        LLMResult(json.dumps(GOOD), partial=True),
        LLMResult(json.dumps(GOOD), tool_calls=(ToolCall("c", "read"),)),
        LLMResult('{"goals": [{"text": 3}]}'),
        TransientError(),
    ],
    ids=["empty", "blank", "prose", "nothing", "length", "max_tokens", "partial", "call", "shape", "provider"],
)
async def test_c11_bad_answer_fails_whole(answer: LLMResult | Exception) -> None:
    source = talk(20)
    compactor = SummarizeCompactor(Scripted(answer), max_tokens=6_000)
    found = await compactor.summarise(source)
    assert isinstance(found, Declined)
    assert found.reason == "no_summary"
    assert await compactor.compact(source) is source
    degraded = await SummarizeCompactor(Scripted(answer), max_tokens=6_000, fallback=True).summarise(source)
    assert isinstance(degraded, Compacted)
    assert degraded.degraded
    assert "Never touch file 0." in degraded.summary.content


async def test_other_errors_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await SummarizeCompactor(Scripted(ZeroDivisionError()), max_tokens=6_000).compact(talk(20))


async def test_nothing_to_do_has_its_reason() -> None:
    source = talk(1)
    below = await SummarizeCompactor(Scripted(GOOD)).summarise(source)
    assert isinstance(below, Declined)
    assert below.reason == "below_trigger"
    large = {"facts": [{"text": f"{n} " + "long " * 90} for n in range(60)]}
    worse = await SummarizeCompactor(Scripted(large), max_tokens=1_200, summary_tokens=4_000, goal=4_500).summarise(
        [m for m in talk(12, 40) if m.role != "tool" and not m.tool_calls] * 4
    )
    assert isinstance(worse, Declined)


async def test_applies_through_the_context() -> None:
    context = WorkingContext(PrefixContext("be brief"), talk(20))
    made = await SummarizeCompactor(Scripted(GOOD), max_tokens=6_000).summarise(context.messages)
    assert isinstance(made, Compacted)
    context.append(Message("user", "meanwhile"))
    apply(context, made.plan, version=0, summary=made.in_front)
    assert context.version == 1
    assert marked(context.messages[0], "summary") is not None
    assert context.messages[-1].content == "meanwhile"


def driven(sources: list[Source], how: Summariser) -> tuple[list[ChatRequest], Summary]:
    steps = summarising(sources, how)
    requests = []
    try:
        request = next(steps)
        while True:
            requests.append(request)
            request = steps.send(LLMResult(json.dumps({"narrative": f"part {len(requests)}"})))
    except StopIteration as end:
        return requests, end.value.delta


def test_c5_chunks_fit_the_summarisers_window() -> None:
    sources = [Source(n, "assistant", f"entry {n} " + "words " * 300) for n in range(1, 61)]
    requests, delta = driven(sources, Summariser(window=8_000, max_output=1_000))
    assert len(requests) > 2
    assert delta.covers == ((1, 60),)
    assert delta.narrative[0].covers[0][0] == 1
    assert all(len(m.content) < 8_000 * 5 for r in requests for m in r.messages)
    told = " ".join(r.messages[-1].content for r in requests)
    assert all(f'<entry n="{n}"' in told for n in range(1, 61))


def test_tool_results_are_cut_and_one_huge_entry_too() -> None:
    requests, _ = driven(
        [Source(1, "tool", "a" * 50_000), Source(2, "user", "b " * 500_000)], Summariser(window=20_000)
    )
    assert all(len(r.messages[-1].content) < 60_000 for r in requests)
    assert "characters left out" in requests[0].messages[-1].content


def test_replaced_wording_keeps_the_form() -> None:
    requests, _ = driven([Source(1, "user", "hi")], Summariser(prompt="Tell it like a pirate."))
    system = requests[0].messages[0].content
    assert system.startswith("Tell it like a pirate.")
    assert '"lifted_by"' in system
    assert requests[0].response_format


def test_no_entries_need_no_call() -> None:
    assert driven([], Summariser()) == ([], Summary())


@pytest.mark.parametrize(
    ("text", "found"),
    [('{"a": 1}', {"a": 1}), ('```json\n{"a": 1}\n```', {"a": 1}), ('Sure: {"a": {"b": 2}} done', {"a": {"b": 2}}),
     ("none", None), ("[1]", None), ("{broken", None), ("", None)],
)  # fmt: skip
def test_object_in_an_answer(text: str, found: Any) -> None:
    assert object_in(text) == found


@given(transcripts(max_size=24), st.integers(0, 200), st.integers(0, 8))
async def test_laws_over_random_transcripts(messages: list[Message], max_tokens: int, keep_recent: int) -> None:
    """Folded and kept are complements, nothing is left that the input had not wrong already, and the summary covers
    exactly what went."""
    compactor = SummarizeCompactor(Scripted(GOOD), max_tokens, keep_recent, summary_tokens=60)
    made = await compactor.summarise(messages)
    if isinstance(made, Declined):
        return
    assert sorted((*made.plan.folded, *made.plan.kept)) == list(range(len(messages)))
    info = marked(made.summary, "summary")
    assert info is not None
    assert info["covers"] == len(made.plan.folded)
    view = made.messages(messages)
    assert not check(repair(view).messages)
