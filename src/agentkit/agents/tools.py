"""Tools: functions that a model may ask to be called. Touches only its arguments; what a tool touches is its own.

Whether a call has side effects decides what a crash means for it and who must approve it, so it is said with each tool.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from agentkit.core.contracts.blocks import BLOCK_TYPES, Block, TextBlock
from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.messages import Message, ToolCall, mark
from agentkit.core.contracts.offers import ToolSchema
from agentkit.core.contracts.ports import Ctx
from agentkit.core.runtime import RunContext

from .readers import Field, Shape, object_shape, read_as
from .shapes import hints_of, shape_of

CTX = "ctx"
"""A parameter of this name, or with the hint Ctx or RunContext, is given the run and not shown to the model."""


@runtime_checkable
class Tool(Protocol):
    """What a model may call. `parameters`: JSON Schema of the arguments; `side_effecting`: running it twice is not the
    same as once; `requires_approval`: somebody has to agree to each call, at any autonomy."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def side_effecting(self) -> bool: ...

    @property
    def requires_approval(self) -> bool: ...

    def check(self, arguments: Mapping[str, Any], /) -> None:
        """ValueError saying what is wrong with these arguments, in words for the model."""
        ...

    async def run(self, arguments: Mapping[str, Any], ctx: Ctx, /) -> Any:
        """What the call comes to. Whatever Exception it raises is shown to the model as an error."""
        ...


@dataclass(frozen=True)
class ToolResult:
    """What a tool may return when a plain value does not say it all.

    `content`: any value (see `as_result`); `blocks`: pictures and documents behind it; `is_error`: it reports a
    failure; `pending`: an interim answer, the real one comes later through `deliver_result`.
    """

    content: Any = ""
    blocks: tuple[Block, ...] = ()
    is_error: bool = field(default=False, kw_only=True)
    pending: bool = field(default=False, kw_only=True)


class FunctionTool:
    """A function as a tool; made by `@tool`. Called directly, it is the function that it was made of."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        side_effecting: bool,
        requires_approval: bool = False,
        name: str | None = None,
        local: Mapping[str, Any] | None = None,
    ) -> None:
        for what, value in (("side_effecting", side_effecting), ("requires_approval", requires_approval)):
            if type(value) is not bool:
                raise TypeError(f"{what} must be a bool, not {type(value).__name__}")
        if not callable(function):
            raise TypeError(f"a tool is made of a function, not of a {type(function).__name__}")
        self.function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self.side_effecting, self.requires_approval = side_effecting, requires_approval
        self.description = inspect.cleandoc(function.__doc__ or "")
        self._shape, self._runs = _parameters(function, self.name, local)
        self.parameters: Mapping[str, Any] = self._shape.schema
        self.__doc__, self.__name__ = function.__doc__, self.name
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def check(self, arguments: Mapping[str, Any], /) -> None:
        read_as(self._shape, thaw(dict(arguments)))

    async def run(self, arguments: Mapping[str, Any], ctx: Ctx, /) -> Any:
        """The function's result. A function that is not async runs in a thread, so that it holds nobody up."""
        given: dict[str, Any] = read_as(self._shape, thaw(dict(arguments)))
        given |= dict.fromkeys(self._runs, ctx)
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**given)
        found = await asyncio.to_thread(_called, self.function, given)
        return await found if inspect.isawaitable(found) else found

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r}, side_effecting={self.side_effecting})"


def _called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """What the function returns. No future carries a StopIteration, from `next` of nothing say: its waiter hangs."""
    try:
        return function(**given)
    except StopIteration as error:
        raise RuntimeError(f"{type(error).__name__} was raised by the function") from error


def tool(
    *misplaced: Any, side_effecting: bool | None = None, requires_approval: bool = False, name: str | None = None
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function: `@tool(side_effecting=False)`.

    The schema comes from the type hints, the description from the docstring, that of a parameter from
    `Annotated[..., "text"]`. A parameter named `ctx`, or with the hint `Ctx` or `RunContext`, gets the run.
    `side_effecting` has no default: a call that may have happened before a crash is repeated or not because of it.
    Raises TypeError for a hint that JSON cannot express, and for a missing one.
    """
    if misplaced or side_effecting is None:
        raise TypeError(
            "say whether the tool has side effects: @tool(side_effecting=True) or @tool(side_effecting=False)"
        )
    frame = inspect.currentframe()
    local = dict(frame.f_back.f_locals) if frame is not None and frame.f_back is not None else {}
    effects = side_effecting

    def make(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            function, side_effecting=effects, requires_approval=requires_approval, name=name, local=local
        )

    return make


def _parameters(function: Callable[..., Any], name: str, local: Mapping[str, Any] | None) -> tuple[Shape, list[str]]:
    """The arguments' shape, and the names of the parameters that get the run."""
    hints = _hints(function, name, local)
    fields: dict[str, Field] = {}
    runs: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, parameter.empty)
        if hint in (Ctx, RunContext) or parameter.name == CTX:
            runs.append(parameter.name)
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: {parameter} cannot be told to a model; a tool takes named parameters only")
        if hint is parameter.empty:
            raise TypeError(f"{name}: the parameter {parameter.name!r} has no type hint, so the model cannot be told")
        required = parameter.default is parameter.empty
        shape = shape_of(hint, f"{name}: parameter {parameter.name!r}")
        fields[parameter.name] = Field(shape, True) if required else Field(shape, False, parameter.default)
    return object_shape(fields, dict), runs


def _hints(function: Callable[..., Any], name: str, local: Mapping[str, Any] | None) -> dict[str, Any]:
    """Hints of the parameters. That of the run is known by its name, and that of the result is nobody's concern, so
    neither has to be found at run time."""
    if isinstance(function, type):
        owner: Any = function.__init__  # type: ignore[misc]
    else:
        owner = function if inspect.isroutine(function) else type(function).__call__
    plain = inspect.unwrap(getattr(owner, "__func__", owner))
    told = {key: hint for key, hint in getattr(plain, "__annotations__", {}).items() if key not in (CTX, "return")}
    return hints_of(SimpleNamespace(__annotations__=told), name, getattr(plain, "__globals__", None), local)


class Toolbox:
    """The tools of one agent, by name. ValueError where two have the same name, TypeError for what is no tool."""

    def __init__(self, tools: Iterable[Any]) -> None:
        self._tools: dict[str, Tool] = {}
        for at, given in enumerate(tools):
            if not isinstance(given, Tool):
                hint = "; make a function one with @tool(side_effecting=...)" if callable(given) else ""
                raise TypeError(f"tools[{at}] must be a Tool, not {type(given).__name__}{hint}")
            if given.name in self._tools:
                raise ValueError(f"two tools are named {given.name!r}; a model could not tell them apart")
            self._tools[given.name] = given
        self.schemas: tuple[ToolSchema, ...] = tuple(
            ToolSchema(name, self._tools[name].description, self._tools[name].parameters)
            for name in sorted(self._tools)
        )
        """What the model is told, sorted by name, always the same objects."""

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def has_effects(self, name: str) -> bool:
        """Whether a call of this name may change anything; one of no tool of ours does nothing."""
        found = self._tools.get(name)
        return found is not None and found.side_effecting

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def problem(self, call: ToolCall) -> str | None:
        """What is wrong with a call, in words for the model; None for one that can be run."""
        found = self._tools.get(call.name)
        if found is None:
            known = ", ".join(sorted(self._tools)) or "none"
            return f"There is no tool named {call.name!r}. Known: {known}."
        if call.invalid:
            return f"The arguments of {call.name} are no JSON object. Call it again with a JSON object."
        try:
            found.check(call.arguments)
        except ValueError as error:
            return f"The arguments of {call.name} are not valid: {error}."
        return None


def as_result(call: ToolCall, value: Any) -> Message:
    """The result of `call` as the message that a model is shown.

    A text is taken as it is, None is empty; blocks stay blocks; all else becomes JSON (dataclasses, pydantic models,
    enums, dates and UUIDs included). TypeError for a value that has no such form.
    """
    result = value if isinstance(value, ToolResult) else ToolResult(value)
    content: Any = result.content
    blocks: list[Any] = []
    if isinstance(content, BLOCK_TYPES):
        blocks, content = [content], ""
    elif isinstance(content, (list, tuple)) and any(isinstance(part, BLOCK_TYPES) for part in content):
        blocks = [part if isinstance(part, BLOCK_TYPES) else TextBlock(_text(part)) for part in content]
        content = ""
    blocks += result.blocks
    if blocks and (text := _text(content)):
        blocks.insert(0, TextBlock(text))
    made = Message(
        "tool", None if blocks else _text(content), call.name, call.id, blocks=blocks, is_error=result.is_error
    )
    return mark(made, "pending") if result.pending else made


def error_result(call: ToolCall, text: str, *, synthetic: bool = False) -> Message:
    """A result that reports a failure. `synthetic`: it stands for one that there is none of."""
    made = Message("tool", text, call.name, call.id, is_error=True)
    return mark(made, "synthetic") if synthetic else made


def told(error: Exception) -> str:
    """An exception as a model is shown it: its class, and its text, if it has one."""
    try:
        text = str(error)
    except Exception:  # the exception's own code runs here
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Enum):
        return str.__str__(value)
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (date, datetime, time, UUID, Decimal, PurePath)):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON; return a text, plain data or a ToolResult")
