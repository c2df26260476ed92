"""The fake provider as a process of its own: `python -m agentkit.models.testing.provider --script FILE`. Reads that
file, and serves until standard input is closed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from agentkit.core.contracts.errors import FormatError

from .fake import FakeProvider

KNOWN = frozenset({"answers", "api_key", "faults", "keep", "models", "piece", "port", "repeat", "windows"})
"""Arguments of FakeProvider that a script may hold."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the address and serves; exit code 2 for a script that cannot be read."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 2 or given[0] != "--script":
        print("usage: python -m agentkit.models.testing.provider --script FILE", file=sys.stderr)
        return 2
    try:
        provider = FakeProvider(**read_script(given[1]))
    except (OSError, TypeError, ValueError) as error:
        print(f"{given[1]}: {error}", file=sys.stderr)
        return 2
    with provider:
        print(provider.url, flush=True)
        sys.stdin.buffer.read()
    return 0


def read_script(path: str) -> dict[str, Any]:
    """The arguments that a script holds. OSError or FormatError for one that cannot be read."""
    with open(path, "rb") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise FormatError(f"the script is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise FormatError(f"a script is a JSON object, not {type(data).__name__}")
    unknown = sorted(set(data) - KNOWN)
    if unknown:
        raise FormatError(f"{', '.join(unknown)} is not known here; known are {', '.join(sorted(KNOWN))}")
    return data


if __name__ == "__main__":
    sys.exit(main())
