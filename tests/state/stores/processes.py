"""Starting the worker process of these tests, and reading a store's file without the store."""

import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).parent / "worker.py"


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", WORKER, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[bytes]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    assert err == b""
    return out.decode()
