"""Waiting for a task without being cancelled with it, or it with the one that waits. Touches the running event loop."""

from __future__ import annotations

import asyncio
from typing import Any


async def ended(job: asyncio.Future[Any]) -> None:
    """Wait until `job` has ended, however it ended. Cancelled itself, it leaves the job alone."""
    if job.done():
        return
    waiter: asyncio.Future[None] = job.get_loop().create_future()

    def wake(_: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    job.add_done_callback(wake)
    try:
        await waiter
    finally:
        job.remove_done_callback(wake)
