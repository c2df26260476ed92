"""Each sample: what is in it, counted; nothing of it lost; both providers' renderings valid; the same every time."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from agentkit.core.contracts.types import NativeBlock, ThinkingBlock, Usage
from agentkit.core.contracts.validity import ANTHROPIC, OPENAI_CHAT, STRICT, Rules, check, repair
from agentkit.transcripts import Transcript, detect, dumps, load, loads, to_anthropic, to_openai
from tests.transcripts.accounting import missing
from tests.transcripts.samples import FOLDER, SAMPLES, kinds, sample


@dataclass(frozen=True)
class Counts:
    """What a sample holds: conversations, messages by role over all of them, calls, and results that report failure."""

    format: str
    conversations: int
    roles: dict[str, int]
    calls: int
    errors: int


EXPECTED = {
    "agentdojo/banking-0-scripted.json": Counts(
        "agentdojo", 1, {"system": 1, "user": 1, "assistant": 3, "tool": 2}, 2, 0
    ),
    "anthropic-messages/mcp-tools.json": Counts("anthropic-messages", 1, {"user": 2, "assistant": 1}, 0, 0),
    "claude-code/small-edit-session.jsonl": Counts(
        "claude-code", 1, {"user": 2, "assistant": 7, "tool": 12}, 12, 1
    ),
    # 460 lines: 2 beside the conversation; 278 of assistant turns, of which 108 continue a response: 170 turns;
    # 152 results; 28 of the user.
    "claude-code/worktree-long.jsonl": Counts(
        "claude-code", 1, {"user": 28, "assistant": 170, "tool": 152}, 152, 22
    ),
    "langchain/thread-small.json": Counts(
        "langchain", 1, {"user": 1, "system": 1, "assistant": 4, "tool": 3}, 3, 0
    ),
    "mini-swe-agent/local.traj.json": Counts("mini-swe-agent", 1, {"system": 1, "user": 3, "assistant": 2}, 0, 0),
    "openai-chat/fncall-messages.json": Counts(
        "openai-chat", 1, {"system": 1, "user": 1, "assistant": 6, "tool": 6}, 6, 0
    ),
    # The last request holds three messages, the last response is the next turn.
    "openai-chat/roundtrip-stable.exchanges.jsonl": Counts(
        "openai-chat", 1, {"user": 1, "assistant": 2, "tool": 1}, 1, 0
    ),
    "openai-chat/roundtrip-stable.json": Counts("openai-chat", 1, {"user": 1, "assistant": 1, "tool": 1}, 1, 0),
    "openhands/small-replay.json": Counts("openhands", 1, {"user": 1, "assistant": 4, "tool": 3}, 4, 0),
    "swe-agent/function-calling-simple.traj": Counts(
        "swe-agent", 1, {"system": 1, "user": 1, "assistant": 5, "tool": 5}, 5, 0
    ),
    "tau-bench/gpt4o-airline-mixed.json": Counts(
        "tau-bench", 15, {"system": 15, "user": 133, "assistant": 188, "tool": 70}, 70, 3
    ),
    "tau-bench/gpt4o-airline-two.json": Counts(
        "tau-bench", 2, {"system": 2, "user": 11, "assistant": 22, "tool": 13}, 13, 1
    ),
}  # fmt: skip


def messages(transcripts: tuple[Transcript, ...]) -> list[Any]:
    return [message for transcript in transcripts for message in transcript.history]


def test_every_sample_is_counted() -> None:
    assert sorted(EXPECTED) == SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_counts(name: str) -> None:
    expected, transcripts = EXPECTED[name], load(FOLDER / name)
    found = messages(transcripts)
    assert detect(FOLDER / name) == expected.format
    assert {transcript.format for transcript in transcripts} == {expected.format}
    assert len(transcripts) == expected.conversations
    assert Counter(message.role for message in found) == expected.roles
    assert sum(len(message.tool_calls) for message in found) == expected.calls
    assert sum(message.is_error for message in found) == expected.errors


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_of_a_sample_is_lost(name: str) -> None:
    """I2, I5: every text, id and name is in the history, the meta or the report; nothing is reported as lost."""
    transcripts = load(FOLDER / name)
    assert missing(sample(name), transcripts) == []
    assert not any(transcript.report.has_losses for transcript in transcripts)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_imports_equal(name: str) -> None:
    data = sample(name)
    assert loads(data) == loads(data) == load(FOLDER / name)
    assert loads(dumps(load(FOLDER / name))) == load(FOLDER / name)


@pytest.mark.parametrize("rules", [ANTHROPIC, OPENAI_CHAT, STRICT], ids=lambda rules: rules.name)
@pytest.mark.parametrize("name", SAMPLES)
def test_sample_views_are_valid(name: str, rules: Rules) -> None:
    """G5."""
    for transcript in load(FOLDER / name):
        prefix = len(transcript.context.prefix.as_messages())
        before = tuple(transcript.history)
        view = repair(transcript.context.assembled(), rules, prefix=prefix).messages
        assert check(view, rules, prefix=prefix) == ()
        assert transcript.history == before


@pytest.mark.parametrize(("export", "format"), [(to_anthropic, "anthropic-messages"), (to_openai, "openai-chat")])
@pytest.mark.parametrize("name", SAMPLES)
def test_sample_exports_are_stable(name: str, export: Any, format: str) -> None:
    """I5: an export, imported again, exports to the same bytes, recognised by itself as well."""
    for transcript in load(FOLDER / name):
        first = json.dumps(export(transcript), ensure_ascii=False).encode()
        for found in (loads(first, format=format), loads(first)):
            (again,) = found
            assert json.dumps(export(again), ensure_ascii=False).encode() == first


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_context_is_its_history(name: str) -> None:
    """None of the samples holds a compaction, so what would be sent next is all that was said."""
    for transcript in load(FOLDER / name):
        assert transcript.context.assembled() == list(transcript.history)
        assert transcript.compactions == ()


def test_claude_code_sample_usage() -> None:
    """I1, I4: once per response, the last record's figures, cached tokens apart."""
    (transcript,) = load(FOLDER / "claude-code/small-edit-session.jsonl")
    usages = [response.usage for response in transcript.responses]
    assert [u.output_tokens for u in usages if u] == [322, 285, 146, 41, 1, 86, 72]
    assert [u.cache_read_tokens for u in usages if u] == [4734, 15550, 15854, 16289, 16532, 16957, 17303]
    assert transcript.usage == sum([u for u in usages if u], Usage())
    assert [response.index for response in transcript.responses] == [2, 4, 10, 14, 16, 18, 20]
    assert {response.model for response in transcript.responses} == {"claude-sonnet-4-20250514"}
    assert transcript.responses[0].time == "2025-09-03T00:47:21.540Z"
    (doubtful,) = transcript.report.of("usage doubtful")
    assert doubtful.place == "line 24"
    assert transcript.responses[4].reading is not None
    assert transcript.responses[4].reading.is_doubtful
    assert transcript.responses[4].reading.anchor is None


def test_claude_code_sample_marks_injected_text() -> None:
    (transcript,) = load(FOLDER / "claude-code/small-edit-session.jsonl")
    assert [message.meta.get("injected") for message in transcript.history[:2]] == [True, True]
    assert [m.content for m in transcript.history if m.role == "tool" and not m.content] == [""]
    assert {m.name for m in transcript.history if m.role == "tool"} == {"TodoWrite", "Bash", "Glob", "Write"}


def test_claude_code_long_sample() -> None:
    (transcript,) = load(FOLDER / "claude-code/worktree-long.jsonl")
    assert transcript.meta["titles"] == [
        "Debugging Complex Web App Authentication and Performance Issues",
        "Clarifying AI Assistant's Action-Taking Guidelines",
    ]
    # Five of the six places that say so are messages: one result, four of the user; the sixth is a copy in the meta.
    interrupted = [m.role for m in transcript.history if m.content.startswith("[Request interrupted by user")]
    assert Counter(interrupted) == {"user": 4, "tool": 1}
    assert sum(response.reading is not None for response in transcript.responses) == 170
    # The record of the caveat, the echo of /context, and its output.
    assert sum(m.meta.get("injected") is True for m in transcript.history) == 3


def test_exchanges_sample_usage() -> None:
    (transcript,) = load(FOLDER / "openai-chat/roundtrip-stable.exchanges.jsonl")
    assert [(r.index, r.usage) for r in transcript.responses] == [(1, Usage(48, 14)), (3, Usage(74, 8))]
    assert [tool.name for tool in transcript.tools] == ["get_weather"]
    (alone,) = load(FOLDER / "openai-chat/roundtrip-stable.json")
    assert transcript.history[:3] == alone.history
    assert to_openai(alone)["messages"] == json.loads(sample("openai-chat/roundtrip-stable.json"))["messages"]


def test_openhands_sample() -> None:
    """Inclusive figures: fresh tokens are what neither the cache gave nor took; a closing finish stays unanswered."""
    (transcript,) = load(FOLDER / "openhands/small-replay.json")
    usages = [response.usage for response in transcript.responses]
    assert [(u.input_tokens, u.cache_read_tokens, u.cache_write_tokens) for u in usages if u] == [
        (4, 0, 3471), (6, 3471, 139), (6, 3610, 188), (6, 3798, 129)
    ]  # fmt: skip
    assert [call.name for m in transcript.history for call in m.tool_calls] == [
        "str_replace_editor", "execute_bash", "str_replace_editor", "finish"
    ]  # fmt: skip
    assert kinds(transcript) == ["call unanswered"]
    assert transcript.history[1].content.startswith("I'll help you rename the file.")


def test_agentdojo_sample_pairs_by_order() -> None:
    (transcript,) = load(FOLDER / "agentdojo/banking-0-scripted.json")
    calls = [call.id for m in transcript.history for call in m.tool_calls]
    assert calls == [m.tool_call_id for m in transcript.history if m.role == "tool"] == ["call-1", "call-2"]
    assert [m.name for m in transcript.history if m.role == "tool"] == ["read_file", "send_money"]
    assert kinds(transcript) == ["id generated"] * 4 + ["turn empty"]


def test_tau_bench_sample_keeps_repeated_ids() -> None:
    """P7: one id names two calls; both stay, each with its own result."""
    first, second = load(FOLDER / "tau-bench/gpt4o-airline-two.json")
    assert (first.id, second.id) == ("task-10-trial-1", "task-11-trial-1")
    assert (first.meta["reward"], second.meta["reward"]) == (0.0, 0.0)
    assert kinds(second) == ["id repeated"]
    made = [c.id for m in second.history for c in m.tool_calls]
    assert (len(made), len(set(made))) == (11, 10)
    view = repair(second.context.assembled(), ANTHROPIC, prefix=1).messages
    sent = [c.id for m in view for c in m.tool_calls]
    assert len(sent) == len(set(sent)) == 11


def test_langchain_sample_keeps_late_system_text() -> None:
    """E6."""
    (transcript,) = load(FOLDER / "langchain/thread-small.json")
    assert [m.role for m in transcript.history][:2] == ["user", "system"]
    assert transcript.context.prefix.as_messages() == []
    assert transcript.label == "Interactive 3D Weather Forecast Interface"
    assert to_openai(transcript)["messages"][1]["role"] == "system"
    assert to_anthropic(transcript)["messages"][0]["role"] == "user"


def test_anthropic_sample_keeps_provider_run_calls() -> None:
    """A call that the provider ran, and its result, go back as they came; for another provider they are left out."""
    (transcript,) = load(FOLDER / "anthropic-messages/mcp-tools.json")
    blocks = transcript.history[1].blocks
    assert isinstance(blocks[0], ThinkingBlock)
    assert [b.payload["type"] for b in blocks if isinstance(b, NativeBlock)] == ["mcp_tool_use", "mcp_tool_result"]
    recorded = json.loads(sample("anthropic-messages/mcp-tools.json"))
    body = to_anthropic(transcript)
    assert body["messages"][1]["content"] == recorded["messages"][1]["content"]
    assert {k: v for k, v in body.items() if k != "messages"} == {k: v for k, v in recorded.items() if k != "messages"}
    assert [m["role"] for m in to_openai(transcript)["messages"]] == ["user", "assistant", "user"]


def test_text_dialect_stays_text() -> None:
    (transcript,) = load(FOLDER / "mini-swe-agent/local.traj.json")
    assert kinds(transcript) == ["calls as text", "turn empty"]
    assert all(not message.tool_calls for message in transcript.history)
