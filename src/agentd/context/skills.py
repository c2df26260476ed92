"""Skills in a context: references in texts, the catalogue, what loading and unloading do. Touches only its arguments.

A *body* is the text of a skill as the model reads it. Bodies are never stored: the record keeps names and hashes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentkit.core.contracts.surrogates import replace_surrogates

from .record import SkillChange, SkillRef
from .skill_file import Skill, SkillError

PREFIX = "@skill:"
MAX_LOADED = 8
MAX_BYTES = 32_768
MAX_NAME = 256
"""Characters of a reference that are read as one; a source and a name take fewer."""
_SHOWN = 80


# References


def references(texts: str | Iterable[str], prefix: str = PREFIX) -> tuple[str, ...]:
    """The names that texts refer to as `@skill:<name>`, each once, in order. Time is linear in the texts.

    A name is of ASCII letters, digits, `_ - . /`; trailing `.` and `/` are the sentence's. One of more than MAX_NAME
    characters is no reference.
    """
    names: dict[str, None] = {}
    pattern = _pattern(prefix)
    for text in (texts,) if isinstance(texts, str) else texts:
        for found in pattern.finditer(text):
            name = found[1].rstrip("./")
            if name and len(name) <= MAX_NAME:
                names[name] = None
    return tuple(names)


@lru_cache(16)
def _pattern(prefix: str) -> re.Pattern[str]:
    if not prefix:
        raise ValueError("skills.reference_prefix is empty; every word would be a reference")
    return re.compile(re.escape(prefix) + r"([A-Za-z0-9_\-./]++)")


# The catalogue


@dataclass(frozen=True)
class Offered:
    """What one source has: the skills that could be read, and what is wrong with the others."""

    skills: tuple[Skill, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """A skill as it is offered. `ref`: what it is called here, `<source>/<name>` where two sources have the name."""

    ref: str
    source: str
    name: str
    description: str
    when: str = ""


@dataclass(frozen=True)
class Catalogue:
    """All that sources offer, sorted by `ref`, and what went wrong, by source."""

    skills: tuple[Listed, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()

    def find(self, ref: str) -> Listed:
        """The skill that `ref` names; the full `<source>/<name>` is always understood. Raises SkillError saying what
        there is instead."""
        for one in self.skills:
            if ref in (one.ref, f"{one.source}/{one.name}"):
                return one
        several = [one.ref for one in self.skills if one.name == ref]
        if several:
            raise SkillError(f"{clipped(ref)!r} is in several sources; say which: {' or '.join(several)}")
        have = _some([one.ref for one in self.skills]) or "there are none"
        failed = "; not all sources could be read" if self.errors else ""
        raise SkillError(f"there is no skill {clipped(ref)!r}; there is: {have}{failed}")


def merged(sources: Sequence[tuple[str, Sequence[Skill]]], errors: Iterable[tuple[str, str]] = ()) -> Catalogue:
    """The catalogue of sources, by their names. No skill hides another: one that two sources have is called by its
    full name in both, and one that a source has twice is told as an error."""
    found: dict[tuple[str, str], Skill] = {}
    faults = list(errors)
    for source, skills in sources:
        for skill in skills:
            if (source, skill.name) in found:
                faults.append((source, f"two skills are called {clipped(skill.name)!r}; the first one counts"))
            else:
                found[source, skill.name] = skill
    counts = Counter(name for _, name in found)
    full = {f"{source}/{name}" for source, name in found if counts[name] > 1}
    listed = []
    for (source, name), skill in found.items():
        # A name may hold a slash, and so be the full name of another.
        ref = f"{source}/{name}" if counts[name] > 1 or name in full else name
        listed.append(Listed(ref, source, name, skill.description, skill.when))
    return Catalogue(tuple(sorted(listed, key=lambda one: (one.ref, one.source))), tuple(faults))


def listing(skills: Iterable[Listed]) -> str:
    """The catalogue as text, a line each. What a source says of its skills cannot begin a line of its own."""
    return "\n".join(
        f"- {one.ref}: {one_line(one.description)}" + (f" (when: {one_line(one.when)})" if one.when else "")
        for one in skills
    )


def one_line(text: str) -> str:
    """A text of others on one line, without control characters and without an angle bracket that opens a tag."""
    plain = "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text)
    return " ".join(plain.split()).replace("<", "&lt;")


def clipped(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _some(names: Sequence[str], most: int = 16) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(clipped(name) for name in names[:most]) + more


# Bodies


@dataclass(frozen=True)
class Body:
    """A skill's text as it is shown, and its hash. `cut`: bytes that were left out."""

    text: str
    hash: str
    cut: int = 0


def body_of(text: str, max_bytes: int = MAX_BYTES, *, name: str = "") -> Body:
    """The body in `text`, cut between two characters with a mark where it has more than `max_bytes` of UTF-8. The hash
    is SHA-256 (hex) of what is shown. Raises SkillError for one that is empty."""
    if not text.strip():
        raise SkillError(f"the skill {clipped(name)!r} has no text; write below its frontmatter what to do")
    text = replace_surrogates(text)
    data = text.encode("utf-8")
    cut = 0
    if len(data) > max_bytes:
        kept = data[:max_bytes].decode("utf-8", "ignore")
        cut = len(data) - len(kept.encode("utf-8"))
        text = f"{kept}\n[cut here: {cut:,} of {len(data):,} bytes are left out]"
    return Body(text, hashlib.sha256(text.encode("utf-8")).hexdigest(), cut)


# What happens to a context's set


@dataclass(frozen=True)
class Step:
    """What is to be written: the control entry, and the note that tells the model, where either is due."""

    change: SkillChange | None = None
    note: str | None = None


def loaded_names(skills: Iterable[SkillRef]) -> tuple[str, ...]:
    """The skills whose text is in the context; those evicted or unloaded are not."""
    return tuple(ref.name for ref in skills if ref.status == "")


def load(
    skills: Sequence[SkillRef],
    name: str,
    hash: str,
    *,
    args: Mapping[str, Any] | None = None,
    max_loaded: int = MAX_LOADED,
) -> Step:
    """Load a skill whose text has `hash` into the set. Nothing to do where just that is loaded; where another text of
    it was, that is told. Raises SkillError, naming what to unload, where the set is full."""
    held = next((ref for ref in skills if ref.name == name), None)
    given = dict(args) if args else None
    if held is not None and held.status == "" and (held.hash, held.args) == (hash, given):
        return Step()
    others = [one for one in loaded_names(skills) if one != name]
    if len(others) >= max_loaded:
        raise SkillError(
            f"{len(others)} skills are loaded, which is the most (skills.max_loaded), so {clipped(name)!r} is not; "
            f"first unload one of {_some(others, max_loaded)}"
        )
    if held is not None and held.status != "unloaded" and held.args == given and held.hash != hash:
        return _changed(held, hash)
    return Step(SkillChange("load", name, held.hash if held is not None else None, hash, given))


def unload(skills: Sequence[SkillRef], name: str) -> Step:
    """Take a skill from the set; its text leaves the context with the next fold. Raises SkillError for one that is not
    in it, naming those that are."""
    held = next((ref for ref in skills if ref.name == name and ref.status != "unloaded"), None)
    if held is None:
        have = _some(loaded_names(skills)) or "none"
        raise SkillError(f"the skill {clipped(name)!r} is not loaded; loaded are: {have}")
    return Step(SkillChange("unload", name, held.hash, None))


def compared(held: SkillRef, hash: str) -> Step:
    """What a text that was fetched again means for the skill whose text was loaded before: nothing where it is the
    same, else the new one counts, and that is told with both hashes."""
    return Step() if held.hash == hash else _changed(held, hash)


def unfetched(held: SkillRef, reason: str) -> Step:
    """A loaded skill whose text cannot be had again stays in the set without its text."""
    return Step(note=f"The text of the skill {clipped(held.name)} cannot be read any more, so it is missing: {reason}")


def unknown(name: str, reason: str) -> Step:
    """A reference to a skill that there is none of: told, and the turn goes on."""
    return Step(note=f"The skill {clipped(name)!r} that is referred to cannot be loaded: {reason}")


def to_fetch(skills: Iterable[SkillRef], bodies: Mapping[str, str]) -> Iterator[SkillRef]:
    """The skills whose text is shown and not at hand: after a restart, all of them. That of one that was unloaded is
    shown until the next fold."""
    return (ref for ref in skills if ref.status in ("", "unloaded") and ref.hash not in bodies)


def _changed(held: SkillRef, hash: str) -> Step:
    note = (
        f"The skill {clipped(held.name)} was edited since it was loaded: its text had hash {held.hash} and now has "
        f"{hash}. The new text counts."
    )
    return Step(SkillChange("change", held.name, held.hash, hash, held.args), note)
