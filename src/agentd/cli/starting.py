"""Starting a daemon from the command line, and saying why it would not. Touches what the configuration names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentd.config import Settings
    from agentd.runtime.daemon import Daemon


class CannotStart(click.ClickException):
    """Why there is no daemon."""

    exit_code = 1


class StoreFailed(CannotStart):
    """The store cannot be used, or is held by another process."""

    exit_code = 8


class ServerMissing(CannotStart):
    """An MCP server that the configuration calls required is not there."""

    exit_code = 6


@asynccontextmanager
async def started(found: Settings, *, fresh: bool = False, people: bool | None = None) -> AsyncIterator[Daemon]:
    """A running daemon, drained at the end. `people`: whether its questions are answered. CannotStart says what keeps
    it from starting."""
    from agentd.runtime.daemon import Daemon
    from agentd.runtime.servers import RequiredServerDown
    from agentkit.core.contracts.errors import StoreError

    try:
        agent = await Daemon.open(found, fresh=fresh, people=people)
    except (StoreError, OSError) as error:
        raise StoreFailed(str(error)) from error
    except RequiredServerDown as error:
        raise ServerMissing(str(error)) from error
    except (ValueError, LookupError) as error:
        raise CannotStart(str(error)) from error
    async with agent:
        yield agent
