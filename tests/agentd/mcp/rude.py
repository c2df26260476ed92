"""A hostile MCP server over standard streams, without the SDK, which would keep it from being one:
`python rude.py [SCHEMA]`. What each of its tools does to the protocol, its name says."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

NAMES = [
    "fine",
    "bad_utf8",
    "junk_before",
    "not_jsonrpc",
    "wrong_shape",
    "endless_line",
    "two_answers",
    "flood",
    "exit",
]


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def answer(id: Any, result: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def call(id: Any, name: str) -> None:
    if name == "bad_utf8":
        whole = json.dumps({"jsonrpc": "2.0", "id": id, "result": text("caf@")}).encode()
        return write(whole.replace(b"@", b"\xe9\xff") + b"\n")
    if name == "junk_before":
        write(b"hello\n\n\xff\xfe\n[1, 2]\n{}\n")
    if name == "not_jsonrpc":
        return write(json.dumps({"jsonrpc": "1.7", "id": id, "result": {}}).encode() + b"\n")
    if name == "wrong_shape":
        return answer(id, {"content": "no list"})
    if name == "endless_line":
        for _ in range(40):
            write(b"x" * (1 << 20))
    if name == "two_answers":
        answer(id, text("first"))
    if name == "flood":
        for _ in range(2_000):
            write(b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n')
    if name == "exit":
        print("I have had enough", file=sys.stderr, flush=True)
        time.sleep(0.1)
        sys.exit(3)
    return answer(id, text(name))


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        id, method, params = asked.get("id"), asked["method"], asked.get("params") or {}
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            answer(id, {"protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                        "serverInfo": {"name": "rude", "version": "1"}})  # fmt: skip
        elif method == "tools/list":
            schema = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {"type": "object"}
            answer(id, {"tools": [{"name": name, "inputSchema": schema} for name in NAMES]})
        elif method == "tools/call":
            call(id, params["name"])
        elif id is not None:
            write(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}).encode() + b"\n")


if __name__ == "__main__":
    main()
