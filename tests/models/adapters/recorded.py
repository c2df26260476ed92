"""Recorded exchanges of real providers, and canned wires that give their responses again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentkit.core.contracts.jsontext import canonical_json
from tests.models.adapters.served import Canned, Wire

DATA = Path(__file__).resolve().parent.parent.parent / "data"


def exchanges(name: str) -> list[dict[str, Any]]:
    """The exchanges of a file under tests/data, in order."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def replaying(records: list[dict[str, Any]]) -> Wire:
    """A wire that answers as it was recorded, one exchange after the other."""
    answers = [r["response"] if isinstance(r["response"], dict) else Canned(r["response"].encode()) for r in records]
    return Wire(*answers)


def same(ours: Any, recorded: Any) -> None:
    """Fails where two JSON values differ in anything but the order of keys."""
    assert json.loads(canonical_json(ours)) == recorded
    assert canonical_json(ours) == canonical_json(recorded)
