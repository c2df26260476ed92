"""A script as values: read from plain data, checked as a whole. Touches only its arguments; the form is described in
`scripted`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkit.core.contracts.errors import FormatError
from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.usage import Usage
from agentkit.models.adapters.in_process import Asked

KINDS = {
    "transient": "503: the scripted server is busy",
    "permanent": "400: the script refuses this request",
    "auth": "401: the script does not accept these credentials",
    "overflow": "400: the script calls this request too long",
}
"""Kinds of errors, with what they say by default."""

_TURN = {"text", "calls", "usage", "delay", "finish_reason", "cut", "error", "times"}
_RULE = {"when", "result", "turns"}
_SECTION = {"rules", "turns"}
_SCRIPT = {"rules", "turns", "structured", "window", "strict", "delay", "usage", "repeat", "log"}


@dataclass(frozen=True)
class Fault:
    """An error to raise. `kind`: a key of KINDS; `window`: of an overflow."""

    kind: str
    message: str
    window: int | None = None


@dataclass(frozen=True)
class Turn:
    """One answer of a script; the fields are those of the file."""

    text: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    usage: Usage | None = None
    delay: float | None = None
    finish_reason: str | None = None
    cut: int | None = None
    error: Fault | None = None
    times: int | None = None

    def made(self, stamp: str) -> tuple[ToolCall, ...]:
        """The calls, those without an id under one that holds `stamp`."""
        return tuple(
            ToolCall(str(call.get("id") or f"scripted-{stamp}-{at}"), call["name"], call.get("arguments"))
            for at, call in enumerate(self.calls)
        )


@dataclass(frozen=True)
class Rule:
    """Turns for what is asked with certain words: `when` in the person's last text, `result` in the last results."""

    when: str | None
    result: str | None
    turns: tuple[Turn, ...]

    @property
    def name(self) -> str:
        return self.when if self.when is not None else self.result or ""

    def fits(self, said: str, asked: Asked) -> bool:
        """Whether this rule is meant; `said` is what the person said last."""
        if self.result is not None and not any(self.result in message.content for message in asked.results):
            return False
        return self.when is None or self.when in said


@dataclass(frozen=True)
class Section:
    """Rules, and turns for what no rule fits."""

    rules: tuple[Rule, ...] = ()
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Script:
    """A whole script. `structured`: for requests with a response format; None: these are refused. `log`: the file to
    which whoever opened the script is asked to write what is received."""

    plain: Section
    structured: Section | None = None
    window: int | None = None
    strict: bool = True
    delay: float = 0.0
    usage: Usage | None = None
    repeat: bool = False
    log: str | None = None

    @classmethod
    def read(cls, data: Any, name: str = "script") -> Script:
        """The script that plain data describes; FormatError says what is wrong, and where in `name`."""
        if not isinstance(data, Mapping):
            return cls(Section((), _turns(data, name)))
        _known(data, _SCRIPT, name)
        structured = data.get("structured")
        return cls(
            _section({k: data[k] for k in _SECTION if k in data}, name),
            None if structured is None else _section(structured, f"{name}.structured"),
            _number(data, "window", name, int),
            _flag(data, "strict", name, True),
            _number(data, "delay", name) or 0.0,
            _usage(data.get("usage"), f"{name}.usage"),
            _flag(data, "repeat", name, False),
            _text(data, "log", name),
        )


def _section(data: Any, place: str) -> Section:
    if not isinstance(data, Mapping) or not _SECTION & data.keys():
        return Section((), () if data == {} else _turns(data, place))
    _known(data, _SECTION, place)
    rules = data.get("rules", ())
    if not _is_list(rules):
        raise FormatError(f"{place}.rules must be a list, not {_kind(rules)}")
    return Section(
        tuple(_rule(rule, f"{place}.rules[{at}]") for at, rule in enumerate(rules)),
        _turns(data.get("turns", ()), f"{place}.turns"),
    )


def _rule(data: Any, place: str) -> Rule:
    if not isinstance(data, Mapping):
        raise FormatError(f"{place} must be a mapping with `when` or `result`, not {_kind(data)}")
    when, result = _text(data, "when", place), _text(data, "result", place)
    if not when and not result:
        raise FormatError(f"{place} needs `when` or `result`, the text that it is for")
    rest = {k: v for k, v in data.items() if k not in ("when", "result")}
    if "turns" in rest:
        _known(data, _RULE, place)
        turns = _turns(rest["turns"], f"{place}.turns")
    else:
        turns = (_turn(rest, place),)
    if not turns:
        raise FormatError(f"{place} needs at least one turn")
    return Rule(when, result, turns)


def _turns(data: Any, place: str) -> tuple[Turn, ...]:
    if _is_list(data):
        return tuple(_turn(one, f"{place}[{at}]") for at, one in enumerate(data))
    return (_turn(data, place),)


def _turn(data: Any, place: str) -> Turn:
    if isinstance(data, str):
        return Turn(data)
    if not isinstance(data, Mapping):
        raise FormatError(f"{place} must be a text or a mapping, not {_kind(data)}")
    _known(data, _TURN, place)
    if not data:
        raise FormatError(f"{place} is empty; a turn has one of {', '.join(sorted(_TURN))}")
    error = _fault(data.get("error"), f"{place}.error")
    times = _number(data, "times", place, int)
    if times is not None and error is None:
        raise FormatError(f"{place}.times says how often `error` is raised, and there is none")
    calls = data.get("calls", ())
    if not _is_list(calls):
        raise FormatError(f"{place}.calls must be a list, not {_kind(calls)}")
    return Turn(
        _text(data, "text", place) or "",
        tuple(_call(call, f"{place}.calls[{at}]") for at, call in enumerate(calls)),
        _usage(data.get("usage"), f"{place}.usage"),
        _number(data, "delay", place),
        _text(data, "finish_reason", place),
        _number(data, "cut", place, int),
        error,
        times,
    )


def _call(data: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise FormatError(f"{place} must be a mapping with name and arguments, not {_kind(data)}")
    _known(data, {"id", "name", "arguments"}, place)
    if not _text(data, "name", place):
        raise FormatError(f"{place} needs the name of a tool")
    arguments = data.get("arguments", {})
    if not isinstance(arguments, (Mapping, str)):
        raise FormatError(f"{place}.arguments must be a mapping, or a text as a provider might send it")
    return {"id": data.get("id"), "name": data["name"], "arguments": arguments}


def _fault(data: Any, place: str) -> Fault | None:
    if data is None:
        return None
    given = {"kind": data} if isinstance(data, str) else data
    if not isinstance(given, Mapping):
        raise FormatError(f"{place} must be a kind or a mapping, not {_kind(data)}")
    _known(given, {"kind", "message", "window"}, place)
    kind = given.get("kind")
    if kind not in KINDS:
        raise FormatError(f"{place}: {kind!r} is no kind of error; known are {', '.join(KINDS)}")
    return Fault(kind, _text(given, "message", place) or KINDS[kind], _number(given, "window", place, int))


def _usage(data: Any, place: str) -> Usage | None:
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise FormatError(f"{place} must be a mapping of tokens, not {_kind(data)}")
    _known(data, {"input", "output", "cache_read", "cache_write"}, place)
    counts = {name: _number(data, name, place, int) or 0 for name in data}
    return Usage(
        counts.get("input", 0),
        counts.get("output", 0),
        0.0,
        counts.get("cache_read", 0),
        counts.get("cache_write", 0),
    )


# Plain values


def _known(data: Mapping[str, Any], names: set[str], place: str) -> None:
    unknown = [str(key) for key in data if key not in names]
    if unknown:
        raise FormatError(f"{place}: {', '.join(unknown)} is not known here; known are {', '.join(sorted(names))}")


def _text(data: Mapping[str, Any], name: str, place: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{place}.{name} must be a text, not {_kind(value)}")
    return value


def _number(data: Mapping[str, Any], name: str, place: str, kind: type = float) -> Any:
    value = data.get(name)
    if value is None:
        return None
    right = type(value) is int or (kind is float and type(value) is float)
    if not right or not 0 <= value < float("inf"):
        raise FormatError(f"{place}.{name} must be a number from 0, {'whole ' if kind is int else ''}not {value!r}")
    return value


def _flag(data: Mapping[str, Any], name: str, place: str, default: bool) -> bool:
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise FormatError(f"{place}.{name} must be true or false, not {_kind(value)}")
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _kind(value: Any) -> str:
    return type(value).__name__
