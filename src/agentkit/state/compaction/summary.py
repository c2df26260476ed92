"""What folded messages amounted to, in fields, so that a later summary is merged into an earlier one instead of
summarising it. Touches only its arguments.

An *entry* is one numbered message of a record. Every item carries `n`, the newest entry it rests on. Merging is a union
by key in which the greater `n` wins: associative, commutative and idempotent, with the empty summary as its unit.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, TypeVar

from agentkit.core.contracts.errors import FormatError
from agentkit.core.contracts.jsontext import canonical_json

from .ranges import Ranges, union
from .shorten import shortened

TEXT_LIMIT = 500
"""Characters of an item's text. Caps count items, so each item has to have a bound of its own."""
NARRATIVE_LIMIT = 1_000

OPEN, NEXT, DONE = "open", "next", "done"
_RANKS = {OPEN: 0, NEXT: 1, DONE: 2}
"""At the same entry done absorbs the others, so that finished work does not come back; a later reopening counts."""


def _clip(item: Any, *names: str, limit: int = TEXT_LIMIT) -> None:
    for name in names:
        object.__setattr__(item, name, shortened(getattr(item, name), limit))


@dataclass(frozen=True)
class Point:
    """A goal or a fact."""

    text: str
    n: int = 0

    def __post_init__(self) -> None:
        _clip(self, "text")

    @property
    def key(self) -> str:
        return normalised(self.text)


@dataclass(frozen=True)
class Constraint:
    """A rule of the user, in the words of entry `entry`. `lifted_by`: the user entry that took it back; the lifted rule
    stays as a mark, so that an older summary does not bring it back."""

    text: str
    entry: int = 0
    n: int = 0
    lifted_by: int | None = None

    def __post_init__(self) -> None:
        _clip(self, "text")

    @property
    def key(self) -> str:
        return normalised(self.text)


@dataclass(frozen=True)
class Decision:
    """What was decided, and why."""

    what: str
    why: str = ""
    n: int = 0

    def __post_init__(self) -> None:
        _clip(self, "what", "why")

    @property
    def key(self) -> str:
        return normalised(self.what)


@dataclass(frozen=True)
class Artifact:
    """A path, identifier or URL, exact, and what it is for."""

    id: str
    why: str = ""
    n: int = 0

    def __post_init__(self) -> None:
        _clip(self, "id", "why")

    @property
    def key(self) -> str:
        return self.id


@dataclass(frozen=True)
class Failure:
    """What went wrong, and what helped."""

    what: str
    fix: str = ""
    n: int = 0

    def __post_init__(self) -> None:
        _clip(self, "what", "fix")

    @property
    def key(self) -> str:
        return normalised(self.what)


@dataclass(frozen=True)
class Step:
    """A piece of work. `status`: open, next (asked for and not begun) or done; ValueError for another."""

    text: str
    status: str = OPEN
    n: int = 0

    def __post_init__(self) -> None:
        if self.status not in _RANKS:
            raise ValueError(f"status must be one of {', '.join(_RANKS)}, not {self.status!r}")
        _clip(self, "text")

    @property
    def key(self) -> str:
        return normalised(self.text)


@dataclass(frozen=True)
class Piece:
    """How the entries of `covers` went, in prose. Pieces stand side by side."""

    text: str
    covers: Ranges = ()
    n: int = 0

    def __post_init__(self) -> None:
        _clip(self, "text", limit=NARRATIVE_LIMIT)
        object.__setattr__(self, "covers", union(self.covers))

    @property
    def key(self) -> str:
        return canonical_json([list(pair) for pair in self.covers])


Item: TypeAlias = Point | Constraint | Decision | Artifact | Failure | Step | Piece
ItemT = TypeVar("ItemT", Point, Constraint, Decision, Artifact, Failure, Step, Piece)


@dataclass(frozen=True)
class Summary:
    """What `covers`, ranges of entry numbers, amounted to. The constructor brings every field into its one order: by
    `n`, then by key, one item a key, the newest up to the field's cap."""

    goals: tuple[Point, ...] = ()
    facts: tuple[Point, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    decisions: tuple[Decision, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    errors: tuple[Failure, ...] = ()
    steps: tuple[Step, ...] = ()
    narrative: tuple[Piece, ...] = ()
    covers: Ranges = ()

    def __post_init__(self) -> None:
        for name, cap in CAPS.items():
            object.__setattr__(self, name, _settled(getattr(self, name), cap))
        object.__setattr__(self, "covers", union(self.covers))

    @property
    def open(self) -> tuple[Step, ...]:
        """Work begun or known to be due."""
        return tuple(step for step in self.steps if step.status == OPEN)

    @property
    def next(self) -> tuple[Step, ...]:
        """What the latest request asks for."""
        return tuple(step for step in self.steps if step.status == NEXT)

    @property
    def done(self) -> tuple[Step, ...]:
        """Finished work."""
        return tuple(step for step in self.steps if step.status == DONE)

    @property
    def rules(self) -> tuple[Constraint, ...]:
        """The constraints that hold: those that were not lifted."""
        return tuple(rule for rule in self.constraints if rule.lifted_by is None)

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self))

    def merge(self, other: Summary) -> Summary:
        """Both in one; which of the two is older makes no difference."""
        return Summary(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; empty fields are left out."""
        return {
            f.name: [list(v) if isinstance(v, tuple) else asdict(v) for v in getattr(self, f.name)]
            for f in fields(self)
            if getattr(self, f.name)
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """The summary that `to_dict` described. Unknown keys are ignored; FormatError for values of another shape."""
        try:
            return cls(
                **{name: tuple(_item(kind, raw) for raw in data.get(name, ())) for name, kind in KINDS.items()},
                covers=_ranges(data.get("covers", ())),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"this is no summary: {error}") from error


CAPS: dict[str, int | None] = {
    "goals": 16, "facts": 64, "constraints": None, "decisions": 48, "artifacts": 96, "errors": 32, "steps": 96,
    "narrative": 8,
}  # fmt: skip
"""Items a field holds; constraints never go by age or number."""

KINDS: dict[str, Callable[..., Item]] = {
    "goals": Point, "facts": Point, "constraints": Constraint, "decisions": Decision, "artifacts": Artifact,
    "errors": Failure, "steps": Step, "narrative": Piece,
}  # fmt: skip
"""What each field holds."""


def normalised(text: str) -> str:
    """The key of a text: NFKC, case-folded, white space collapsed, end punctuation off."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).rstrip(".,;:!?…。、！？ ")


def _settled(items: Iterable[ItemT], cap: int | None) -> tuple[ItemT, ...]:
    best: dict[str, ItemT] = {}
    for item in items:
        held = best.setdefault(item.key, item)
        if held is not item and held != item and _weight(item) > _weight(held):
            best[item.key] = item
    ordered = sorted(best.items(), key=lambda pair: (pair[1].n, pair[0]))
    return tuple(item for _, item in (ordered if cap is None else ordered[-cap:]))


def _weight(item: Item) -> tuple[int, int, str]:
    rank = _RANKS[item.status] if isinstance(item, Step) else 0
    return item.n, rank, canonical_json(asdict(item))


def _item(kind: Callable[..., Item], raw: Any) -> Any:
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    given = {name: raw[name] for name in names if name in raw}
    for name, value in given.items():
        if name == "covers":
            given[name] = _ranges(value)
        elif name in ("n", "entry", "lifted_by"):
            if type(value) is not int and not (value is None and name == "lifted_by"):
                raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        elif not isinstance(value, str):
            raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return kind(**given)


def _ranges(raw: Any) -> Ranges:
    found = []
    for first, last in raw:
        if type(first) is not int or type(last) is not int:
            raise TypeError("a range is two ints")
        found.append((first, last))
    return tuple(found)
