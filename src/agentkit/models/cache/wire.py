"""Request bodies as prompts of the cache. Touches only its arguments.

A text stands for its block of one text part, since clients turn the one into the other to put a mark on it. Marks are
taken out before a block's digest is made; order and spelling of everything else stay as they are sent.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from .prompts import Block, Prompt
from .wire_parts import BodyWire, Memo, Reader, TextCounter

__all__ = ["BodyWire", "Memo", "TextCounter", "prompt_of"]


def prompt_of(
    body: Mapping[str, Any],
    wire: BodyWire,
    *,
    counter: TextCounter | None = None,
    scope: str = "",
    token_counts: MutableMapping[str, int] | None = None,
    memo: Memo | None = None,
) -> Prompt:
    """The prompt that a request body is.

    `counter`: tokens of a text, by default a quarter of its characters; each block takes 4 more, an image or document
    without its bytes a flat figure. `token_counts`: tokens by block digest, looked at first and filled. `memo`: an
    empty dict, handed in again with the next body, so that messages that come again are not digested again. `scope`:
    organisation, workspace and the like; a cache key of the body is added to it. A body without a model (Gemini's)
    gives a prompt without one. Raises ValueError for an unknown wire and for a mark where the provider takes none.
    """
    read = _READERS.get(wire)
    if read is None:
        raise ValueError(f"wire must be one of {', '.join(_READERS)}, not {wire!r}")
    reader = Reader(wire, _quarter if counter is None else counter, {} if token_counts is None else token_counts, memo)
    return read(body, reader, scope)


def _quarter(text: str) -> int:
    return -(-len(text) // 4)


def _anthropic(body: Mapping[str, Any], reader: Reader, scope: str) -> Prompt:
    tools = [tool for tool in body.get("tools") or () if not tool.get("defer_loading")]  # found later, out of the key
    blocks = [reader.part("tools", tool, kind="tool") for tool in tools]
    blocks += [reader.part("system", part, head="system") for part in _parts(body.get("system"))]
    for message in body.get("messages") or ():
        blocks += reader.message("messages", message, _anthropic_message)
    if body.get("cache_control") is not None:
        _mark_last(blocks, body["cache_control"].get("ttl") or "5m")
    return Prompt(str(body.get("model") or ""), tuple(blocks), scope, _anthropic_settings(body, tools, blocks))


def _anthropic_message(reader: Reader, tier: str, message: Mapping[str, Any]) -> list[Block]:
    # Turns of one role that follow one another are one turn to the provider: only the role goes into the key.
    role = str(message.get("role"))
    return [reader.part(tier, part, head=role) for part in _parts(message.get("content"))]


def _mark_last(blocks: list[Block], ttl: str) -> None:
    """Automatic mode: the mark is on the last block that can take one."""
    for at in range(len(blocks) - 1, -1, -1):
        block = blocks[at]
        if block.kind in ("thinking", "empty"):
            continue
        if block.mark not in (None, ttl):
            raise ValueError(f"block {at} has a mark of {block.mark} and is to get an automatic one of {ttl}")
        blocks[at] = replace(block, mark=ttl)
        return


def _anthropic_settings(body: Mapping[str, Any], tools: list[Any], blocks: list[Block]) -> dict[str, Any]:
    """Settings that the rules name, a default written out equal to one left out."""
    choice = dict(body.get("tool_choice") or {})
    parallel = choice.pop("disable_parallel_tool_use", None)
    thinking = body.get("thinking") or {}
    effort = (body.get("output_config") or {}).get("effort")
    media = [block for block in blocks if block.kind == "media"]
    found = {
        "tool_choice": choice if choice.get("type", "auto") != "auto" else None,
        "disable_parallel_tool_use": parallel or None,
        "thinking": thinking if thinking.get("type") not in (None, "disabled") else None,
        "effort": effort if effort != "high" else None,
        "speed": body.get("speed") if body.get("speed") != "standard" else None,
        "web_search": any(str(tool.get("type", "")).startswith("web_search") for tool in tools) or None,
        "images": any('"image"' in block.text for block in media) or None,
        "citations": any('"citations":{"enabled":true' in block.text for block in media) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _openai_chat(body: Mapping[str, Any], reader: Reader, scope: str) -> Prompt:
    messages = body.get("messages") or ()
    return _openai(body, reader, scope, messages, body.get("response_format"), body.get("reasoning_effort"))


def _openai_responses(body: Mapping[str, Any], reader: Reader, scope: str) -> Prompt:
    items = body.get("input") or ()
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    form = (body.get("text") or {}).get("format")
    return _openai(body, reader, scope, items, form, (body.get("reasoning") or {}).get("effort"))


def _openai(body: Mapping[str, Any], reader: Reader, scope: str, messages: Any, form: Any, effort: Any) -> Prompt:
    options = body.get("prompt_cache_options") or {}
    reader = replace(reader, default_ttl=options.get("ttl") or "30m")
    blocks = [reader.part("tools", tool, kind="tool") for tool in body.get("tools") or ()]
    if body.get("instructions"):
        blocks.append(reader.part("system", {"type": "text", "text": body["instructions"]}, head="instructions"))
    tier = "system"
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            tier = "messages"
        blocks += reader.message(tier, message, _openai_message)
    service, form = body.get("service_tier"), form if (form or {}).get("type") != "text" else None
    found = {
        "parallel_tool_calls": False if body.get("parallel_tool_calls") is False else None,
        "text_format": form,
        "reasoning_effort": effort,
        "verbosity": (body.get("text") or {}).get("verbosity", body.get("verbosity")),
        "service_tier": service if service not in ("auto", "default") else None,
    }
    key = body.get("prompt_cache_key")
    return Prompt(
        str(body.get("model") or ""),
        tuple(blocks),
        scope if key is None else f"{scope}/{key}",
        {name: value for name, value in found.items() if value is not None},
        "explicit" if options.get("mode") == "explicit" else "implicit",
    )


_BODIES = ("content", "tool_calls", "output")
"""Fields of a message or item that hold its blocks; all others go in front of the first one."""


def _openai_message(reader: Reader, tier: str, message: Mapping[str, Any]) -> list[Block]:
    role = _openai_role(message)
    head = reader.text({key: value for key, value in message.items() if key not in _BODIES})
    parts = [*_parts(message.get("content")), *_parts(message.get("output")), *(message.get("tool_calls") or ())]
    kind = {"tool": "result", "call": "call"}.get("call" if message.get("type") == "function_call" else role)
    blocks = [reader.part(tier, part, head="" if at else head, kind=kind) for at, part in enumerate(parts)]
    blocks = blocks or [reader.part(tier, {}, head=head, kind=kind)]
    return [*blocks[:-1], replace(blocks[-1], ends=role)]


def _openai_role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    if isinstance(role, str):
        return "tool" if role == "function" else role
    return "tool" if str(message.get("type", "")).endswith("_output") else "assistant"


def _gemini(body: Mapping[str, Any], reader: Reader, scope: str) -> Prompt:
    blocks = [reader.part("tools", tool, kind="tool") for tool in body.get("tools") or ()]
    system = body.get("systemInstruction") or body.get("system_instruction") or {}
    blocks += [reader.part("system", part, head="system") for part in system.get("parts") or ()]
    for content in body.get("contents") or ():
        blocks += reader.message("messages", content, _gemini_content)
    return Prompt(str(body.get("model") or ""), tuple(blocks), scope)


def _gemini_content(reader: Reader, tier: str, content: Mapping[str, Any]) -> list[Block]:
    role = "assistant" if content.get("role") == "model" else "user"
    blocks = [reader.part(tier, part, head=role) for part in content.get("parts") or ()]
    return [*blocks[:-1], replace(blocks[-1], ends=role)] if blocks else []


def _parts(content: Any) -> list[Any]:
    """The parts of a content, which may be a plain text."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


_READERS = {
    "anthropic": _anthropic,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "gemini": _gemini,
}
