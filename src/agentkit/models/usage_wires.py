"""How each provider spells its usage object, as data. Sources: the API references of the providers, November 2026.

Wires differ in field names, in whether the input figure includes cached tokens, and in whether reasoning is inside the
output figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]
"""The keys that lead to a figure."""


@dataclass(frozen=True)
class Wire:
    """Where a provider puts its figures. Of several paths in `read` and `write` the first present one counts; those in
    `input` and `output` are summed."""

    input: tuple[Path, ...]
    output: tuple[Path, ...]
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    long: Path | None = None
    short: Path | None = None
    ttl_list: Path | None = None
    reasoning: Path | None = None
    inclusive: bool = True
    """Whether the input figure contains what was read from and written to the cache."""
    reasoning_outside: bool = False
    """Whether reasoning is missing from the output figure and has to be added."""
    cost: Path | None = None
    assumed: tuple[Path, ...] = ()
    """Fields whose part in the sums no source settles."""

    @cached_property
    def counts(self) -> tuple[Path, ...]:
        """Paths to counts: input, output, read, write, long, short, reasoning; an empty one for what is not told."""
        single = [path or () for path in (self.long, self.short, self.reasoning)]
        return (*self.input, *self.output, *(self.read or ((),)), *(self.write or ((),)), *single)

    @cached_property
    def starts(self) -> tuple[int, int, int]:
        """Where in `counts` those of output, read and write begin."""
        output = len(self.input)
        read = output + len(self.output)
        return output, read, read + max(len(self.read), 1)


def path_to(dotted: str) -> Path:
    return tuple(dotted.split("."))


def paths(*dotted: str) -> tuple[Path, ...]:
    return tuple([path_to(d) for d in dotted])


ANTHROPIC = Wire(
    input=paths("input_tokens"),
    output=paths("output_tokens"),
    read=paths("cache_read_input_tokens"),
    write=paths("cache_creation_input_tokens"),
    long=path_to("cache_creation.ephemeral_1h_input_tokens"),
    short=path_to("cache_creation.ephemeral_5m_input_tokens"),
    reasoning=path_to("output_tokens_details.thinking_tokens"),
    inclusive=False,
)
OPENAI_CHAT = Wire(
    input=paths("prompt_tokens"),
    output=paths("completion_tokens"),
    read=paths("prompt_tokens_details.cached_tokens"),
    write=paths("prompt_tokens_details.cache_write_tokens"),
    long=path_to("prompt_tokens_details.cache_write_tokens_details.ttl_12h_tokens"),
    short=path_to("prompt_tokens_details.cache_write_tokens_details.ttl_30m_tokens"),
    reasoning=path_to("completion_tokens_details.reasoning_tokens"),
)
OPENAI_RESPONSES = Wire(
    input=paths("input_tokens"),
    output=paths("output_tokens"),
    read=paths("input_tokens_details.cached_tokens"),
    write=paths("input_tokens_details.cache_write_tokens"),
    long=path_to("input_tokens_details.cache_write_tokens_details.ttl_12h_tokens"),
    short=path_to("input_tokens_details.cache_write_tokens_details.ttl_30m_tokens"),
    reasoning=path_to("output_tokens_details.reasoning_tokens"),
)
_CONVERSE = Wire(
    input=paths("inputTokens"),
    output=paths("outputTokens"),
    read=paths("cacheReadInputTokens"),
    write=paths("cacheWriteInputTokens"),
    ttl_list=path_to("cacheDetails"),
    inclusive=False,
)

WIRES: Mapping[str, Wire] = {
    "anthropic": ANTHROPIC,
    "openai_chat": OPENAI_CHAT,
    "openai_responses": OPENAI_RESPONSES,
    "gemini": Wire(
        input=paths("promptTokenCount", "toolUsePromptTokenCount"),
        output=paths("candidatesTokenCount"),
        read=paths("cachedContentTokenCount"),
        reasoning=path_to("thoughtsTokenCount"),
        reasoning_outside=True,
    ),
    "gemini_interactions": Wire(
        input=paths("total_input_tokens", "total_tool_use_tokens"),
        output=paths("total_output_tokens"),
        read=paths("total_cached_tokens"),
        reasoning=path_to("total_thought_tokens"),
        reasoning_outside=True,
        assumed=paths("total_tool_use_tokens", "total_thought_tokens"),
    ),
    "converse": _CONVERSE,
    # OpenAI-family models report inclusive input on ConverseStream, exclusive input on Converse.
    "converse_stream_openai": replace(_CONVERSE, inclusive=True),
    "deepseek": Wire(
        input=paths("prompt_cache_miss_tokens"),
        output=paths("completion_tokens"),
        read=paths("prompt_cache_hit_tokens"),
        reasoning=path_to("completion_tokens_details.reasoning_tokens"),
        inclusive=False,
    ),
    "xai": Wire(
        input=paths("prompt_tokens"),
        output=paths("completion_tokens"),
        read=paths("prompt_tokens_details.cached_tokens"),
        reasoning=path_to("completion_tokens_details.reasoning_tokens"),
        reasoning_outside=True,
    ),
    "openrouter": replace(OPENAI_CHAT, cost=path_to("cost")),
    # Client libraries that pass on several providers' figures in one form of their own.
    "litellm": replace(
        OPENAI_CHAT,
        read=paths("cache_read_input_tokens", "prompt_tokens_details.cached_tokens"),
        write=paths("cache_creation_input_tokens", "prompt_tokens_details.cache_creation_tokens"),
        long=None,
        short=None,
    ),
    "langchain": Wire(
        input=paths("input_tokens"),
        output=paths("output_tokens"),
        read=paths("input_token_details.cache_read"),
        write=paths("input_token_details.cache_creation"),
        long=path_to("input_token_details.ephemeral_1h_input_tokens"),
        short=path_to("input_token_details.ephemeral_5m_input_tokens"),
        reasoning=path_to("output_token_details.reasoning"),
    ),
    "codex": Wire(
        input=paths("input_tokens"),
        output=paths("output_tokens"),
        read=paths("cached_input_tokens"),
        reasoning=path_to("reasoning_output_tokens"),
    ),
}
"""The wires that `read_usage` knows by name; `llama.cpp` takes the form of the endpoint that answered."""

LONG_TTLS = frozenset({"1h", "12h"})
"""Cache lifetimes that count as long, as providers spell them."""
