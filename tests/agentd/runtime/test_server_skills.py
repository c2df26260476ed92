"""Skills of MCP servers: by the extension, as resources, as prompts; what is not as promised is not used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver.resources import FunctionResource

from agentd.config.thinking import SkillSource
from agentd.context.skill_file import SkillError
from agentd.mcp import Server
from agentd.runtime.server_skills import MAX_FILES, ServerSource
from agentd.runtime.skills import SkillLibrary
from tests.agentd.mcp.peers import connected, settings_of
from tests.agentd.mcp.skill_server import SkillServer, skill

pytestmark = pytest.mark.anyio
FILES = {
    "skill://pdf/SKILL.md": skill("pdf", "List the fields.", license="MIT", version="2026-01-01"),
    "skill://pdf/forms/one.md": "the first form",
    "skill://acme/billing/refunds/SKILL.md": skill("refunds", "Ask first."),
    "skill://acme/support/refunds/SKILL.md": skill("refunds", "Refund at once."),
}


@asynccontextmanager
async def source(
    server: MCPServer, mode: Literal["auto", "legacy"] = "auto", **given: Any
) -> AsyncIterator[ServerSource]:
    async with connected(Server(settings_of("s", ("x",)), target=server, mode=mode)) as found:
        yield ServerSource(lambda: found, SkillSource(server="s", **given))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_all_pages_are_listed_and_bodies_and_files_read(mode: Literal["auto", "legacy"]) -> None:
    """In the older era nothing is said of extensions, and the skills are found as the resources that they are."""
    skills = SkillServer(FILES)
    async with source(skills.server, mode) as mine:
        found = await mine.catalogue()
        assert found.errors == ()
        # Two of one name are told apart by where they stand, and neither is preferred.
        assert sorted(one.name for one in found.skills) == ["acme/billing/refunds", "acme/support/refunds", "pdf"]
        if mode == "auto":
            assert {one.description for one in found.skills} == {"what pdf is for", "what refunds is for"}
        assert skills.asked == [], "nothing is fetched before it is needed"
        assert (await mine.body("pdf")).strip() == "List the fields."
        assert await mine.body("pdf", file="forms/one.md") == "the first form"
        assert (await mine.body("acme/support/refunds")).strip() == "Refund at once."


@pytest.mark.parametrize(
    ("file", "said"),
    [("forms/two.md", "does not list it"), ("../acme/SKILL.md", "is no path"), ("/etc/passwd", "is no path"),
     ("forms//one.md", "is no path"), ("forms/one.md?x", "is no path"), ("..\\x", "is no path"), ("", "is no path")],
)  # fmt: skip
async def test_only_listed_files_are_read(file: str, said: str) -> None:
    skills = SkillServer({**FILES, "skill://pdf/forms/two.md": "not listed"})

    def unlisted(entry: dict[str, Any]) -> dict[str, Any]:
        return {**entry, "resources": [one for one in entry["resources"] if not one["uri"].endswith("two.md")]}

    skills.change = unlisted
    async with source(skills.server) as mine:
        await mine.catalogue()
        with pytest.raises(SkillError, match=said):
            await mine.body("pdf", file=file)
        assert not any(uri.endswith("two.md") for uri in skills.asked)


Change = Callable[[dict[str, Any]], Any]


def _resource(entry: dict[str, Any], **fields: Any) -> dict[str, Any]:
    first, *rest = entry["resources"]
    return {**entry, "resources": [{**first, **fields}, *rest]}


LIES: dict[str, tuple[Change, str]] = {
    "size": (lambda e: _resource(e, size=e["resources"][0]["size"] + 1), "where its server promised"),
    "digest": (lambda e: _resource(e, digest="sha256:" + "0" * 64), "another digest"),
    "frontmatter": (lambda e: {**e, "frontmatter": {**e["frontmatter"], "license": "GPL"}}, "of license"),
    "a field more": (lambda e: {**e, "frontmatter": {**e["frontmatter"], "more": "x"}}, "of more"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_is_not_as_promised_is_not_used(lie: str) -> None:
    skills = SkillServer({"skill://pdf/SKILL.md": FILES["skill://pdf/SKILL.md"]})
    skills.change, said = LIES[lie]
    async with source(skills.server) as mine:
        assert len((await mine.catalogue()).skills) == 1
        with pytest.raises(SkillError, match=said):
            await mine.body("pdf")
        assert skills.asked.count("get skill://pdf/SKILL.md") == 1, "its entry as it is now was looked at"


BROKEN: dict[str, tuple[Change, str]] = {
    "513 files": (
        lambda e: {**e, "resources": [{"uri": f"skill://pdf/{n}", "digest": "sha256:" + "0" * 64, "size": 1}
                                      for n in range(MAX_FILES + 1)]}, "513 files"),
    "17 MiB": (lambda e: _resource(e, size=17 * 1024 * 1024), "at most 16777216"),
    "no manifest": (lambda e: {**e, "resources": None}, 'neither a list nor "dynamic"'),
    "a file elsewhere": (lambda e: _resource(e, uri="skill://other/x"), "not below it"),
    "no digest": (lambda e: _resource(e, digest="md5:x"), "no SHA-256 digest"),
    "without itself": (lambda e: _resource(e, uri="skill://pdf/x.md"), "leave out SKILL.md"),
    "another name": (lambda e: {**e, "frontmatter": {**e["frontmatter"], "name": "ocr"}}, "ocr"),
    "no description": (lambda e: {**e, "frontmatter": {"name": "pdf"}}, "no name and description"),
    "no uri": (lambda e: {**e, "uri": "skill://pdf"}, "without the URI"),
    "no entry": (lambda e: 7, "without the URI"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
async def test_broken_entry_is_told_and_hides_no_other(fault: str) -> None:
    skills = SkillServer(
        {"skill://good/SKILL.md": skill("good"), "skill://pdf/SKILL.md": FILES["skill://pdf/SKILL.md"]}
    )
    change, said = BROKEN[fault]
    skills.change = lambda entry: change(entry) if entry["uri"] == "skill://pdf/SKILL.md" else entry
    async with source(skills.server) as mine:
        found = await mine.catalogue()
        assert [one.name for one in found.skills] == ["good"]
        assert len(found.errors) == 1
        assert said in found.errors[0]


async def test_edited_skill_is_found_by_its_entry_of_now() -> None:
    skills = SkillServer(FILES)
    async with source(skills.server) as mine:
        await mine.catalogue()
        skills.files["skill://pdf/SKILL.md"] = skill("pdf", "List all fields.")
        assert (await mine.body("pdf")).strip() == "List all fields."


async def test_pages_that_point_to_each_other_end() -> None:
    skills = SkillServer(FILES, page=1)
    listed = skills._list

    async def circle(context: Any, params: Any) -> dict[str, Any]:
        return {**await listed(context, params), "nextCursor": "0"}

    skills._list = circle  # type: ignore[method-assign]
    skills.server = MCPServer("skills", extensions=[skills])
    async with source(skills.server) as mine:
        with pytest.raises(SkillError, match="point to each other"):
            await mine.catalogue()


async def test_dynamic_skill_has_its_frontmatter_looked_at() -> None:
    skills = SkillServer({"skill://pdf/SKILL.md": FILES["skill://pdf/SKILL.md"]})
    skills.change = lambda entry: {**entry, "resources": "dynamic"}
    async with source(skills.server) as mine:
        await mine.catalogue()
        assert (await mine.body("pdf")).strip() == "List the fields."
        skills.files["skill://pdf/SKILL.md"] = skill("pdf", license="GPL")
        skills.change = lambda entry: {
            **entry,
            "resources": "dynamic",
            "frontmatter": {"name": "pdf", "description": "x"},
        }
        with pytest.raises(SkillError, match="frontmatter says something else"):
            await mine.body("pdf")


async def test_resources_and_prompts_and_what_is_none() -> None:
    server = MCPServer("plain")

    def text(of: str) -> Callable[[], str]:
        return lambda: of

    texts = {"skill://notes/SKILL.md": skill("notes", "Keep them."), "note://x": "Any text.", "skill://index": "[]"}
    for uri, of in texts.items():
        kind = "text/x-skill+markdown" if uri == "note://x" else "text/plain"
        server.add_resource(
            FunctionResource(uri=uri, name=uri.partition("://")[2], mime_type=kind, fn=text(of))
        )  # fmt: skip

    @server.prompt()
    def greet() -> str:
        """How to greet."""
        return "Say hello."

    @server.prompt()
    def write(to: str) -> str:
        """Needs to know to whom."""
        return f"Write to {to}."

    async with source(server) as mine:
        assert [one.name for one in (await mine.catalogue()).skills] == ["notes", "x"]
        assert ((await mine.body("notes")).strip(), await mine.body("x")) == ("Keep them.", "Any text.")
    async with source(server, discover="prompts") as mine:
        (only,) = (await mine.catalogue()).skills
        assert (only.name, only.description, await mine.body("greet")) == ("greet", "How to greet.", "Say hello.")
    async with source(server, discover="extension") as mine:
        with pytest.raises(SkillError, match="does not offer the extension"):
            await mine.catalogue()
    async with source(server, filter=("n*",)) as mine:
        assert [one.name for one in (await mine.catalogue()).skills] == ["notes"]


async def test_server_that_is_away_is_an_error_of_its_own() -> None:
    library = SkillLibrary([ServerSource(lambda: None, SkillSource(server="away"))])
    found = await library.discover()
    assert found.errors == (("away", "there is no MCP server 'away' in mcp.servers"),)
    with pytest.raises(SkillError, match="not all sources could be read"):
        await library.load("pdf")
