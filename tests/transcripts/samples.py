"""The sample files, and a shorthand to import data that a test writes itself."""

import json
from pathlib import Path
from typing import Any

from agentkit.transcripts import Transcript, loads

FOLDER = Path(__file__).resolve().parent.parent / "data" / "transcripts"
SAMPLES = sorted(p.relative_to(FOLDER).as_posix() for p in FOLDER.glob("*/*") if p.is_file())
LARGE = frozenset({"claude-code/worktree-long.jsonl", "tau-bench/gpt4o-airline-mixed.json"})
"""Samples that tests over many variants leave out."""


def sample(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def jsonl(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def one(data: Any, format: str | None = None) -> Transcript:
    """The only transcript in a text or in a JSON value."""
    (found,) = loads(data if isinstance(data, (str, bytes)) else json.dumps(data), format=format)
    return found


def kinds(transcript: Transcript) -> list[str]:
    """The kinds of findings, in order, less what is said of every Claude Code session."""
    return [finding.kind for finding in transcript.report if finding.kind != "prompt not recorded"]
