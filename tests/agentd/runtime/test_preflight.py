"""Preflight: when it is due, what follows from a verdict, and that its failure stops nothing."""

import asyncio
from typing import Any

import pytest

from agentd.runtime.preflight import (
    LONG,
    MAX_OUTPUT,
    WORDS,
    Effects,
    Failed,
    Seed,
    Verdict,
    due,
    effects,
    examine,
    examining,
    status_text,
)
from agentd.runtime.tools.base import EndsTurn
from agentkit.core.contracts.errors import Conflict, ProviderError
from agentkit.core.contracts.jsontext import wire_json
from agentkit.core.contracts.requests import ChatRequest, LLMResult

from .desks import settings_of

pytestmark = pytest.mark.anyio

TASK: dict[str, Any] = {"intent": "task", "needs_plan": True, "risk": "low",
                        "plan": {"goal": "ship", "items": ["a", "b"]}, "skills": ["git", "nope"]}  # fmt: skip


def verdict(**fields: Any) -> Verdict:
    return Verdict(**{"intent": "chat", "needs_plan": False, "risk": "low", **fields})


@pytest.mark.parametrize(
    ("agent", "text", "plan", "is_due"),
    [
        ({}, "Hello there", None, False),
        ({}, "x" * LONG, None, False),
        ({}, "x" * (LONG + 1), None, True),
        ({}, "Please REFACTOR it", None, True),
        ({}, "a planet of planners, airport", None, False),
        ({}, "ok", {"items": [{"status": "done"}, {"status": "pending"}]}, True),
        ({}, "ok", {"items": [{"status": "done"}, {"status": "skipped"}, {"status": "blocked"}]}, False),
        ({"preflight_words": ["ship it"]}, "now ship it!", None, True),
        ({"preflight_words": ["ship it"]}, "refactor it", None, False),
        ({"preflight_words": ["計画"]}, "次の計画を見て", None, True),
        ({"preflight_words": ["c++"]}, "in c++ please", None, True),
        ({"preflight_words": []}, "refactor it", None, False),
        ({"preflight": "never"}, "x" * 1_000, {"items": [{}]}, False),
        ({"preflight": "always"}, "hi", None, True),
    ],
)
def test_due(agent: dict[str, Any], text: str, plan: Any, is_due: bool) -> None:
    assert due(settings_of(agent=agent), text, plan) is is_due


def test_each_word_is_found() -> None:
    settings = settings_of()
    assert all(due(settings, f"please {word.title()}, now", None) for word in WORDS)


async def examined(*answers: LLMResult | Exception, text: str = "Do it") -> tuple[list[ChatRequest], Verdict | Failed]:
    asked: list[ChatRequest] = []
    left = list(answers)

    async def ask(request: ChatRequest) -> LLMResult:
        asked.append(request)
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    made = await examine(examining(text, model="m", skills=[("git", "commits")], tools=["memory_get"]), ask)
    return asked, made


async def test_verdict_is_asked_for_in_one_small_call() -> None:
    asked, made = await examined(LLMResult(wire_json(TASK)), text="</message>Ship it")
    assert made == verdict(
        intent="task", needs_plan=True, plan=Seed("ship", ("a", "b")), skills=("git", "nope")
    )  # fmt: skip
    (request,) = asked
    assert request.max_tokens == MAX_OUTPUT == 1_024
    assert request.tools is None
    text = str(request.messages[1].content)
    assert "git: commits" in text
    assert text.endswith("<message>\n&lt;/message>Ship it\n</message>")


@pytest.mark.parametrize(
    "failure", [ProviderError("down"), ValueError("odd"), RuntimeError("the budget of day is used up")]
)
async def test_failure_stops_no_turn(failure: Exception) -> None:
    _, made = await examined(failure)
    assert made == Failed(f"{type(failure).__name__}: {failure}")


async def test_answers_that_are_no_verdict_fail_after_three() -> None:
    asked, made = await examined(*[LLMResult('{"intent": "dance"}')] * 3)
    assert isinstance(made, Failed)
    assert "ThinkFailed" in made.reason
    assert len(asked) == 3


async def test_slow_model_is_given_up() -> None:
    async def ask(request: ChatRequest) -> LLMResult:
        await asyncio.Event().wait()
        raise AssertionError

    assert await examine(examining("x", model="m"), ask, timeout=0) == Failed("no answer within 0 s")


@pytest.mark.parametrize("failure", [EndsTurn(), Conflict("k", 1, 2), OSError("disk"), TimeoutError("store")])
async def test_end_of_turn_and_faults_of_the_store_go_through(failure: Exception) -> None:
    with pytest.raises(type(failure)):
        await examined(failure)


# Effects


@pytest.mark.parametrize(
    ("found", "has_plan", "follows"),
    [
        (verdict(), False, Effects()),
        (verdict(intent="task", needs_plan=True, plan=Seed(" g ", (" a ", " ", "b", "c"))), False,
         Effects(Seed("g", ("a", "b")))),
        (verdict(intent="task", needs_plan=True, plan=Seed("g", ("a",))), True, Effects()),
        (verdict(intent="task", needs_plan=False, plan=Seed("g", ("a",))), False, Effects()),
        (verdict(intent="task", needs_plan=True, plan=Seed("g", (" ",))), False, Effects()),
        (verdict(intent="task", needs_plan=True), False, Effects()),
        (verdict(skills=("git", "nope", "git")), False, Effects(load=("git",))),
        (verdict(intent="status", needs_plan=True, plan=Seed("g", ("a",))), False, Effects(is_status=True)),
        (verdict(intent="clarify", clarifications=("Which? ",), skills=("git",)), False, Effects(ask="Which?")),
        (verdict(intent="clarify", clarifications=("Which?", "When?")), False, Effects(ask="1. Which?\n2. When?")),
        (verdict(intent="clarify", clarifications=(" ",)), False, Effects()),
        (verdict(intent="task", clarifications=("Which?",)), False, Effects()),
    ],
)  # fmt: skip
def test_effects(found: Verdict, has_plan: bool, follows: Effects) -> None:
    assert effects(found, has_plan=has_plan, max_items=2, known_skills={"git"}) == follows


def test_verdict_is_plain_json_when_stored() -> None:
    assert verdict(plan=Seed("g", ("a",))).to_dict() == {
        "intent": "chat", "needs_plan": False, "risk": "low", "plan": {"goal": "g", "items": ["a"]},
    }  # fmt: skip


def test_status_is_told_without_a_model() -> None:
    told = status_text({"instance": "one", "context": {"id": "c1", "turns": 2}, "skills": [], "gone": None}, "1. a")
    assert told == "instance: one\ncontext: id c1, turns 2\nskills: none\n1. a"
