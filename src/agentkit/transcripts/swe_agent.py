"""SWE-agent trajectories (.traj). Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.types import Message, ThinkingBlock, Usage
from agentkit.models.usage import read_usage

from .conversation import Conversation
from .openai_shape import read_message
from .parts import as_id
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "swe-agent"


def recognises(value: Any) -> bool:
    """Whether a document is of this format."""
    return isinstance(value, Mapping) and isinstance(value.get("history"), list) and "instance_id" not in value


def read(source: Source) -> tuple[Transcript, ...]:
    """The conversation of each trajectory."""
    transcripts: list[Transcript] = []
    for _, value in source.documents():
        report = Reporter() if transcripts else source.report
        transcripts.append(_read_trajectory(value if isinstance(value, Mapping) else {"history": value}, report))
    return tuple(transcripts)


def _read_trajectory(value: Mapping[str, Any], report: Reporter) -> Transcript:
    conversation = Conversation(NAME, report)
    history = value.get("history")
    for number, entry in enumerate(history if isinstance(history, list) else [history], 1):
        place = f"history {number}"
        message = _read_entry(entry, report, place)
        index = conversation.add(message, place)
        if message.role == "assistant" and not message.meta.get("demo"):
            conversation.respond(index, place=place)
    steps = value.get("trajectory")
    if isinstance(steps, list) and steps:
        reason = "each step repeats its whole prompt, and the history has what was said"
        report.note("display copy", "trajectory", "left out", reason)
    info = value.get("info")
    meta = {k: v for k, v in value.items() if k not in ("history", "trajectory")}
    stats = info.get("model_stats") if isinstance(info, Mapping) else None
    return conversation.finish(id=as_id(value.get("environment")), meta=meta, usage=_totals(stats))


def _read_entry(entry: Any, report: Reporter, place: str) -> Message:
    extra: dict[str, Any] = {}
    if isinstance(entry, Mapping):
        entry = dict(entry)
        if entry.get("is_demo"):
            extra["demo"] = True
        thinking = entry.pop("thinking_blocks", None)
        if entry.get("role") == "tool" and entry.get("tool_call_id") is None:
            ids = entry.get("tool_call_ids")
            if isinstance(ids, list) and ids:
                entry["tool_call_id"] = ids[0]
                if len(ids) > 1:
                    reason = f"one result for {len(ids)} calls"
                    report.repair("result shared", place, "given to the first call; all ids kept in meta", reason)
        message = read_message(entry, report, place, extra=extra)
        return _with_thinking(message, thinking)
    return read_message(entry, report, place, extra=extra)


def _with_thinking(message: Message, thinking: Any) -> Message:
    if not isinstance(thinking, list) or not thinking:
        return message
    known = [t for t in thinking if isinstance(t, Mapping) and isinstance(t.get("thinking"), str)]
    blocks = [ThinkingBlock(t["thinking"], s if isinstance(s := t.get("signature"), str) else None) for t in known]
    meta = {**message.meta, **({} if len(known) == len(thinking) else {"thinking_blocks": thinking})}
    content = message.blocks or ((message.content,) if message.content else ())
    return Message(message.role, [*blocks, *content], message.name, message.tool_call_id, message.tool_calls, meta=meta)


def _totals(stats: Any) -> Usage | None:
    """The totals of a run: SWE-agent keeps none per response."""
    if not isinstance(stats, Mapping):
        return None
    figures = {"prompt_tokens": stats.get("tokens_sent"), "completion_tokens": stats.get("tokens_received")}
    return read_usage({**figures, "cost": stats.get("instance_cost")}, "openrouter").usage
