"""Recognising a format: several records, the first rule from the top, and an error rather than a guess."""

import json
from typing import Any

import pytest

from agentkit.core.contracts.errors import FormatError
from agentkit.transcripts import FORMATS, detect, loads
from agentkit.transcripts.formats import RULES
from tests.transcripts.samples import jsonl, one

USER = {"role": "user", "content": "hi"}
CALLS = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}
COMMAND = {"role": "assistant", "content": "```bash\nls\n```"}
RETURN = {"role": "user", "content": "<returncode>0</returncode>\n<output>\n</output>"}

RECOGNISED: list[tuple[str, Any]] = [
    ("claude-code", [{"sessionId": "s", "uuid": "u", "type": "user", "message": USER}]),
    ("claude-code", [{"type": "summary", "summary": "x", "leafUuid": "u"}]),
    ("claude-code", [{"type": "system", "subtype": "init", "session_id": "s"}]),
    ("codex", [{"type": "session_meta", "payload": {"id": "x"}}, {"type": "response_item", "payload": {}}]),
    ("mini-swe-agent", {"trajectory_format": "mini-swe-agent-1", "messages": [USER]}),
    ("mini-swe-agent", [USER, COMMAND, RETURN]),
    ("swe-agent", {"history": [USER]}),
    ("swe-agent", {"history": [USER], "info": {}, "trajectory": []}),
    ("agentdojo", {"suite_name": "banking", "messages": [USER]}),
    ("langchain", {"values": {"messages": []}}),
    ("langchain", [{"type": "human", "content": "hi"}]),
    ("langchain", {"messages": [{"type": "human", "data": {"content": "hi"}}]}),
    ("langchain", [{"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"], "kwargs": {"content": "hi"}}]),
    ("tau-bench", [{"traj": [USER], "task_id": 0}]),
    ("openhands", [{"id": 0, "source": "user", "action": "message", "args": {"content": "hi"}}]),
    ("openhands", [{"id": 1, "source": "agent", "observation": "run", "content": ""}]),
    ("openai-responses", {"model": "m", "input": [{"role": "user", "content": "hi"}]}),
    ("openai-responses", {"model": "m", "input": "hi"}),
    ("openai-responses", {"object": "response", "output": []}),
    ("openai-responses", [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "a", "name": "b"}]),
    ("anthropic-messages", {"system": "s", "messages": [USER]}),
    ("anthropic-messages", {"messages": [USER, CALLS]}),
    ("anthropic-messages", [USER, CALLS]),
    ("anthropic-messages", {"messages": [USER], "tools": [{"name": "x", "input_schema": {}}]}),
    ("anthropic-messages", {"type": "message", "role": "assistant", "content": [], "usage": {}}),
    ("openai-chat", {"messages": [USER]}),
    ("openai-chat", [USER]),
    ("openai-chat", {"request": {"messages": [USER]}, "response": {"choices": []}}),
    ("openai-chat", {"choices": [{"message": {"role": "assistant", "content": "hi"}}]}),
]  # fmt: skip


@pytest.mark.parametrize(("format", "value"), RECOGNISED)
def test_formats_are_recognised(format: str, value: Any) -> None:
    for data in [json.dumps(value), json.dumps(value, indent=1), *([jsonl(*value)] if isinstance(value, list) else [])]:
        if format == "mini-swe-agent" and data == jsonl(*value if isinstance(value, list) else ()):
            continue  # only the whole list gives its text mode away
        assert one(data).format == format


@pytest.mark.parametrize(
    ("title", "value"),
    [
        ("pi session", [{"type": "session", "version": 3, "cwd": "/"}, {"type": "message"}]),
        ("OpenHands V1 events", [{"kind": "ActionEvent", "action_id": "x"}, {"kind": "ObservationEvent"}]),
        ("OpenHands evaluation output", {"instance_id": "x", "history": []}),
        ("Inspect eval log", {"version": 2, "eval": {}, "samples": []}),
        ("tau2 simulations", {"simulations": [{"messages": [{"role": "user", "requestor": "user"}]}]}),
        ("tau2 simulations", {"messages": [{"role": "user", "requestor": "user", "content": "hi"}]}),
    ],
)
def test_formats_left_out_are_named(title: str, value: Any) -> None:
    data = jsonl(*value) if isinstance(value, list) else json.dumps(value)
    with pytest.raises(FormatError, match=f"recognised as {title}, which this release does not read"):
        loads(data)


def test_records_that_contradict_each_other() -> None:
    mixed = jsonl({"sessionId": "s", "uuid": "u"}, {"type": "response_item", "payload": {"type": "message"}}, USER)
    with pytest.raises(FormatError, match="1 look like Claude Code session, 1 look like Codex rollout"):
        loads(mixed, name="mixed.jsonl")
    assert one(mixed, "codex").format == "codex"


def test_first_record_may_say_nothing() -> None:
    """Not the first record alone: what stands in front may be of any form."""
    lines = [{"anything": 1}, 7, None, {"sessionId": "s", "uuid": "u", "type": "user", "message": USER}]
    assert one(jsonl(*lines)).format == "claude-code"


def test_format_given_is_taken() -> None:
    plain = json.dumps({"messages": [USER]})
    assert one(plain).format == "openai-chat"
    assert one(plain, "anthropic-messages").format == "anthropic-messages"
    with pytest.raises(FormatError, match="unknown format 'chatml'; known are agentkit, claude-code"):
        loads(plain, format="chatml")
    with pytest.raises(FormatError, match=r"pi session.*does not read"):
        loads(plain, format="pi")


def test_refusal_says_what_was_seen() -> None:
    with pytest.raises(FormatError, match=r"x\.json is in no known format: its records have the keys alpha, beta"):
        loads(json.dumps({"alpha": 1, "beta": "secret"}), name="x.json")
    with pytest.raises(FormatError) as caught:
        loads(json.dumps({"alpha": 1, "beta": "secret"}))
    assert "secret" not in str(caught.value)


def test_detect_names_the_format(tmp_path: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([USER]))
    assert detect(path) == "openai-chat"


def test_formats_are_listed_with_titles() -> None:
    assert list(FORMATS) == [rule.name for rule in RULES if rule.read is not None]
    assert all(FORMATS.values())
