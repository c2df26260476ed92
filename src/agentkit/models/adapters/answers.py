"""`Answer`: what a provider answered, on its way to a result or to the last piece of a stream. Touches only its
arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from agentkit.core.contracts.blocks import Block
from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.requests import Delta, LLMResult
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import Repaired
from agentkit.models.catalog import Mode, cost, rates
from agentkit.models.usage import UsageReading, read_usage

from .base import Settings, reported

_MODES: Mapping[str, Mode] = {"flex": "flex", "priority": "priority", "batch": "batch"}
"""Service tiers that have a price of their own."""


@dataclass(frozen=True)
class Asked:
    """A request as it goes out, and what of it the answer has to know. `body`: what is sent; `structured`: it asks for
    a form; `names`: the own names of tools that are sent under others."""

    model: str
    body: dict[str, Any]
    settings: Settings
    view: Repaired
    structured: bool
    names: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """An answer, read.

    `finish`: why it ended, in the library's words (stop, tool_calls, length, content_filter, refusal, else the
    provider's own); `reason`: as the provider said it. `model`: that answered. `usage`: what holds
    the figures, read by the wire `wire`. `about`: what else the provider said, for `meta`. Where the request `asked`
    for a form, `parsed` is the text as JSON where it is some.
    """

    text: str
    calls: tuple[ToolCall, ...]
    blocks: tuple[Block, ...]
    finish: str | None
    reason: Any
    model: str
    asked: Asked
    usage: Any
    wire: str
    about: Mapping[str, Any]
    provider: str

    def result(self) -> LLMResult:
        """The whole answer."""
        return LLMResult(
            self.text,
            self.called,
            self.billed,
            self.finish,
            self.model,
            self.parsed,
            blocks=self.blocks,
            meta=self.meta,
        )

    def delta(self) -> Delta:
        """The last piece of a stream: all but the text, which came before."""
        return Delta(
            "",
            self.called,
            self.billed,
            self.finish,
            self.parsed,
            blocks=self.blocks,
            model=self.model,
            meta=self.meta,
        )

    @property
    def called(self) -> tuple[ToolCall, ...]:
        """The calls, under the tools' own names."""
        names = self.asked.names
        if not names:
            return self.calls
        return tuple([replace(c, name=names[c.name]) if c.name in names else c for c in self.calls])

    @cached_property
    def reading(self) -> UsageReading:
        return read_usage(self.usage, self.wire)

    @property
    def billed(self) -> Usage:
        """The usage with its price: the provider's own, else the catalogue's for the model that answered,
        else for the one that was asked; 0.0 where there is none."""
        usage = self.reading.usage
        if usage.cost_usd:
            return usage
        mode = _MODES.get(self.reading.tier or "", "standard")
        model = self.model if rates(self.model) is not None else self.asked.model
        return replace(usage, cost_usd=cost(model, usage, mode=mode))

    @property
    def parsed(self) -> Any:
        """The text as JSON, where a form was asked for; None where it is none, which whoever asked has to see to."""
        if not self.asked.structured:
            return None
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def meta(self) -> dict[str, Any]:
        asked = self.asked
        return reported(
            self.provider, {"finish_reason": self.reason, **self.about}, asked.settings, asked.view, asked.names
        )


def without(settings: Settings, refused: Iterable[str]) -> Settings:
    """Settings less those that an endpoint has no field for, whatever the model."""
    found = sorted(name for name in refused if name in settings.values)
    values = {key: value for key, value in settings.values.items() if key not in found}
    return Settings(values, tuple(sorted((*settings.dropped, *found)))) if found else settings


def decoded(content: bytes, provider: str) -> Mapping[str, Any]:
    """A whole response, its keys in their order. PermanentError for one that is no JSON object."""
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PermanentError(f"{provider}: the answer is no JSON object; is the base URL that of the interface?")
    return found


def request_id(response: Any) -> str | None:
    """The provider's name for a request, from the headers of its answer."""
    headers = getattr(response, "headers", None)
    return headers.get("x-request-id") if isinstance(headers, Mapping) else None
