"""Every format by name, and recognising which one a file is in. Touches only its arguments.

Several records are looked at, never only the first. Rules are tried from the top, the first that fits wins; records
that point to different formats, or to none, are an error rather than a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentkit.core.contracts.errors import FormatError

from . import (
    agentdojo,
    anthropic_messages,
    claude_code,
    codex,
    langchain,
    mini_swe_agent,
    native,
    openai_chat,
    openai_responses,
    openhands,
    swe_agent,
    tau_bench,
)
from .source import Source
from .transcript import Transcript


@dataclass(frozen=True)
class Format:
    """A format: its name, what it is, whether a document or one of several records is of it, and its importer.

    `read` is None for a format that is recognised but not read. `by_list`: only a list as a whole gives it away.
    """

    name: str
    title: str
    fits: Callable[[Any], bool]
    read: Callable[[Source], tuple[Transcript, ...]] | None = None
    by_list: bool = False


def _has(key: str, kind: type = object) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and key in value and isinstance(value[key], kind)


def _is_pi(value: Any) -> bool:
    """pi: the first line is a session, the others name their kind beside a message."""
    return isinstance(value, Mapping) and value.get("type") == "session" and ("version" in value or "cwd" in value)


def _is_openhands_v1(value: Any) -> bool:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return isinstance(kind, str) and kind.endswith("Event")


def _is_openhands_evaluation(value: Any) -> bool:
    return _has("history", list)(value) and "instance_id" in value


def _is_inspect(value: Any) -> bool:
    return _has("samples", list)(value) and ("eval" in value or "version" in value)


def _is_tau2(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("simulations"), list):
        return any(_is_tau2(entry) for entry in value["simulations"])
    entries = value.get("messages", value.get("ticks"))
    return isinstance(entries, list) and any(_has("requestor")(entry) for entry in entries)


RULES: tuple[Format, ...] = (
    Format(native.NAME, "agentkit's own transcripts", native.recognises, native.read),
    Format(claude_code.NAME, "Claude Code session", claude_code.recognises, claude_code.read),
    Format(codex.NAME, "Codex rollout", codex.recognises, codex.read),
    Format("pi", "pi session", _is_pi),
    Format("openhands-v1", "OpenHands V1 events", _is_openhands_v1),
    Format("openhands-evaluation", "OpenHands evaluation output", _is_openhands_evaluation),
    Format(mini_swe_agent.NAME, "mini-swe-agent run", mini_swe_agent.recognises, mini_swe_agent.read, by_list=True),
    Format(swe_agent.NAME, "SWE-agent trajectory", swe_agent.recognises, swe_agent.read),
    Format(agentdojo.NAME, "AgentDojo run log", agentdojo.recognises, agentdojo.read),
    Format(langchain.NAME, "LangChain or LangGraph messages", langchain.recognises, langchain.read),
    Format("inspect", "Inspect eval log", _is_inspect),
    Format(tau_bench.NAME, "tau-bench results", tau_bench.recognises, tau_bench.read),
    Format("tau2", "tau2 simulations", _is_tau2),
    Format(openhands.NAME, "OpenHands V0 events", openhands.recognises, openhands.read),
    Format(openai_responses.NAME, "OpenAI responses", openai_responses.recognises, openai_responses.read),
    Format(anthropic_messages.NAME, "Anthropic messages", anthropic_messages.recognises, anthropic_messages.read),
    Format(openai_chat.NAME, "OpenAI chat completions", openai_chat.recognises, openai_chat.read),
)
"""All formats, in the order in which they are tried."""

FORMATS: Mapping[str, str] = {rule.name: rule.title for rule in RULES if rule.read is not None}
"""The formats that can be read: name and title."""

_WEAK = frozenset({openai_chat.NAME})
"""Formats whose records any other format may contain: a message with a role says little."""


def named(name: str) -> Format:
    """The format of that name; FormatError for one that is unknown or not read."""
    found = next((rule for rule in RULES if rule.name == name), None)
    if found is None:
        raise FormatError(f"unknown format {name!r}; known are {', '.join(FORMATS)}")
    if found.read is None:
        raise FormatError(f"the format {name!r} ({found.title}) is one that this release does not read")
    return found


def recognise(source: Source) -> Format:
    """The format of a source; FormatError, naming what was seen, if none fits or records contradict each other."""
    whole = source.document
    found = next((r for r in RULES if r.by_list and r.fits(whole)), None) if isinstance(whole, list) else None
    found = found or _by_records(source)
    if found is None:
        raise FormatError(
            f"{source.name} is in no known format: {_seen(source)}. "
            f"Name the format if you know it: {', '.join(FORMATS)}"
        )
    if found.read is None:
        raise FormatError(f"{source.name}: recognised as {found.title}, which this release does not read")
    return found


def _by_records(source: Source) -> Format | None:
    sample = source.sample()
    votes: dict[str, int] = {}
    for record in sample:
        rule = next((r for r in RULES if r.fits(record)), None)
        if rule is not None:
            votes[rule.name] = votes.get(rule.name, 0) + 1
    strong = [rule for rule in RULES if rule.name in votes and rule.name not in _WEAK]
    if len(strong) > 1:
        shares = ", ".join([f"{votes[rule.name]} look like {rule.title}" for rule in strong])
        raise FormatError(
            f"{source.name} mixes formats: of the first {len(sample)} records {shares}. "
            "Name the format that is meant, or split the file"
        )
    return strong[0] if strong else next((rule for rule in RULES if rule.name in votes), None)


def _seen(source: Source) -> str:
    """What a file holds, for an error message: kinds and keys, no contents."""
    sample = source.sample()
    if not sample:
        losses = [finding for finding in source.report.seal() if finding.level == "loss"]
        return f"no record could be read ({losses[0].place}: {losses[0].reason})" if losses else "it has no record"
    first = next((value for value in sample if isinstance(value, Mapping)), None)
    if first is None:
        return f"its records are no JSON objects, but {', '.join(sorted({type(v).__name__ for v in sample}))}"
    keys = [key if len(key) <= 30 else key[:29] + "…" for key in list(first)[:12] if isinstance(key, str)]
    return f"its records have the keys {', '.join(keys) or '(none)'}"
