"""Structured output: a type is told to the model, read back, and asked for again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import pydantic
import pytest

from agentkit.agents import Agent, OutputAdapter, ReActCognition, TypeOutput
from agentkit.core.contracts.errors import OutputError
from agentkit.core.contracts.types import LLMResult
from agentkit.core.testing import FakeLLM, make_test_ctx
from agentkit.state.context import WorkingContext

pytestmark = pytest.mark.anyio


@dataclass
class Answer:
    number: int
    why: str = ""


class Plain(TypedDict):
    number: int


class Model(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize(("kind", "made"), [(Answer, Answer(4)), (Plain, {"number": 4}), (Model, Model(number=4))])
@pytest.mark.parametrize("cognition", [None, ReActCognition([])], ids=["single", "react"])
async def test_types_are_told_and_read(kind: Any, made: Any, cognition: Any) -> None:
    llm, wc = FakeLLM('{"number": 4}'), WorkingContext()
    agent = Agent("a", prompt="p", output=kind, cognition=cognition)
    result = await agent.run("go", make_test_ctx(llm=llm), context=wc)
    assert result.parsed == made
    block = wc.prefix.schema_block
    assert block is not None
    assert '"number"' in block
    assert block.startswith("Answer with JSON that fits this schema, and nothing else:\n{")
    assert llm.requests[0].response_format is None


@pytest.mark.parametrize("cognition", [None, ReActCognition([])], ids=["single", "react"])
async def test_model_is_told_what_is_wrong(cognition: Any) -> None:
    llm, wc = FakeLLM().script(['{"numbr": 4}', '```json\n{"number": 4, "why": "so"}\n```']), WorkingContext()
    agent = Agent("a", output=Answer, cognition=cognition)
    result = await agent.run("go", make_test_ctx(llm=llm), context=wc)
    assert (result.parsed, result.partial, llm.calls) == (Answer(4, "so"), False, 2)
    assert wc.messages[2].content == (
        "That answer could not be read: unknown: numbr (known: number, why); missing: number\n"
        "Answer again, in the form that was asked for and nothing else."
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("It is 4.", "not JSON: Expecting value"),
        ('Here: ```json\n{"number": 4}\n```', "not JSON"),
        ("4", "expected an object, got 4"),
        ('{"number": "4"}', 'number: expected an integer, got "4"'),
        ("[" * 100_000, "not JSON"),
        ("", "not JSON"),
    ],
)
def test_other_answers_are_output_errors(text: str, told: str) -> None:
    with pytest.raises(OutputError) as caught:
        TypeOutput(Answer).parse(text)
    assert str(caught.value).startswith(told)


def test_schema_block_has_the_same_bytes_whatever_the_order() -> None:
    """K2."""
    block = TypeOutput(Answer).schema_block
    assert block == TypeOutput(Answer).schema_block
    assert isinstance(TypeOutput(Answer), OutputAdapter)
    assert block.endswith(
        '{"additionalProperties": false, "properties": {"number": {"type": "integer"}, "why": {"default": "", "type": '
        '"string"}}, "required": ["number"], "type": "object"}'
    )


async def test_type_as_response_format_is_sent_as_schema_and_read() -> None:
    llm, wc = FakeLLM('{"number": 4}'), WorkingContext()
    result = await Agent("a", response_format=Model).run("go", make_test_ctx(llm=llm), context=wc)
    assert result.parsed == Model(number=4)
    assert llm.requests[0].response_format["required"] == ["number"]
    assert wc.prefix.schema_block is None
    already = FakeLLM(LLMResult("{}", parsed=Model(number=7)))
    assert (await Agent("a", response_format=Model).run("go", make_test_ctx(llm=already))).parsed == Model(number=7)
    form = {"type": "json_object"}
    await Agent("a", response_format=form).run("go", make_test_ctx(llm=llm))
    assert llm.requests[-1].response_format == form
    with pytest.raises(TypeError, match="response_format must be a type"):
        Agent("a", response_format=5)


def test_type_without_a_form_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        Agent("a", output=bytes)


async def test_list_of_things_is_a_type_too() -> None:
    result = await Agent("a", output=list[Answer]).run("go", make_test_ctx(llm=FakeLLM('[{"number": 1}]')))
    assert result.parsed == [Answer(1)]


def test_pydantic_is_never_imported_for_it() -> None:
    import subprocess
    import sys

    code = "import sys, agentkit.agents; print([m for m in ('pydantic', 'msgspec', 'anthropic') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "[]"
