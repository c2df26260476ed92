"""Settings from texts, with everything that the tests of a rule do not care about filled in."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from agentd.config import ConfigError, Fault, Finding, Settings, load

MODEL = {
    "AGENTD_INTELLIGENCE__ENDPOINTS": "[replay:chat.jsonl]",
    "AGENTD_INTELLIGENCE__MODEL": "claude-sonnet-4-6",
}

BASE = "intelligence: {endpoints: ['replay:chat.jsonl'], model: claude-sonnet-4-6}\n"
"""The same as a document, for tests of files that change it."""


def everything(settings: Settings) -> Iterable[Finding]:
    """A release that does all that the design describes."""
    return ()


def settings(
    folder: Path,
    *texts: str,
    environ: Mapping[str, str] = MODEL,
    flags: Iterable[tuple[str, str]] = (),
    whole: bool = True,
) -> Settings:
    """Load documents given as texts. `whole`: nothing is refused as unsupported."""
    files = []
    for number, text in enumerate(texts, 1):
        files.append(folder / f"{number}.yaml")
        files[-1].write_text(text, encoding="utf-8")
    if whole:
        return load(files, environ=environ, flags=flags, release=everything)
    return load(files, environ=environ, flags=flags)


def faults(
    folder: Path,
    *texts: str,
    environ: Mapping[str, str] = MODEL,
    flags: Iterable[tuple[str, str]] = (),
    whole: bool = True,
) -> list[Fault]:
    """The faults of loading; none if it succeeds."""
    try:
        settings(folder, *texts, environ=environ, flags=flags, whole=whole)
    except ConfigError as error:
        return list(error.faults)
    return []


def said(folder: Path, *texts: str, environ: Mapping[str, str] = MODEL, whole: bool = True) -> list[str]:
    """The faults as messages, without the folder."""
    return [str(f).replace(f"{folder}/", "") for f in faults(folder, *texts, environ=environ, whole=whole)]
