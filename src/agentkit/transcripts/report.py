"""What an import did to a file: a finding for each thing joined, left out, repaired or lost. Pure values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LEVELS = ("note", "repair", "loss")
"""From harmless to serious: the shape was normalised; something was wrong and could be told; content is gone."""

MAX_FINDINGS = 1000
"""Findings of one kind that are kept one by one: a file broken on every line must not make a report of its size."""

_PLACES = 5


@dataclass(frozen=True)
class Finding:
    """One entry of a report.

    `level`: note, repair or loss. `kind`: a short fixed word (`joined`, `call unanswered`, `line broken`).
    `place`: line, record or path within the file. `action`: what the importer did. `reason`: why.
    """

    level: str
    kind: str
    place: str
    action: str
    reason: str

    def __str__(self) -> str:
        return f"{self.level}: {self.kind} at {self.place}: {self.action} ({self.reason})"


@dataclass(frozen=True)
class Report:
    """All findings of one conversation, in the order of the file; the same file gives the same report."""

    findings: tuple[Finding, ...] = ()

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def of(self, kind: str) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple([f for f in self.findings if f.kind == kind])

    def at(self, level: str) -> tuple[Finding, ...]:
        """The findings of one level; ValueError for a level that does not exist."""
        if level not in LEVELS:
            raise ValueError(f"unknown level {level!r}; known are {', '.join(LEVELS)}")
        return tuple([f for f in self.findings if f.level == level])

    @property
    def has_losses(self) -> bool:
        return any(f.level == "loss" for f in self.findings)


class Reporter:
    """Collects findings during an import and seals them into a Report.

    Notes that differ in their place alone become one finding, since a long session has hundreds of them.
    """

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._notes: dict[tuple[str, str, str], _Places] = {}

    def note(self, kind: str, place: str, action: str, reason: str) -> None:
        key = (kind, action, reason)
        found = self._notes.get(key)
        if found is None:
            found = self._notes[key] = _Places(len(self._findings))
            self._findings.append(Finding("note", kind, place, action, reason))
        found.add(place)

    def repair(self, kind: str, place: str, action: str, reason: str) -> None:
        self._add(Finding("repair", kind, place, action, reason))

    def loss(self, kind: str, place: str, action: str, reason: str) -> None:
        self._add(Finding("loss", kind, place, action, reason))

    def _add(self, finding: Finding) -> None:
        key = (finding.level, finding.kind)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= MAX_FINDINGS:
            self._findings.append(finding)

    def extend(self, report: Report) -> None:
        for finding in report:
            self._add(finding)

    def seal(self) -> Report:
        """The report so far; more may be added and sealed again."""
        findings = list(self._findings)
        for (kind, action, reason), places in self._notes.items():
            findings[places.at] = Finding("note", kind, str(places), action, reason)
        for (level, kind), count in self._counts.items():
            if count > MAX_FINDINGS:
                more = f"{count - MAX_FINDINGS} more of this kind"
                findings.append(Finding(level, kind, "further on", "counted only", more))
        return Report(tuple(findings))


class _Places:
    """Where a note applies: the first few places, and how many more."""

    def __init__(self, at: int) -> None:
        self.at = at
        self._shown: list[str] = []
        self._count = 0

    def add(self, place: str) -> None:
        self._count += 1
        if len(self._shown) < _PLACES:
            self._shown.append(place)

    def __str__(self) -> str:
        more = self._count - len(self._shown)
        return ", ".join(self._shown) + (f" and {more} more" if more else "")
