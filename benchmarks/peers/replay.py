"""`python -m peers.replay LIBRARY`: reads jobs from standard input, one JSON object a line, and replays each.

A job has `model`, `wire`, `url` of a fake provider, `caching` (whether the library's own means are turned on) and the
`conversation`. Each is answered with a line.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from importlib.metadata import version
from typing import Any

from peers.common import Script

PACKAGES = {"pydantic_ai": "pydantic-ai-slim", "langchain": "langchain", "openai_agents": "openai-agents"}
"""The libraries that there is a driver for, and the packages that they come in."""


def main(library: str) -> None:
    driver: Any = importlib.import_module(f"peers.by_{library}")
    print(f"{PACKAGES[library]} {version(PACKAGES[library])}", flush=True)
    with asyncio.Runner() as runner:  # one loop for all jobs: some of these keep connections for as long as they live
        for line in sys.stdin:
            job = json.loads(line)
            asked = (job["model"], job["wire"], job["url"], job["caching"])
            runner.run(driver.replay(Script(job["conversation"]), *asked))
            print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
