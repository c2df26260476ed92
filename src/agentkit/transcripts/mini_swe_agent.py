"""mini-swe-agent runs: OpenAI's shape plus `extra`, in text mode or with tool calls. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentkit.core.contracts.types import Usage
from agentkit.models.usage import UsageReading, read_usage

from .conversation import Conversation
from .openai_shape import read_message, usage_of
from .parts import as_id, read_tools
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "mini-swe-agent"


def recognises(value: Any) -> bool:
    """Whether a document is of this format: by its own key, or by fenced commands and `<returncode>` in a list."""
    if isinstance(value, Mapping):
        known = str(value.get("trajectory_format", "")).startswith("mini-swe-agent")
        return known or ("trajectory_format" in value and isinstance(value.get("messages"), list))
    if not isinstance(value, list):
        return False
    texts = [
        (e.get("role"), e["content"]) for e in value if isinstance(e, Mapping) and isinstance(e.get("content"), str)
    ]
    has_command = any(role == "assistant" and "```" in text for role, text in texts)
    return has_command and any(role == "user" and text.lstrip().startswith("<returncode>") for role, text in texts)


def read(source: Source) -> tuple[Transcript, ...]:
    """The conversation of each run."""
    transcripts: list[Transcript] = []
    for _, value in source.documents():
        transcripts.append(_read_run(value, Reporter() if transcripts else source.report))
    return tuple(transcripts)


def _read_run(value: Any, report: Reporter) -> Transcript:
    conversation = Conversation(NAME, report)
    about = {k: v for k, v in value.items() if k != "messages"} if isinstance(value, Mapping) else {}
    messages = value.get("messages") if isinstance(value, Mapping) else value
    outcome: Any = None
    told = False
    for number, entry in enumerate(messages if isinstance(messages, list) else [messages], 1):
        place = f"message {number}"
        message = read_message(entry, report, place)
        extra = message.meta.get("extra")
        extra = extra if isinstance(extra, Mapping) else {}
        if message.role == "assistant" and "```" in message.content and not message.tool_calls and not told:
            told = True
            report.note("calls as text", place, "kept as text", "commands in fences, a prompted dialect")
        if message.role == "exit" or extra.get("exit_status") is not None:
            outcome = extra.get("exit_status", outcome)
        # The closing message tells the outcome to the reader of the file; no model was ever sent it.
        index = conversation.add(message, place, in_context=message.role != "exit")
        if message.role == "exit" and not message.content:
            report.repair("turn empty", place, "kept, outside the context", "exit without content")
        if message.role == "assistant":
            _respond(conversation, index, extra, place)
    info = about.get("info")
    if outcome is None and isinstance(info, Mapping):
        outcome = info.get("exit_status")
    return conversation.finish(
        id=as_id(about.get("instance_id")),
        tools=read_tools(about.get("tools")),
        meta={**about, "outcome": outcome},
        usage=None if any(r.reading for r in conversation.responses) else _totals(info),
    )


def _respond(conversation: Conversation, index: int, extra: Mapping[str, Any], place: str) -> None:
    response = extra.get("response")
    response = response if isinstance(response, Mapping) else {}
    reading = usage_of(response.get("usage"), response.get("model"))
    cost = read_usage({"cost": extra.get("cost")}, "openrouter").usage.cost_usd
    if reading is None and cost:
        reading = UsageReading(Usage(cost_usd=cost), flags=("absent",))
    elif reading is not None and not reading.usage.cost_usd:
        reading = replace(reading, usage=replace(reading.usage, cost_usd=cost))
    time = extra.get("timestamp", response.get("created"))
    conversation.respond(index, reading, model=response.get("model"), time=time, id=response.get("id"), place=place)


def _totals(info: Any) -> Usage | None:
    stats = info.get("model_stats") if isinstance(info, Mapping) else None
    if not isinstance(stats, Mapping):
        return None
    return read_usage({"cost": stats.get("instance_cost")}, "openrouter").usage
