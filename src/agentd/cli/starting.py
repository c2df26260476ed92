"""Starting a daemon from the command line, and saying why it would not. Touches what the configuration names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentd.config import Settings
    from agentd.runtime.daemon import Daemon

STORE_FAILED = 8


class CannotStart(click.ClickException):
    """Why there is no daemon."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@asynccontextmanager
async def started(found: Settings, *, fresh: bool = False) -> AsyncIterator[Daemon]:
    """A running daemon, drained at the end. CannotStart says what keeps it from starting."""
    from agentd.records import Held
    from agentd.runtime.daemon import Daemon
    from agentkit.core.contracts.errors import StoreError

    try:
        agent = await Daemon.open(found, fresh=fresh)
    except (Held, StoreError, OSError) as error:
        raise CannotStart(str(error), STORE_FAILED) from error
    except (ValueError, LookupError) as error:
        raise CannotStart(str(error)) from error
    async with agent:
        yield agent
