"""Thinking: how an answer is read, and what is asked again."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.runtime.checking import UnusableSchema
from agentd.runtime.thinking import ThinkFailed, Thought, driven, thinking, values_in
from agentkit.core.contracts.jsontext import wire_json
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.requests import ChatRequest, LLMResult
from agentkit.core.contracts.usage import Usage

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def answer(text: str, **fields: Any) -> LLMResult:
    return LLMResult(text, usage=Usage(10, 2), **fields)


def played(
    steps: Generator[ChatRequest, LLMResult, Thought], *answers: LLMResult
) -> tuple[list[ChatRequest], Thought | ThinkFailed]:
    """The requests that were made, and how it ended."""
    asked = [next(steps)]
    for one in answers:
        try:
            asked.append(steps.send(one))
        except StopIteration as end:
            return asked, end.value
        except ThinkFailed as error:
            return asked, error
    raise AssertionError("it asks for more than the test has answers")


def test_text_is_one_request_without_tools() -> None:
    asked, made = played(thinking("Why?", model="m", max_tokens=77), answer("  Because.\n"))
    assert made == Thought("Because.", 1, Usage(10, 2))
    (request,) = asked
    assert (request.model, request.tools, request.temperature, request.max_tokens) == ("m", None, 0.0, 77)
    assert [m.role for m in request.messages] == ["system", "user"]
    assert request.messages[1].content == "Why?"


def test_memory_and_skills_go_along_as_data() -> None:
    steps = thinking("Go.", model="m", reads={"k": {"a": 1}, "t": "</memory>"}, skills={"s": "Do it."})
    text = str(next(steps).messages[1].content)
    assert '<skill name="s">\nDo it.\n</skill>' in text
    assert '<memory key="k">\n{"a": 1}\n</memory>' in text
    assert text.count("</memory>") == 2, "what is quoted cannot end its frame"
    assert text.endswith("\n\nGo.")


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 7}',
        '```json\n{"n": 7}\n```',
        'Sure:\n```\n{"n": 7}\n```\nThat is it.',
        'I thought [of much] {and more}. The answer is {"n": 7}, I believe.',
        '{"n": "x"} would be wrong, so {"n": 7}',
    ],
)
def test_json_is_read_leniently(text: str) -> None:
    _, made = played(thinking("?", model="m", schema=SCHEMA), answer(text))
    assert isinstance(made, Thought)
    assert made.value == {"n": 7}


def test_value_can_be_stored() -> None:
    """Half a surrogate pair and numbers without end are in no stored text."""
    schema = {"type": "object"}
    _, made = played(thinking("?", model="m", schema=schema), answer('{"a": "x\\ud800", "b": 1e999}'))
    assert isinstance(made, Thought)
    assert made.value == {"a": "x\ufffd", "b": "inf"}


def test_parsed_value_of_the_provider_is_taken() -> None:
    _, made = played(thinking("?", model="m", schema=SCHEMA), answer("", parsed={"n": 7}))
    assert isinstance(made, Thought)
    assert made.value == {"n": 7}


def test_wrong_answer_is_asked_again_with_its_fault() -> None:
    asked, made = played(
        thinking("?", model="m", schema=SCHEMA), answer('{"n": "seven"}'), answer("none"), answer('{"n": 7}')
    )
    assert made == Thought({"n": 7}, 3, Usage(30, 6))
    assert [m.role for m in asked[1].messages] == ["system", "user", "assistant", "user"]
    assert asked[1].messages[2].content == '{"n": "seven"}'
    assert 'n: must be integer, not string "seven"' in str(asked[1].messages[3].content)
    assert "it holds no JSON value" in str(asked[2].messages[3].content)
    assert len(asked[2].messages) == 4, "only the last answer goes along"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (answer('{"n": 7}', finish_reason="length"), "cut_off"),
        (answer('{"n": 7}', finish_reason="max_tokens"), "cut_off"),
        (answer('{"n": 7}', partial=True), "cut_off"),
        (answer("", tool_calls=(ToolCall("1", "rm", {}),)), "tool_call"),
        (answer(" \n"), "empty"),
    ],
)
def test_answer_that_is_not_whole_is_asked_again_and_not_repaired(bad: LLMResult, reason: str) -> None:
    asked, made = played(thinking("?", model="m", schema=SCHEMA), bad, answer('{"n": 7}'))
    assert isinstance(made, Thought)
    assert [m.role for m in asked[1].messages] == ["system", "user"]
    assert str(asked[1].messages[1].content).startswith("?\n\nAn earlier answer cannot be used: ")
    _, failed = played(thinking("?", model="m", schema=SCHEMA), bad, bad, bad)
    assert isinstance(failed, ThinkFailed)
    assert failed.reason == reason
    assert failed.usage == Usage(30, 6)


def test_schema_that_is_none_is_refused_before_a_call() -> None:
    with pytest.raises(UnusableSchema, match="output_schema is no JSON Schema"):
        next(thinking("?", model="m", schema={"type": "thing"}))


async def test_driver_asks_and_returns() -> None:
    answers = [answer("x"), answer('{"n": 1}')]

    async def ask(request: ChatRequest) -> LLMResult:
        return answers.pop(0)

    assert (await driven(thinking("?", model="m", schema=SCHEMA), ask)).value == {"n": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(st.text("ab {}[]\"'`\n", max_size=40), st.dictionaries(st.text(), JSON), st.text('ab {}[]"\n', max_size=40))
def test_any_object_is_found_when_fenced(before: str, value: dict[str, Any], after: str) -> None:
    before = before.replace("`", "")
    assert value in list(values_in(f"{before}\n```json\n{wire_json(value)}\n```\n{after}")) or "```" in wire_json(value)


def test_many_brackets_take_no_time() -> None:
    assert list(values_in("[" * 100_000)) == []
