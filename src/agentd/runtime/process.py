"""What a process does that runs an agent and nothing else: its event loop, and how it looks for garbage. Touches the
whole process, so programs that embed an agent decide for themselves; `runtime.Daemon` never calls this.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

THRESHOLDS = (20_000, 20, 50)
"""Of Python's collector. A turn makes a few thousand objects, nearly all of which go by themselves when it ends; at the
default of 700 the collector looks at the old ones again and again, for an eighth of all time. `benchmarks/daemon.py`
runs with these."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on the event loop of libuv where there is one, which is everywhere but on Windows."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop; None for Python's own."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def started() -> None:
    """Once all is loaded: what is there now stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
