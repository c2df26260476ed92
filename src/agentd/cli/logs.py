"""Logs as JSON lines on standard error. Touches the logging of this process."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event"}


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, the event's fields where it is one, the traceback of a fault."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event = getattr(record, "event", None)
        if isinstance(event, dict):
            told |= {key: value for key, value in event.items() if key != "time"}
        else:
            told["message"] = record.getMessage()
        told |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def log_to_stderr(level: str) -> None:
    """Send all logs of at least this level (debug, info, warning, error) to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # The SDK logs messages of servers with their content; what concerns an operator is told by agentd itself.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    logging.getLogger("agentd").setLevel(level.upper())
