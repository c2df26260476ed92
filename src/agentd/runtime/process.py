"""How a process looks for garbage that runs an agent and nothing else. Touches the whole process, so programs that
embed an agent decide for themselves; `runtime.Daemon` never calls this.
"""

from __future__ import annotations

import gc

THRESHOLDS = (20_000, 20, 50)
"""Of Python's collector. A turn makes a few thousand objects, nearly all of which go by themselves when it ends; at the
default of 700 the collector looks at the old ones again and again, for an eighth of all time. `benchmarks/daemon.py`
runs with these."""


def started() -> None:
    """Once all is loaded: what is there now stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
