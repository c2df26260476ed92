"""Logs of agents and benchmarks: SWE-agent, mini-swe-agent, OpenHands, LangChain, AgentDojo, tau-bench."""

from typing import Any

from agentkit.core.contracts.types import ImageBlock, RedactedThinkingBlock, ThinkingBlock, Usage, marked
from agentkit.transcripts import loads
from tests.transcripts.samples import jsonl, kinds, one


def call(id: Any, name: str = "bash", arguments: Any = '{"command": "ls"}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


# SWE-agent


def test_swe_agent_run() -> None:
    run = {
        "environment": "swe_main",
        "trajectory": [{"query": [{"role": "user", "content": "a copy of the prompt"}], "response": "r"}],
        "history": [
            {"role": "system", "content": "s", "agent": "main", "message_type": "system_prompt"},
            {"role": "user", "content": "demo", "is_demo": True, "message_type": "demonstration"},
            {"role": "assistant", "content": "demo", "is_demo": True, "tool_calls": [call("d1")]},
            {"role": "tool", "content": "demo", "is_demo": True, "tool_call_ids": ["d1"]},
            {"role": "user", "content": "fix it", "message_type": "observation"},
            {
                "role": "assistant", "content": "let me see", "thought": "let me see", "action": "ls",
                "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "sig"}],
                "tool_calls": [call("c1"), call("c2")],
            },
            {"role": "tool", "content": "a.py", "tool_call_ids": ["c1", "c2"], "message_type": "observation"},
        ],
        "info": {
            "exit_status": "submitted",
            "model_stats": {"instance_cost": 0.25, "tokens_sent": 1000, "tokens_received": 50, "api_calls": 1},
        },
    }  # fmt: skip
    transcript = one(run)
    assert [m.role for m in transcript.history] == ["system", "user", "assistant", "tool", "user", "assistant", "tool"]
    assert [bool(m.meta.get("demo")) for m in transcript.history] == [False, True, True, True, False, False, False]
    assert transcript.history[5].blocks[0] == ThinkingBlock("hm", "sig")
    assert transcript.history[5].meta["action"] == "ls"
    assert transcript.history[6].tool_call_id == "c1"
    assert transcript.usage == Usage(1000, 50, 0.25)
    assert [response.index for response in transcript.responses] == [5]
    assert transcript.meta["info"]["exit_status"] == "submitted"
    assert kinds(transcript) == ["result shared", "display copy", "call unanswered"]
    assert len(transcript.context.messages) == 6


# mini-swe-agent


def test_mini_swe_agent_with_calls() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 60}}
    run = {
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": "repo__1",
        "info": {"exit_status": "Submitted", "model_stats": {"instance_cost": 0.02, "api_calls": 2}},
        "messages": [
            {"role": "user", "content": "fix it"},
            {
                "role": "assistant", "content": "ok", "tool_calls": [call("c1")],
                "extra": {"cost": 0.02, "timestamp": 0, "response": {"model": "m", "usage": usage}},
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a.py", "extra": {"returncode": 0}},
            {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
        ],
    }  # fmt: skip
    transcript = one(run)
    assert transcript.usage == Usage(40, 9, 0.02, 60)
    assert (transcript.responses[0].model, transcript.responses[0].time) == ("m", "1970-01-01T00:00:00Z")
    assert [m.role for m in transcript.history] == ["user", "assistant", "tool", "exit"]
    assert [m.role for m in transcript.context.messages] == ["user", "assistant", "tool"]
    assert (transcript.id, transcript.meta["outcome"]) == ("repo__1", "Submitted")
    assert transcript.history[2].meta["extra"] == {"returncode": 0}
    assert kinds(transcript) == ["turn empty"]


def test_mini_swe_agent_totals() -> None:
    info = {"model_stats": {"instance_cost": 0.5}}
    run = {"trajectory_format": "mini-swe-agent-1", "info": info, "messages": [{"role": "user", "content": "x"}]}
    assert one(run).usage == Usage(cost_usd=0.5)


# OpenHands


def told(response: str, *ids: str, text: str = "", usage: Any = None, at: int = 0) -> dict[str, Any]:
    calls = [call(id, "execute_bash") for id in ids]
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    model_response = {"id": response, "model": "claude", "choices": [{"message": message}], "usage": usage}
    return {"function_name": "execute_bash", "tool_call_id": ids[at], "model_response": model_response}


def ran(id: int, metadata: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    event = {"id": id, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "looking"}, **fields}
    return event if metadata is None else {**event, "tool_call_metadata": metadata}


def seen(id: int, cause: int | None, content: str = "ok", **fields: Any) -> dict[str, Any]:
    return {
        "id": id,
        "source": "agent",
        "observation": "run",
        "cause": cause,
        "content": content,
        "extras": {},
        **fields,
    }


ASKED = {"id": 0, "source": "user", "action": "message", "args": {"content": "hi", "image_urls": ["https://x.y/a.png"]}}


def test_openhands_joins_calls_of_one_response() -> None:
    """I1, I3: the text counts once, display copies and events not for the model stay out."""
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    transcript = one(
        [
            {"id": -1, "source": "agent", "action": "system", "args": {"content": "be brief", "tools": []}},
            ASKED,
            {"id": 1, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": {}},
            {"id": 2, "source": "agent", "action": "change_agent_state", "args": {}},
            ran(3, told("r1", "a", "b", text="looking", usage=usage), message="Running command: ls"),
            ran(4, told("r1", "a", "b", text="looking", usage=usage, at=1)),
            seen(5, 3, "first"),
            seen(6, 4, "second"),
            {"id": 7, "source": "agent", "action": "null", "args": {}},
        ]
    )
    assert [m.role for m in transcript.history] == ["system", "user", "assistant", "tool", "tool"]
    assert transcript.history[1].blocks[1] == ImageBlock("https://x.y/a.png")
    turn = transcript.history[2]
    assert (turn.content, [c.id for c in turn.tool_calls]) == ("looking", ["a", "b"])
    assert [(m.tool_call_id, m.name) for m in transcript.history[3:]] == [("a", "execute_bash"), ("b", "execute_bash")]
    assert transcript.usage == Usage(10, 2)
    assert len(transcript.meta["records"]) == 3
    assert transcript.report.of("joined")


def test_openhands_without_metadata_pairs_by_cause() -> None:
    transcript = one([ASKED, ran(3), ran(4), seen(6, 4, "second"), seen(5, 3, "first")])
    assert [(m.content, m.tool_call_id) for m in transcript.history if m.role == "tool"] == [
        ("second", "call-2"), ("first", "call-1")
    ]  # fmt: skip
    assert [m.content for m in transcript.history if m.role == "assistant"] == ["looking", "looking"]
    assert transcript.history[1].tool_calls[0].arguments == {"command": "ls"}


def test_openhands_error_without_cause() -> None:
    """An error without a cause answers a call that was never stored."""
    error = {"id": 4, "source": "agent", "observation": "error", "content": "no such tool", "extras": {}}
    transcript = one([ASKED, ran(3, told("r1", "a")), error])
    assert (transcript.history[2].is_error, transcript.history[2].content) == (True, "no such tool")
    assert kinds(transcript) == ["result without call", "call unanswered"]


def test_openhands_accumulated_metrics() -> None:
    def metrics(cost: float, prompt: int) -> dict[str, Any]:
        tokens = {"prompt_tokens": prompt, "completion_tokens": prompt // 10, "cache_read_tokens": prompt // 2}
        return {"accumulated_cost": cost, "accumulated_token_usage": tokens}

    transcript = one(
        [ASKED, ran(1, llm_metrics=metrics(0.1, 100)), seen(2, 1), ran(3, llm_metrics=metrics(0.3, 300)), seen(4, 3)]
    )
    assert [r.usage for r in transcript.responses] == [
        Usage(50, 10, 0.1, 50),
        Usage(100, 20, 0.2, 100),
    ]
    assert transcript.usage == Usage(150, 30, 0.3, 150)


def test_openhands_condensation() -> None:
    """I3: named events leave the context, and the summary stands at its offset."""
    args = {"forgotten_event_ids": [1, 2], "summary": "it listed files", "summary_offset": 1}
    transcript = one(
        [
            ASKED, ran(1), seen(2, 1), ran(3), seen(4, 3),
            {"id": 5, "source": "agent", "action": "condensation", "args": args},
            ran(6), seen(7, 6, "last"),
        ]
    )  # fmt: skip
    assert [m.role for m in transcript.history] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
    ]
    assert [m.role for m in transcript.context.messages] == ["user", "user", "assistant", "tool", "assistant", "tool"]
    assert transcript.context.messages[1].content == "it listed files"
    assert marked(transcript.context.messages[1], "summary") == {"covers": 2}
    ranged = {"forgotten_events_start_id": 1, "forgotten_events_end_id": 4, "summary": "s", "summary_offset": 1}
    again = one(
        [
            ASKED,
            ran(1),
            seen(2, 1),
            ran(3),
            seen(4, 3),
            {"id": 5, "source": "agent", "action": "condensation", "args": ranged},
        ]
    )
    assert [m.content for m in again.context.messages] == ["hi", "s"]


def test_openhands_export_with_trajectory() -> None:
    assert [m.content for m in one({"trajectory": [ASKED], "status": "ok"}).history] == ["hi"]


def test_openhands_recall_is_injected_text() -> None:
    recall = {"id": 2, "source": "user", "action": "recall", "args": {"query": "hi"}}
    found = {
        "id": 3,
        "source": "environment",
        "observation": "recall",
        "content": "the repo is big",
        "cause": 2,
        "extras": {},
    }
    transcript = one([ASKED, recall, found])
    assert [(m.role, m.content, m.meta.get("injected")) for m in transcript.history] == [
        ("user", "hi", None), ("user", "the repo is big", True)
    ]  # fmt: skip


# LangChain


def test_langchain_spellings_are_one() -> None:
    flat = {"type": "ai", "content": "yes", "id": "m1", "tool_calls": [{"name": "ls", "args": {"a": 1}, "id": "c1"}]}
    data = {"type": "ai", "data": {k: v for k, v in flat.items() if k != "type"}}
    kwargs = {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": data["data"]}
    human: dict[str, Any] = {"type": "human", "content": "hi"}
    found = [one([human, spelled]).history for spelled in (flat, data, kwargs)]
    assert found[0] == found[1] == found[2]
    assert found[0][1].tool_calls[0].arguments == {"a": 1}


def test_langchain_graph_edits_messages() -> None:
    """As in the graph: a repeated id replaces, `remove` deletes."""
    transcript = one(
        [
            {"type": "human", "content": "one", "id": "a"},
            {"type": "ai", "content": "two", "id": "b"},
            {"type": "human", "content": "three", "id": "c"},
            {"type": "ai", "content": "better two", "id": "b"},
            {"type": "remove", "content": "", "id": "c"},
            {"type": "remove", "content": "", "id": "z"},
        ]
    )
    assert [m.content for m in transcript.history] == ["one", "better two"]
    assert kinds(transcript) == ["message replaced", "messages removed", "messages removed"]
    cleared = one(
        [
            {"type": "human", "content": "x", "id": "a"},
            {"type": "remove", "id": "__remove_all__"},
            {"type": "ai", "content": "y"},
        ]
    )
    assert [m.content for m in cleared.history] == ["y"]


def test_langchain_call_among_content_is_one_call() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "look"},
        {"type": "tool_use", "id": "c1", "name": "ls", "input": {"a": 1}},
    ]
    usage = {"input_tokens": 100, "output_tokens": 5, "input_token_details": {"cache_read": 60, "cache_creation": 30}}
    turn = {
        "type": "ai",
        "content": content,
        "tool_calls": [{"name": "ls", "args": {"a": 1}, "id": "c1", "type": "tool_call"}],
        "invalid_tool_calls": [{"name": "ls", "args": "{oops", "id": "c2", "error": "no JSON"}],
        "usage_metadata": usage,
        "response_metadata": {"model_name": "claude"},
    }
    result = {"type": "tool", "content": "denied", "tool_call_id": "c1", "status": "error", "artifact": {"n": 1}}
    transcript = one([{"type": "human", "content": "hi"}, turn, result])
    message = transcript.history[1]
    assert [c.id for c in message.tool_calls] == ["c1", "c2"]
    assert message.tool_calls[1].invalid
    assert message.tool_calls[1].meta["error"] == "no JSON"
    assert message.blocks[0] == ThinkingBlock("hm", "s")
    assert transcript.history[2].is_error
    assert transcript.history[2].meta["artifact"] == {"n": 1}
    assert transcript.usage == Usage(10, 5, 0.0, 60, 30)
    assert transcript.responses[0].model == "claude"


def test_langchain_older_calls_and_chunks() -> None:
    turn = {"type": "AIMessageChunk", "content": "", "additional_kwargs": {"tool_calls": [call("c1", "ls")]}}
    transcript = one([{"type": "human", "content": "hi"}, turn])
    assert transcript.history[1].role == "assistant"
    assert transcript.history[1].tool_calls[0].name == "ls"


# AgentDojo


def test_agentdojo_errors_and_thinking() -> None:
    thinking = [
        {"type": "thinking", "content": "hm", "signature": "s"},
        {"type": "redacted_thinking", "content": "x"},
    ]
    pay = {"function": "pay", "args": {"n": 1}, "id": "c1", "placeholder_args": None}
    run = {
        "suite_name": "banking",
        "pipeline_name": "gpt",
        "user_task_id": "user_task_1",
        "injection_task_id": "injection_task_2",
        "messages": [
            {"role": "user", "content": [{"type": "text", "content": "go"}]},
            {"role": "assistant", "content": thinking, "tool_calls": [pay]},
            {"role": "tool", "content": "", "tool_call_id": "c1", "tool_call": pay, "error": "ValidationError: n"},
            {"role": "assistant", "content": "old logs have plain text", "tool_calls": None},
        ],
    }
    transcript = one(run)
    assert transcript.id == "banking/user_task_1/injection_task_2"
    assert transcript.history[1].blocks == (ThinkingBlock("hm", "s"), RedactedThinkingBlock("x"))
    result = transcript.history[2]
    assert (result.is_error, result.content, result.name) == (True, "ValidationError: n", "pay")
    assert transcript.history[3].content == "old logs have plain text"
    assert kinds(transcript) == []


def test_agentdojo_copy_tells_wrong_pairs() -> None:
    first = {"function": "pay", "args": {"n": 1}, "id": None}
    second = {"function": "pay", "args": {"n": 2}, "id": None}
    turn = {"role": "assistant", "content": "", "tool_calls": [first, second]}
    results = [{"role": "tool", "content": "ok", "tool_call": copy} for copy in (second, first)]
    transcript = one({"suite_name": "s", "messages": [{"role": "user", "content": "hi"}, turn, *results]})
    assert [f.place for f in transcript.report.of("pairing doubtful")] == ["message 3", "message 4"]


def test_agentdojo_conversations() -> None:
    talk = [{"role": "user", "content": "hi"}]
    first, second = loads(jsonl({"suite_name": "s", "conversations": [talk, talk]}))
    assert (first.id, second.id) == ("s", "s#2")


# tau-bench


def test_tau_bench_run_without_steps() -> None:
    good, bad = loads(
        jsonl({"traj": [{"role": "user", "content": "hi"}], "task_id": 3, "trial": 0}, {"traj": [], "reward": 1.0})
    )
    assert (good.id, bad.id, bad.meta["reward"]) == ("task-3-trial-0", "run-2", 1.0)
