"""Skills of an MCP server: by the skills extension (SEP-2640), as resources, or as prompts. Asks the server.

What an entry of the extension promises of its files is checked at each read: size, digest, frontmatter. What differs is
not used. Everything that a server says is text of others; `allowed-tools` of its skills allows nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentd.config.thinking import SkillSource as Settings
from agentd.context.skill_file import FILE, Skill, SkillError, frontmatter_of, read_skill
from agentd.context.skills import Offered, clipped

from .patterns import matches

if TYPE_CHECKING:
    from mcp_types import ReadResourceResult

    from agentd.mcp import Server

EXTENSION = "io.modelcontextprotocol/skills"
SKILL_TYPE = "text/x-skill+markdown"
MAX_FILES, MAX_BYTES = 512, 16 * 1024 * 1024
"""Files of one skill and their bytes: what the extension has hosts accept, and no more."""
MAX_SKILLS, MAX_PAGES = 1_000, 100
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """A skill as the extension lists it. `files`: digest and size by URI, None where the server makes them anew."""

    uri: str
    frontmatter: Mapping[str, Any]
    files: Mapping[str, tuple[str, int]] | None

    @property
    def root(self) -> str:
        """What the URIs of its files begin with."""
        return self.uri[: -len(FILE)]

    @property
    def path(self) -> str:
        """Where it stands among the skills of its server; the last part is its name."""
        return self.uri.partition("://")[2].removesuffix(f"/{FILE}")


class ServerSource:
    """The skills of one server. `find` gives the server as it is now, None while there is none of that name."""

    def __init__(self, find: Callable[[], Server | None], settings: Settings) -> None:
        self._find, self._settings = find, settings
        self.name = settings.server or ""
        self._entries: dict[str, Entry] = {}
        self._resources: dict[str, str] = {}
        self._how = ""

    async def catalogue(self) -> Offered:
        """What it has. Raises SkillError while it is not connected."""
        server = self._server()
        how = self._settings.discover or "auto"
        if how == "auto":
            how = "extension" if EXTENSION in server.extensions else "resources"
        elif how == "extension" and EXTENSION not in server.extensions:
            raise SkillError(f"the server does not offer the extension {EXTENSION}")
        self._how = how
        if how == "extension":
            found = await self._listed(server)
        elif how == "resources":
            found = await self._of_resources(server)
        else:
            found = await self._of_prompts(server)
        wanted = self._settings.filter
        if wanted is None:
            return found
        return Offered(tuple(one for one in found.skills if matches(one.name, wanted)), found.errors)

    async def body(
        self, name: str, *, file: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> str:  # fmt: skip
        """The text of a skill, or of a file that belongs to it. Raises SkillError."""
        server = self._server()
        if self._how == "prompts":
            return await self._prompt(server, name, file, arguments)
        if arguments:
            raise SkillError(f"the skill {clipped(name)!r} takes no arguments; load it without them")
        if self._how == "resources":
            return await self._resource(server, name, file)
        entry = self._entries.get(name)
        if entry is None:
            raise SkillError(f"the server lists no skill {clipped(name)!r} any more")
        try:
            return await _verified(server, entry, file)
        except Mismatch:
            # It may have been edited since it was listed: its entry as it is now decides.
            self._entries[name] = entry = _entry((await server.request("skills/get", {"uri": entry.uri})).get("skill"))
            return await _verified(server, entry, file)

    async def aclose(self) -> None:
        """Nothing of its own is open."""

    def _server(self) -> Server:
        server = self._find()
        if server is None:
            raise SkillError(f"there is no MCP server {self.name!r} in mcp.servers")
        if server.state != "up":
            raise SkillError(f"the MCP server is {server.state}" + (f": {server.error}" if server.error else ""))
        return server

    # The extension

    async def _listed(self, server: Server) -> Offered:
        entries: list[Entry] = []
        errors: list[str] = []
        async for raw in _pages(server):
            try:
                entries.append(_entry(raw))
            except SkillError as error:
                errors.append(str(error))
            if len(entries) == MAX_SKILLS:
                errors.append(f"it lists more than {MAX_SKILLS} skills; the others are left out")
                break
        counted = Counter(entry.frontmatter["name"] for entry in entries)
        # Two of one name are told apart by where they stand.
        named = {e.path if counted[e.frontmatter["name"]] > 1 else e.frontmatter["name"]: e for e in entries}
        self._entries = named
        return Offered(tuple(_skill(name, entry.frontmatter) for name, entry in named.items()), tuple(errors))

    # Resources

    async def _of_resources(self, server: Server) -> Offered:
        listed: list[tuple[str, str, str, str]] = []
        for one in await server.resources():
            uri = str(one.uri)
            is_file = uri.startswith("skill://") and uri.endswith(f"/{FILE}")
            if is_file or one.mime_type == SKILL_TYPE:
                path = uri.partition("://")[2].removesuffix(f"/{FILE}") if is_file else one.name
                name = path.rpartition("/")[2] if is_file else one.name
                listed.append((name, path, uri, (one.description or one.title or name)[:1_024]))
        counted = Counter(name for name, _, _, _ in listed)
        self._resources, found, errors = {}, [], []
        for name, path, uri, text in listed[:MAX_SKILLS]:
            called = path if counted[name] > 1 else name
            if called in self._resources:
                errors.append(f"two skills are called {clipped(called)!r}; the first one counts")
                continue
            self._resources[called] = uri
            found.append(Skill(called, text))
        if len(listed) > MAX_SKILLS:
            errors.append(f"it has more than {MAX_SKILLS} skills; the others are left out")
        return Offered(tuple(found), tuple(errors))

    async def _resource(self, server: Server, name: str, file: str | None) -> str:
        uri = self._resources.get(name)
        if uri is None:
            raise SkillError(f"the server has no skill {clipped(name)!r} any more")
        if file is not None:
            if not uri.endswith(f"/{FILE}"):
                raise SkillError(f"the skill {clipped(name)!r} is one resource, without other files")
            return _text(await _read(server, _inside(uri[: -len(FILE)], file)), file)
        text = _text(await _read(server, uri), name)
        return frontmatter_of(text)[1] if text.removeprefix("\ufeff").startswith("---") else text

    # Prompts

    async def _of_prompts(self, server: Server) -> Offered:
        found = [
            Skill(one.name, (one.description or one.title or one.name)[:1_024])
            for one in await server.prompts()
            if not any(argument.required for argument in one.arguments or ())
        ]
        return Offered(tuple(found[:MAX_SKILLS]))

    async def _prompt(self, server: Server, name: str, file: str | None, given: Mapping[str, Any] | None) -> str:
        if file is not None:
            raise SkillError(f"the skill {clipped(name)!r} is a prompt, without files")
        arguments = {
            key: value if isinstance(value, str) else json.dumps(value) for key, value in (given or {}).items()
        }
        made = await server.prompt(name, arguments or None)
        texts = [message.content.text for message in made.messages if message.content.type == "text"]
        return "\n\n".join(texts)


class Mismatch(SkillError):
    """A file is not what the entry of its skill says."""


async def _pages(server: Server) -> Any:
    """All entries of all pages."""
    cursor, seen = None, set[str]()
    for _ in range(MAX_PAGES):
        page = await server.request("skills/list", {} if cursor is None else {"cursor": cursor})
        listed = page.get("skills")
        if not isinstance(listed, list):
            raise SkillError("skills/list gave no list of skills")
        for raw in listed:
            yield raw
        cursor = page.get("nextCursor")
        if cursor is None:
            return
        if not isinstance(cursor, str) or cursor in seen:
            raise SkillError("the pages of skills/list point to each other")
        seen.add(cursor)
    raise SkillError(f"skills/list has more than {MAX_PAGES} pages")


def _entry(raw: Any) -> Entry:
    """An entry, checked by the rules of the extension. Raises SkillError."""
    given = raw if isinstance(raw, dict) else {}
    uri, front = given.get("uri"), given.get("frontmatter")
    if not isinstance(uri, str) or not uri.endswith(f"/{FILE}") or "://" not in uri:
        raise SkillError(f"an entry without the URI of a {FILE}: {clipped(repr(uri))}")
    if not isinstance(front, dict) or not all(isinstance(front.get(key), str) for key in ("name", "description")):
        raise SkillError(f"{clipped(uri)}: its frontmatter has no name and description")
    # Read as a file is, so that one rule decides what a skill may be called.
    read_skill(f"---\n{json.dumps(front)}\n---\nx", folder=_last(uri), where=clipped(uri))
    return Entry(uri, front, _files(uri, given.get("resources")))


def _last(uri: str) -> str:
    return uri.removesuffix(f"/{FILE}").rpartition("/")[2]


def _files(uri: str, given: Any) -> dict[str, tuple[str, int]] | None:
    if given == "dynamic":
        return None
    if not isinstance(given, list):
        raise SkillError(f'{clipped(uri)}: its resources are neither a list nor "dynamic"')
    if len(given) > MAX_FILES:
        raise SkillError(f"{clipped(uri)}: {len(given)} files; a skill has at most {MAX_FILES}")
    files: dict[str, tuple[str, int]] = {}
    for one in given:
        place, digest, size = (one.get(key) if isinstance(one, dict) else None for key in ("uri", "digest", "size"))
        if not isinstance(place, str) or not place.startswith(uri[: -len(FILE)]) or place in files:
            raise SkillError(f"{clipped(uri)}: a file that is not below it, or twice: {clipped(repr(place))}")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
            raise SkillError(f"{clipped(place)}: no SHA-256 digest and size")
        files[place] = digest, size
    if uri not in files:
        raise SkillError(f"{clipped(uri)}: its resources leave out {FILE} itself")
    if (total := sum(size for _, size in files.values())) > MAX_BYTES:
        raise SkillError(f"{clipped(uri)}: {total} bytes; a skill has at most {MAX_BYTES}")
    return files


def _skill(name: str, front: Mapping[str, Any]) -> Skill:
    metadata = front.get("metadata")
    when = front.get("when_to_use") or (metadata.get("when_to_use") if isinstance(metadata, dict) else None)
    return Skill(name, str(front["description"]), when if isinstance(when, str) else "")


async def _verified(server: Server, entry: Entry, file: str | None) -> str:
    """A file of a skill, after all that its entry promises. Raises Mismatch, SkillError."""
    uri = entry.uri if file is None else _inside(entry.root, file)
    promised = None if entry.files is None else entry.files.get(uri)
    if entry.files is not None and promised is None:
        raise Mismatch(f"{clipped(uri)} is no file of this skill: its server does not list it")
    data = await _read(server, uri)
    if promised is None and len(data) > MAX_BYTES:
        raise SkillError(f"{clipped(uri)}: {len(data)} bytes; a skill has at most {MAX_BYTES}")
    if promised is not None:
        digest, size = promised
        if len(data) != size:
            raise Mismatch(f"{clipped(uri)} has {len(data)} bytes, where its server promised {size}: not used")
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise Mismatch(f"{clipped(uri)} has another digest than its server promised: not used")
    text = _text(data, uri)
    if file is not None:
        return text
    front, body = frontmatter_of(text, where=clipped(uri))
    if differing := sorted(key for key in {*front, *entry.frontmatter} if not _same(front, entry.frontmatter, key)):
        raise Mismatch(f"{clipped(uri)}: its frontmatter says something else than its entry of {', '.join(differing)}")
    return body


def _same(front: Mapping[str, Any], promised: Mapping[str, Any], key: str) -> bool:
    if key not in front or key not in promised:
        return False
    # YAML has dates and JSON has none.
    made: Any = json.loads(json.dumps(front[key], default=str))
    return bool(made == promised[key])


def _inside(root: str, file: str) -> str:
    """The URI of a file below a skill's folder. Raises SkillError for a path that leads anywhere else."""
    parts = file.split("/")
    if (
        not file
        or file.startswith("/")
        or any(part in ("", ".", "..") for part in parts)
        or "\\" in file
        or "?" in file
    ):
        raise SkillError(f"{clipped(file)!r} is no path of a file in the skill")
    return f"{root}{file}"


async def _read(server: Server, uri: str) -> bytes:
    found: ReadResourceResult = await server.read(uri)
    for one in found.contents:
        text, blob = getattr(one, "text", None), getattr(one, "blob", None)
        if isinstance(text, str):
            return text.encode("utf-8", "surrogatepass")
        if isinstance(blob, str):
            try:
                return base64.b64decode(blob, validate=True)
            except binascii.Error as error:
                raise SkillError(f"{clipped(uri)} cannot be decoded: {error}") from error
    raise SkillError(f"{clipped(uri)} has no content")


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SkillError(f"{clipped(what)} is no text: {error}") from error
