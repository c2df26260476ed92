"""Claude Code: a tree of records made into a line of messages."""

import json
from typing import Any

from agentkit.core.contracts.types import Message, ThinkingBlock, Usage, marked
from agentkit.transcripts import Transcript, loads
from tests.transcripts.samples import jsonl, kinds, one

SESSION = "5e551011"


def record(uuid: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    moment = f"2025-09-03T00:00:{int(fields.pop('at', 0)):02d}.000Z"
    common = {"parentUuid": parent, "isSidechain": False, "sessionId": SESSION, "uuid": uuid, "timestamp": moment}
    return {**common, "cwd": "/repo", "version": "2.0.0", **fields}


def user(uuid: str, parent: str | None, content: Any, **fields: Any) -> dict[str, Any]:
    return record(uuid, parent, type="user", message={"role": "user", "content": content}, **fields)


def assistant(uuid: str, parent: str | None, id: str, *content: Any, out: int = 50, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": out}
    message = {"id": id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
    return record(uuid, parent, type="assistant", message={**message, "content": list(content)}, **fields)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result(id: str, content: Any = "ok", **fields: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": id, "content": content, **fields}]


def shown(transcript: Transcript) -> list[str]:
    return [f"{m.role}:{m.content}" + "".join(f"+{c.id}" for c in m.tool_calls) for m in transcript.history]


def context(transcript: Transcript) -> list[str]:
    return [m.content for m in transcript.context.messages]


def test_response_is_joined_and_counted_once() -> None:
    """I1: the records of one response are one turn, whose usage is the last record's."""
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            assistant("a1", "u1", "m1", {"type": "thinking", "thinking": "hm", "signature": "s"}, out=1),
            assistant("a2", "a1", "m1", text("let me look"), out=8),
            assistant("a3", "a2", "m1", call("t1", command="ls"), out=60),
            user("u2", "a3", result("t1")),
        )
    )
    assert shown(transcript) == ["user:hi", "assistant:let me look+t1", "tool:ok"]
    turn = transcript.history[1]
    assert isinstance(turn.blocks[0], ThinkingBlock)
    assert turn.blocks[0].signature == "s"
    assert transcript.usage == Usage(10, 60, cache_read_tokens=100, cache_write_tokens=5)
    assert transcript.history[2].name == "Bash"
    assert [source["uuid"] for source in turn.meta["source"]] == ["a1", "a2", "a3"]
    assert transcript.context.messages == list(transcript.history)


def test_results_of_parallel_calls_hang_apart() -> None:
    """Each result hangs on the record of its own call, so one of them is off the path; both belong to it."""
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            assistant("a1", "u1", "m1", call("t1")),
            assistant("a2", "a1", "m1", call("t2")),
            user("r1", "a1", result("t1", "first")),
            user("r2", "a2", result("t2", "second")),
            assistant("a3", "r2", "m2", text("done")),
        )
    )
    assert shown(transcript) == ["user:hi", "assistant:+t1+t2", "tool:first", "tool:second", "assistant:done"]
    assert kinds(transcript) == ["joined"]


def test_response_is_joined_across_other_records() -> None:
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            assistant("a1", "u1", "m1", text("one moment")),
            user("u2", "a1", "hurry"),
            assistant("a2", "u2", "m1", call("t1")),
            user("u3", "a2", result("t1")),
        )
    )
    assert shown(transcript) == ["user:hi", "assistant:one moment+t1", "user:hurry", "tool:ok"]


def test_abandoned_branch_is_left_out() -> None:
    """I3: what was rewound is not in the history, but what it cost was spent."""
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            assistant("a1", "u1", "m1", text("hello")),
            user("u2", "a1", "wrong question"),
            assistant("a2", "u2", "m2", text("wrong answer")),
            user("u3", "a1", "right question"),
            assistant("a3", "u3", "m3", text("right answer")),
        )
    )
    assert context(transcript) == ["hi", "hello", "right question", "right answer"]
    (left,) = transcript.report.of("branch left out")
    assert left.place == "line 3, line 4"
    assert [r.index for r in transcript.responses] == [1, 3, None]
    assert transcript.usage.output_tokens == 150


def test_leaf_may_be_told() -> None:
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            user("u2", "u1", "left"),
            user("u3", "u1", "right"),
            {"type": "last-prompt", "leafUuid": "u2", "sessionId": SESSION},
        )
    )
    assert context(transcript) == ["hi", "left"]
    later = one(
        jsonl(
            user("u1", None, "hi"),
            {"type": "last-prompt", "leafUuid": "u1", "sessionId": SESSION},
            user("u2", "u1", "more"),
        )
    )
    assert context(later) == ["hi", "more"]


def test_tree_order_beats_file_order() -> None:
    lines = [
        user("u1", None, "one"),
        assistant("a1", "u1", "m1", text("two")),
        user("u2", "a1", "three"),
        assistant("a2", "u2", "m2", text("four")),
    ]
    moved = [lines[0], lines[2], lines[1], lines[3]]
    assert context(one(jsonl(*moved))) == ["one", "two", "three", "four"]


def test_broken_line_costs_that_line_only() -> None:
    """I2: the chain goes on across a line that cannot be read."""
    whole = jsonl(
        user("u1", None, "one"),
        assistant("a1", "u1", "m1", text("two")),
        user("u2", "a1", "three"),
        assistant("a2", "u2", "m2", text("four")),
    ).splitlines()
    whole[1] = whole[1][:40]
    transcript = one("\n".join(whole))
    assert context(transcript) == ["one", "three", "four"]
    assert kinds(transcript) == ["line broken", "link broken"]
    assert transcript.report.of("line broken")[0].place == "line 2"


def test_parent_elsewhere_makes_a_root() -> None:
    transcript = one(jsonl(user("u5", "in-another-file", "hi"), assistant("a5", "u5", "m1", text("hello"))))
    assert context(transcript) == ["hi", "hello"]
    assert kinds(transcript) == []


def test_client_made_error_is_not_sent() -> None:
    fields = {"type": "message", "role": "assistant", "model": "<synthetic>", "usage": {"input_tokens": 9}}
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            record(
                "a1", "u1", type="assistant", isApiErrorMessage=True,
                message={"id": "m1", **fields, "content": [text("API Error: overloaded")]},
            ),
            user("u2", "a1", "again"),
        )
    )  # fmt: skip
    assert shown(transcript)[1] == "assistant:API Error: overloaded"
    assert context(transcript) == ["hi", "again"]
    assert transcript.usage == Usage()
    assert transcript.responses == ()
    assert kinds(transcript) == ["client message"]


def compacted(metadata: dict[str, Any], *after: dict[str, Any]) -> Transcript:
    return one(
        jsonl(
            user("u1", None, "task", at=1),
            assistant("a1", "u1", "m1", text("working"), at=2),
            user("u2", "a1", "go on", at=3),
            assistant("a2", "u2", "m2", text("worked"), at=4),
            record(
                "b1", None, type="system", subtype="compact_boundary", logicalParentUuid="a2", at=10,
                compactMetadata={"trigger": "auto", "preTokens": 155025, **metadata},
            ),
            user("s1", "b1", "what happened so far", isCompactSummary=True, at=11),
            *after,
        )
    )  # fmt: skip


def test_compaction_starts_the_context() -> None:
    """I3: the view the agent had; the history goes on across the boundary."""
    transcript = compacted({}, user("u3", "s1", "next", at=12))
    assert [m.content for m in transcript.history] == [
        "task", "working", "go on", "worked", "what happened so far", "next"
    ]  # fmt: skip
    assert context(transcript) == ["what happened so far", "next"]
    assert marked(transcript.history[4], "summary") == {"covers": 4}
    (compaction,) = transcript.compactions
    assert (compaction.index, compaction.trigger, compaction.tokens_before) == (4, "auto", 155025)
    assert kinds(transcript) == ["compaction"]


def test_compaction_may_keep_messages() -> None:
    named = {"preservedMessages": {"anchorUuid": "s1", "uuids": ["u2", "a2"]}}
    segment = {"preservedSegment": {"anchorUuid": "s1", "headUuid": "u2", "tailUuid": "a2"}}
    for metadata in (named, segment):
        transcript = compacted(metadata, user("u3", "a2", "next", at=12))
        assert [m.content for m in transcript.history][4:] == ["what happened so far", "next"]
        assert context(transcript) == ["what happened so far", "go on", "worked", "next"]
        assert transcript.compactions[0].kept == (2, 3)


def test_kept_message_written_again_comes_once() -> None:
    transcript = compacted(
        {},
        user("u2b", "s1", "go on", at=3),
        assistant("a2b", "u2b", "m2", text("worked"), at=4),
        user("u3", "a2b", "next", at=12),
    )
    assert [m.content for m in transcript.history] == [
        "task", "working", "go on", "worked", "what happened so far", "next"
    ]  # fmt: skip
    assert context(transcript) == ["what happened so far", "go on", "worked", "next"]
    assert "duplicate skipped" in kinds(transcript)


def test_second_compaction_covers_the_first() -> None:
    transcript = compacted(
        {},
        user("u3", "s1", "next", at=12),
        record("b2", None, type="system", subtype="compact_boundary", logicalParentUuid="u3", at=20),
        user("s2", "b2", "all of it", isCompactSummary=True, at=21),
        user("u4", "s2", "last", at=22),
    )
    assert context(transcript) == ["all of it", "last"]
    assert [c.index for c in transcript.compactions] == [4, 6]
    assert marked(transcript.history[6], "summary") == {"covers": 2}


def test_sub_agents_are_conversations_of_their_own() -> None:
    """I3: interleaved in the file; linked by prompt or by the id that the result reports."""
    side = {"isSidechain": True}
    main, first, second = loads(
        jsonl(
            user("u1", None, "hi"),
            assistant("a1", "u1", "m1", call("t1", "Task", prompt="count files"), call("t2", "Task", prompt="read")),
            user("s1", None, "count files", **side),
            user("x1", None, "something else", **side, agentId="agent7"),
            assistant("s2", "s1", "n1", text("three"), **side),
            assistant("x2", "x1", "n2", text("read it"), **side, agentId="agent7"),
            user("r1", "a1", result("t1", "three")),
            user("r2", "r1", result("t2", "read it"), toolUseResult={"agentId": "agent7", "content": "read it"}),
        )
    )
    assert [m.content for m in main.history] == ["hi", "", "three", "read it"]
    assert [m.content for m in first.history] == ["count files", "three"]
    assert [m.content for m in second.history] == ["something else", "read it"]
    assert main.parent is None
    assert first.parent is not None
    assert second.parent is not None
    assert (first.parent.transcript_id, first.parent.call_id) == (main.id, "t1")
    assert (second.id, second.parent.call_id) == (f"{SESSION}/agent7", "t2")
    assert [len(t.responses) for t in (main, first, second)] == [1, 1, 1]


def test_file_of_a_sub_agent_alone() -> None:
    side: dict[str, Any] = {"isSidechain": True, "agentId": "agent7"}
    transcript = one(jsonl(user("u1", None, "go", **side), assistant("a1", "u1", "m1", text("done"), **side)))
    assert context(transcript) == ["go", "done"]
    assert transcript.parent is not None
    assert transcript.parent.call_id is None


def streamed(uuid: str, type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, "session_id": SESSION, "uuid": uuid, **fields}


def test_stream_of_the_sdk() -> None:
    """The same records without links: the order of the file counts."""
    asks = {"id": "m1", "role": "assistant", "content": [call("t1", "Task", prompt="look")]}
    transcript, child = loads(
        jsonl(
            streamed("i", "system", subtype="init", model="claude-sonnet-4-5", tools=["Bash"]),
            streamed("u1", "user", message={"role": "user", "content": "hi"}, parent_tool_use_id=None),
            streamed("a1", "assistant", message=asks, parent_tool_use_id=None),
            streamed("c1", "user", message={"role": "user", "content": "look"}, parent_tool_use_id="t1"),
            streamed("u2", "user", message={"role": "user", "content": result("t1", "seen")}),
            streamed("z", "result", total_cost_usd=0.5, usage={"input_tokens": 1000}),
        )
    )
    assert shown(transcript) == ["user:hi", "assistant:+t1", "tool:seen"]
    assert transcript.id == SESSION
    assert child.parent is not None
    assert child.parent.call_id == "t1"
    assert [r["record"]["type"] for r in transcript.meta["records"]] == ["system", "result"]
    assert transcript.usage == Usage()


def test_compaction_in_the_stream_of_the_sdk() -> None:
    boundary = streamed(
        "b", "system", subtype="compact_boundary", compact_metadata={"trigger": "manual", "pre_tokens": 9}
    )
    told = "This session is being continued from a previous conversation that ran out of context. So far: x"
    transcript = one(
        jsonl(
            streamed("u1", "user", message={"role": "user", "content": "hi"}),
            boundary,
            streamed("u2", "user", message={"role": "user", "content": told}),
            streamed("u3", "user", message={"role": "user", "content": "next"}),
        )
    )
    assert context(transcript) == [told, "next"]
    (compaction,) = transcript.compactions
    assert (compaction.index, compaction.trigger, compaction.tokens_before) == (1, "manual", 9)


def test_attachments_and_notices() -> None:
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            record("n1", "u1", type="attachment", attachment={"type": "hook", "content": ["mind", "the gap"]}),
            record("n2", "n1", type="attachment", attachment={"type": "diagnostics", "files": []}),
            record("n3", "n2", type="system", subtype="turn_duration", content="notice", durationMs=5),
            record("n4", "n3", type="progress", data={"lines": 4}),
            assistant("a1", "n4", "m1", text("hello")),
        )
    )
    assert [(m.content, m.meta.get("injected")) for m in transcript.history] == [
        ("hi", None), ("mind\nthe gap", True), ("hello", None)
    ]  # fmt: skip
    assert [r["record"]["uuid"] for r in transcript.meta["records"]] == ["n2", "n3"]
    assert kinds(transcript) == ["side record", "system notice", "progress skipped"]


def test_unknown_records_and_blocks_survive() -> None:
    """I2."""
    transcript = one(
        jsonl(
            user("u1", None, [text("hi"), {"type": "hologram", "shape": "cube"}]),
            {"type": "mood", "sessionId": SESSION, "value": "fine"},
            record("x1", "u1", type="dream", text="sheep"),
            record("x2", "x1", type="user"),
            assistant("a1", "x2", "m1", text("hello"), futureField=7),
        )
    )
    assert shown(transcript) == ["user:hi", "assistant:hello"]
    assert transcript.history[0].blocks[1].payload == {"type": "hologram", "shape": "cube"}  # type: ignore[union-attr]
    assert [r["record"].get("type") for r in transcript.meta["records"]] == ["mood", "dream", "user"]
    assert transcript.history[1].meta["source"][0]["futureField"] == 7
    assert set(kinds(transcript)) == {"unknown block", "unknown record", "side record", "field missing"}


def test_duplicate_records_are_skipped() -> None:
    transcript = one(jsonl(user("u1", None, "hi"), user("u1", None, "hi"), assistant("a1", "u1", "m1", text("hello"))))
    assert context(transcript) == ["hi", "hello"]
    assert kinds(transcript) == ["duplicate skipped"]


def test_interrupted_call_stays_open() -> None:
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            assistant("a1", "u1", "m1", call("t1")),
            user("u2", "a1", [text("[Request interrupted by user]")]),
        )
    )
    assert shown(transcript)[1:] == ["assistant:+t1", "user:[Request interrupted by user]"]
    (finding,) = transcript.report.at("repair")
    assert (finding.kind, finding.place) == ("call unanswered", "line 2")
    assert transcript.report.of("prompt not recorded")


def test_file_without_messages() -> None:
    transcript = one(jsonl({"type": "summary", "summary": "A title", "leafUuid": "elsewhere"}))
    assert transcript.history == ()
    assert transcript.meta["titles"] == ["A title"]


def test_title_names_the_session() -> None:
    transcript = one(jsonl({"type": "summary", "summary": "A title", "leafUuid": "u1"}, user("u1", None, "hi\nthere")))
    assert transcript.label == "A title"
    assert one(jsonl(user("u1", None, "hi\nthere"))).label == "hi"


def test_old_records_tell_their_cost() -> None:
    transcript = one(jsonl(user("u1", None, "hi"), assistant("a1", "u1", "m1", text("hello"), costUSD=0.0125)))
    assert transcript.usage.cost_usd == 0.0125


def test_results_carry_parts_and_errors() -> None:
    parts = [text("a picture"), {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]
    transcript = one(
        jsonl(
            user("u1", None, "hi"),
            assistant("a1", "u1", "m1", call("t1"), call("t2")),
            user("u2", "a1", [*result("t1", parts), *result("t2", "no such file", is_error=True), text("see?")]),
        )
    )
    _, _, first, second, said = transcript.history
    assert [type(b).__name__ for b in first.blocks] == ["TextBlock", "ImageBlock"]
    assert (second.is_error, second.content) == (True, "no such file")
    assert said == Message("user", "see?")


def test_array_of_records_is_read_too() -> None:
    lines = [user("u1", None, "hi"), assistant("a1", "u1", "m1", text("hello"))]
    assert one(json.dumps(lines, indent=1)).history == one(jsonl(*lines)).history
