"""Where skills come from: sources behind one protocol, and what they offer together. Touches what its sources touch.

Texts are held in memory by hash and never stored. A source that fails is told of and hides nothing of the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from agentd.config.thinking import Skills
from agentd.context.record import SkillRef
from agentd.context.skill_file import Skill, SkillError
from agentd.context.skills import (
    Body,
    Catalogue,
    Offered,
    Step,
    body_of,
    clipped,
    compared,
    merged,
    to_fetch,
    unfetched,
)

from .server_skills import ServerSource
from .skill_folder import DirectorySource

if TYPE_CHECKING:
    from agentd.mcp import Server

__all__ = ["DirectorySource", "Loaded", "SkillLibrary", "SkillSource", "sources_of"]

TIMEOUT = 60.0
"""Seconds that a source may take to answer, as `mcp.servers[].timeout` has it."""


class SkillSource(Protocol):
    """Something that has skills. `name` is of ASCII letters, digits, `_ - .`; it is part of what a skill is called
    where two sources have one of the same name. Any exception of its methods is told as this source's error."""

    @property
    def name(self) -> str: ...

    async def catalogue(self) -> Offered:
        """What there is."""
        ...

    async def body(self, name: str, *, file: str | None = None, arguments: Mapping[str, Any] | None = None) -> str:
        """The text of the skill `name`, or of a file that belongs to it."""
        ...

    async def aclose(self) -> None:
        """Let go of what is open."""
        ...


@dataclass(frozen=True)
class Loaded:
    """A text of a skill. `ref`: what the skill is called here; `hash`: of the text as shown; `file`: the file of the
    skill that it is, None for the body; `cut`: bytes left out."""

    ref: str
    text: str
    hash: str
    file: str | None = None
    cut: int = 0


class SkillLibrary:
    """The skills of one instance. Call `discover` at start, when a source's list changed, and at reload."""

    def __init__(self, sources: Iterable[SkillSource] = (), settings: Skills | None = None) -> None:
        self.settings = settings if settings is not None else Skills()
        self._sources = _named(sources)
        self._offered: dict[str, tuple[Skill, ...]] = {}
        self._bodies: dict[str, str] = {}
        self._missing: set[tuple[str, str]] = set()
        self._discovered = False
        self._looking: asyncio.Task[None] | None = None
        self._is_stale = False
        self.catalogue = Catalogue()

    @property
    def bodies(self) -> Mapping[str, str]:
        """Texts by hash, those loaded in this life."""
        return MappingProxyType(self._bodies)

    async def discover(self) -> Catalogue:
        """Ask all sources what they have. One that does not answer keeps what it had, and its error is told."""
        sources = dict(self._sources)
        answers = await asyncio.gather(*(_offer(source) for source in sources.values()))
        errors: list[tuple[str, str]] = []
        for name, answer in zip(sources, answers, strict=True):
            if isinstance(answer, Offered):
                self._offered[name] = answer.skills
                errors += [(name, error) for error in answer.errors]
            else:
                errors.append((name, answer))
        self._offered = {name: self._offered.get(name, ()) for name in sources}
        self.catalogue = merged([*self._offered.items()], errors)
        self._discovered = True
        return self.catalogue

    def heard(self, source: str, change: str) -> None:
        """What an MCP server has may have changed; it is asked again where it is a source, once however often it is
        told."""
        if change not in ("up", "resources", "prompts") or source not in self._sources:
            return
        self._is_stale = True
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again(), name="skills")

    async def _look_again(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                await self.discover()
        finally:
            self._looking = None

    async def settled(self) -> None:
        """Wait until what was heard has been looked at."""
        if self._looking is not None:
            await asyncio.wait({self._looking})

    async def load(
        self, ref: str, *, file: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> Loaded:  # fmt: skip
        """The text of a skill as it is now, or of one of its files. Raises SkillError that says what would help."""
        if not self._discovered:
            await self.discover()
        listed = self.catalogue.find(ref)
        source = self._sources.get(listed.source)
        if source is None:
            raise SkillError(f"the source {listed.source!r} of the skill {clipped(ref)!r} is gone")
        try:
            async with asyncio.timeout(TIMEOUT):
                text = await source.body(listed.name, file=file, arguments=arguments)
        except SkillError:
            raise
        except Exception as error:  # a source is code of others, and a turn goes on without a skill
            raise SkillError(
                f"the skill {clipped(ref)!r} cannot be read from {listed.source!r}: {_reason(error)}"
            ) from error
        body: Body = body_of(text, self.settings.max_bytes, name=ref if file is None else f"{ref}/{file}")
        if file is None:
            self._bodies[body.hash] = body.text
        return Loaded(listed.ref, body.text, body.hash, file, body.cut)

    async def refresh(self, context: str, skills: Sequence[SkillRef]) -> tuple[Step, ...]:
        """Fetch the loaded skills of a context whose texts are not at hand, and compare: in its first turn after a
        restart, all of them. Returns what is to be written; a text that is gone is told once in a life."""
        steps = []
        for held in list(to_fetch(skills, self._bodies)):
            try:
                found = await self.load(held.name, arguments=held.args)
            except SkillError as error:
                if held.status == "" and (context, held.hash) not in self._missing:
                    self._missing.add((context, held.hash))
                    steps.append(unfetched(held, str(error)))
            else:
                self._missing.discard((context, held.hash))
                if held.status == "":  # of one that was unloaded only the old text is of use, and only for now
                    steps.append(compared(held, found.hash))
        return tuple(step for step in steps if step != Step())

    def forget(self, in_use: Iterable[str]) -> None:
        """Let go of all texts but those with these hashes: those that the contexts in memory show."""
        keep = set(in_use)
        for gone in [hash for hash in self._bodies if hash not in keep]:
            del self._bodies[gone]

    async def update(self, sources: Iterable[SkillSource], settings: Skills) -> Catalogue:
        """Take over other sources and settings, as a reload does, and discover anew; those not among them close."""
        old = self._sources
        self.settings, self._sources = settings, _named(sources)
        # What another source offered under this name is nothing that this one ever had.
        self._offered = {name: had for name, had in self._offered.items() if self._sources.get(name) is old.get(name)}
        await _close([one for one in old.values() if one not in self._sources.values()])
        return await self.discover()

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        await _close(self._sources.values())


def sources_of(settings: Skills, find: Callable[[str], Server | None]) -> list[SkillSource]:
    """The configured sources: folders, and MCP servers, which `find` finds by their names."""
    return [
        DirectorySource(one.path) if one.path is not None else ServerSource(partial(find, one.server or ""), one)
        for one in settings.sources
    ]


def _named(sources: Iterable[SkillSource]) -> dict[str, SkillSource]:
    """Sources by name; the second one of a name has a number behind it."""
    found: dict[str, SkillSource] = {}
    seen: Counter[str] = Counter()
    for source in sources:
        name = source.name
        while name in found:
            seen[source.name] += 1
            name = f"{source.name}-{seen[source.name] + 1}"
        found[name] = source
    return found


async def _offer(source: SkillSource) -> Offered | str:
    try:
        async with asyncio.timeout(TIMEOUT):
            return await source.catalogue()
    except Exception as error:  # one source's failure is told and stops nobody
        return _reason(error)


async def _close(sources: Iterable[SkillSource]) -> None:
    errors = []
    for source in sources:
        try:
            await source.aclose()
        except Exception as error:  # the others are to be closed all the same
            errors.append(error)
    if errors:
        raise ExceptionGroup("sources of skills that did not close", errors)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    return str(error) or type(error).__name__
