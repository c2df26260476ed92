"""An MCP server with the skills extension, in this process: files that a test edits, and lies on demand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import yaml  # type: ignore[import-untyped]
from mcp.server import MCPServer
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.resources import FunctionResource
from mcp.shared.exceptions import MCPError
from mcp_types import RequestParams
from pydantic import ConfigDict


class Params(RequestParams):
    model_config = ConfigDict(extra="allow")
    cursor: str | None = None
    uri: str | None = None


class SkillServer(Extension):
    """`files`: texts by URI. `change`: what is done to an entry before it is told. `page`: skills of one page."""

    identifier = "io.modelcontextprotocol/skills"

    def __init__(self, files: dict[str, str], *, page: int = 2) -> None:
        self.files, self.page = dict(files), page
        self.change: Callable[[dict[str, Any]], Any] = lambda entry: entry
        self.asked: list[str] = []
        self.server = MCPServer("skills", extensions=[self])
        for uri in files:
            self.server.add_resource(FunctionResource(uri=uri, name=uri, fn=partial(self._read, uri)))

    def _read(self, uri: str) -> str:
        self.asked.append(uri)
        return self.files[uri]

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding("skills/list", Params, self._list), MethodBinding("skills/get", Params, self._get)]

    async def _list(self, context: Any, params: Params) -> dict[str, Any]:
        at = int(params.cursor or 0)
        uris = sorted(uri for uri in self.files if uri.endswith("/SKILL.md"))
        told: dict[str, Any] = {"skills": [self.change(self.entry(uri)) for uri in uris[at : at + self.page]]}
        if at + self.page < len(uris):
            told["nextCursor"] = str(at + self.page)
        return {**told, "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}

    async def _get(self, context: Any, params: Params) -> dict[str, Any]:
        self.asked.append(f"get {params.uri}")
        if params.uri not in self.files:
            raise MCPError(-32602, "no such skill")
        return {"skill": self.change(self.entry(params.uri)), "ttlMs": 0, "cacheScope": "private",
                "resultType": "complete"}  # fmt: skip

    def entry(self, uri: str) -> dict[str, Any]:
        root = uri.removesuffix("SKILL.md")
        front = yaml.safe_load(self.files[uri].split("---\n")[1])
        files = [
            {"uri": one, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", "size": len(text.encode())}
            for one, text in self.files.items()
            if one.startswith(root)
        ]
        return {"uri": uri, "frontmatter": json.loads(json.dumps(front, default=str)), "resources": files}


def skill(name: str, body: str = "Do it well.", **more: str) -> str:
    """The text of a SKILL.md."""
    lines = [f"name: {name}", f"description: what {name} is for", *(f"{key}: {value}" for key, value in more.items())]
    return "---\n" + "\n".join(lines) + f"\n---\n{body}\n"
