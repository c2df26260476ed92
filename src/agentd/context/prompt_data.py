"""What the templates of a prompt read: plain mappings, lists, texts and numbers. Touches only its arguments.

Texts of others, of tools, skills, peers and keys, are on one line here, so that none can pass for a part of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from agentd.config import Settings, duration_text
from agentkit.core.contracts.frozen import deep_freeze
from agentkit.core.contracts.messages import derived
from agentkit.core.contracts.surrogates import replace_surrogates

from .skills import Catalogue, Listed, listing, one_line
from .template import MAX_OUTPUT

MAX_ITEMS = 32
"""Items of a list in the data; the text beside it says how many more there are."""

Names: TypeAlias = Mapping[str, Collection[str] | None]
_TEXT: tuple[str, ...] = ()
_FREE = None

STANDING_NAMES: Names = {
    "instance": ("name", "description"),
    "instruction": _TEXT,
    "tools": _FREE, "tools_text": _TEXT,
    "families": _FREE, "families_text": _TEXT,
    "skills": ("catalogue", "catalogue_text", "errors", "errors_text"),
    "peers": _FREE, "peers_text": _TEXT,
    "principal": ("id", "role"),
    "limits": _FREE, "limits_text": _TEXT,
    "extra": _FREE, "extra_text": _TEXT,
}  # fmt: skip
VOLATILE_NAMES: Names = {
    **STANDING_NAMES,
    "plan": _FREE, "plan_text": _TEXT,
    "memory": ("keys", "keys_text"),
    "gates": _FREE, "gates_text": _TEXT,
    "runs": _FREE, "runs_text": _TEXT,
    "budget": _FREE, "budget_text": _TEXT,
    "now": _TEXT,
}  # fmt: skip
"""What templates may read, with the keys that each has; None where they are free."""


@dataclass(frozen=True)
class ToolLine:
    """A tool as the prompt tells of it. `name` as configured (`memory.get`); the model calls it by `wire`, by default
    the name with `_` for dots. `family`: what it belongs to, by default what stands before the first dot."""

    name: str
    description: str = ""
    wire: str = ""
    family: str = ""

    @property
    def called(self) -> str:
        return one_line(self.wire or self.name.replace(".", "_"))

    @property
    def group(self) -> str:
        return one_line(self.family or self.name.partition(".")[0])


@dataclass(frozen=True)
class StandingData:
    """What the standing part is rendered from. `skill_errors`: source and error; `peers`: name and description;
    `principal`: id and role. What is equal renders the same."""

    name: str = ""
    description: str = ""
    instruction: str = ""
    tools: tuple[ToolLine, ...] = ()
    skills: tuple[Listed, ...] = ()
    skill_errors: tuple[tuple[str, str], ...] = ()
    peers: tuple[tuple[str, str], ...] = ()
    principal: tuple[str, str] = ("", "")
    limits: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("limits", "extra"):  # so that they stay what they were compared with
            object.__setattr__(self, name, deep_freeze(getattr(self, name)))

    @property
    def shown(self) -> dict[str, Any]:
        """`data`, made once: a request needs it twice, and it changes seldom."""
        return derived(self, "_shown", StandingData.data)

    def data(self) -> dict[str, Any]:
        """As templates read it: plain mappings, lists, texts and numbers."""
        families: dict[str, list[str]] = {}
        for tool in self.tools:
            families.setdefault(tool.group, []).append(tool.called)
        tools = [{"name": t.called, "family": t.group, "description": one_line(t.description)} for t in self.tools]
        groups = [{"name": name, "tools": names, "tools_text": ", ".join(names)} for name, names in families.items()]
        skills = [
            {"name": s.ref, "source": s.source, "description": one_line(s.description), "when": one_line(s.when)}
            for s in self.skills
        ]
        errors = [{"source": source, "error": one_line(error)} for source, error in self.skill_errors]
        peers = [{"name": one_line(name), "description": one_line(text)} for name, text in self.peers]
        limits, extra = _plain(self.limits), _plain(self.extra)
        return {
            "instance": {"name": _text(self.name), "description": _text(self.description)},
            "instruction": _text(self.instruction),
            **_twin("tools", tools, lambda row: f"- {row['name']}: {row['description']}"),
            **_twin("families", groups, lambda row: f"- {row['name']}: {row['tools_text']}"),
            "skills": {
                "catalogue": skills[:MAX_ITEMS],
                "catalogue_text": _more(listing(self.skills[:MAX_ITEMS]), len(skills)),
                **_twin("errors", errors, lambda row: f"- {row['source']}: {row['error']}"),
            },
            **_twin("peers", peers, lambda row: f"- {row['name']}: {row['description']}"),
            "principal": {"id": _text(self.principal[0]), "role": _text(self.principal[1])},
            "limits": limits,
            "limits_text": _lines_of(limits),
            "extra": extra,
            "extra_text": _lines_of(extra),
        }


@dataclass(frozen=True)
class VolatileData:
    """What only the volatile part reads. `plan`: as recorded, `plan_text` as it is shown; `gates` and `runs`: what is
    told of each; `budget`: what is left, by name; `now` in ms, 0 for not told."""

    plan: Any = None
    plan_text: str = ""
    memory_keys: Sequence[str] = ()
    gates: Sequence[Mapping[str, Any]] = ()
    runs: Sequence[Mapping[str, Any]] = ()
    budget: Mapping[str, Any] = field(default_factory=dict)
    now: int = 0

    def data(self) -> dict[str, Any]:
        keys = [one_line(key) for key in self.memory_keys]
        plan = None if self.plan is None else _plain(msgspec.to_builtins(self.plan, str_keys=True))
        budget = _plain(self.budget)
        return {
            "plan": plan,
            "plan_text": _text(self.plan_text) or (_lines_of(plan) if isinstance(plan, dict) else _value(plan)),
            "memory": _twin("keys", keys, lambda key: f"- {key}"),
            **_twin("gates", [_plain(gate) for gate in self.gates], _row),
            **_twin("runs", [_plain(run) for run in self.runs], _row),
            "budget": budget,
            "budget_text": _lines_of(budget),
            "now": _time(self.now) if self.now else "",
        }


def _twin(name: str, rows: Sequence[Any], line: Callable[[Any], str]) -> dict[str, Any]:
    """A list within the cap, and the same ready to print."""
    shown = [_plain(row) for row in rows[:MAX_ITEMS]]
    return {name: shown, f"{name}_text": _more("\n".join(line(row) for row in shown), len(rows))}


def _more(text: str, count: int) -> str:
    return f"{text}\n(and {count - MAX_ITEMS} more)" if count > MAX_ITEMS else text


def _row(row: Mapping[str, Any]) -> str:
    head, *rest = [_value(value) for value in row.values() if value not in (None, "")] or [""]
    return f"- {head}: {', '.join(rest)}" if rest else f"- {head}"


def _lines_of(mapping: Mapping[str, Any]) -> str:
    return "\n".join(f"- {one_line(key)}: {_value(value)}" for key, value in mapping.items() if value is not None)


def _value(value: Any) -> str:
    if value is None:
        return ""
    return one_line(value) if isinstance(value, str) else one_line(msgspec.json.encode(value).decode())


def _plain(value: Any, depth: int = 0) -> Any:
    """Mappings, lists, texts, numbers, and nothing that has methods of its own. Raises ValueError for anything else."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return _text(value)
    if depth > 16:
        raise ValueError("data of a template is nested more than 16 levels deep")
    if isinstance(value, Mapping):
        return {_text(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value[:MAX_ITEMS]]
    raise ValueError(f"data of a template is JSON, not {type(value).__name__}")


def _text(text: str) -> str:
    """One that is longer than what may be rendered is cut, since rendering it fails anyway: no filter works on it."""
    return replace_surrogates(str(text)[: MAX_OUTPUT + 1])


def _time(now: int) -> str:
    return datetime.fromtimestamp(now // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def standing_data(
    settings: Settings,
    *,
    tools: Iterable[ToolLine] = (),
    catalogue: Catalogue | None = None,
    principal: tuple[str, str] = ("", ""),
    instruction: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> StandingData:
    """The standing data of an instance. `instruction`: a subagent's own, in place of the configured one."""
    agent, run = settings.agent, settings.limits.run
    skills = catalogue or Catalogue()
    return StandingData(
        agent.name,
        agent.description,
        agent.instruction if instruction is None else instruction,
        tuple(tools),
        skills.skills,
        skills.errors,
        tuple((peer.name, "") for peer in settings.a2a.peers),
        principal,
        {"steps": run.steps, "tokens": run.tokens, "deadline": duration_text(run.deadline)},
        extra or {},
    )
