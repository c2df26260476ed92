"""Places where a test may have the process killed: `AGENTD_KILL_AT=name` or `name:n`, SIGKILL at the nth pass. Without
`AGENTD_TEST=1` they do nothing. Touches the environment, once, and with both set this very process.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Mapping

NAMES = frozenset(
    {
        "inbox.before", "inbox.after", "entry.user", "round.before_call", "round.started", "tool.done",
        "round.committed", "end.before", "end.context", "end.task", "end.ack", "compact.planned", "compact.answered",
        "compact.applied", "memory.value", "restore.sealed", "commit",
    }
)  # fmt: skip


class KillPoints:
    """Counts passes and kills at the one that is named."""

    def __init__(self, name: str | None = None, nth: int = 1) -> None:
        self._name, self._nth = name, nth
        self._passes: Counter[str] = Counter()

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> KillPoints:
        """What the environment asks for. ValueError for a place that does not exist."""
        asked = environ.get("AGENTD_KILL_AT")
        if not asked or environ.get("AGENTD_TEST") != "1":
            return cls()
        name, _, nth = asked.partition(":")
        if name not in NAMES or (nth and not nth.isdigit()):
            raise ValueError(f"AGENTD_KILL_AT: {asked!r} is no kill point; known are {', '.join(sorted(NAMES))}")
        logging.getLogger("agentd").critical("TEST: this process will kill itself at %s", asked)
        return cls(name, int(nth or 1))

    def reach(self, name: str) -> None:
        """Pass the place `name`."""
        if self._name is None or name != self._name:
            return
        self._passes[name] += 1
        if self._passes[name] == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)
