"""Folders of skills, which let nothing escape, and the library over sources that fail, change and come back."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentd.config.thinking import Skills, SkillSource
from agentd.context.record import SkillRef
from agentd.context.skill_file import Skill, SkillError
from agentd.context.skills import Offered
from agentd.runtime.skill_folder import MAX_FILE, steps
from agentd.runtime.skills import DirectorySource, SkillLibrary, sources_of

pytestmark = pytest.mark.anyio


def write(root: Path, name: str, body: str = "Do it.", description: str = "d") -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: {description}\n---\n{body}"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder


class Scripted:
    """A source whose answers are set by the test."""

    def __init__(self, name: str, bodies: Mapping[str, str]) -> None:
        self.name = name
        self.bodies = dict(bodies)
        self.down: Exception | None = None
        self.closed = 0
        self.asked: list[tuple[str, str | None, Mapping[str, Any] | None]] = []

    async def catalogue(self) -> Offered:
        if self.down is not None:
            raise self.down
        return Offered(tuple(Skill(name, f"about {name}") for name in self.bodies))

    async def body(self, name: str, *, file: str | None = None, arguments: Mapping[str, Any] | None = None) -> str:
        self.asked.append((name, file, arguments))
        if self.down is not None:
            raise self.down
        return self.bodies[name]

    async def aclose(self) -> None:
        self.closed += 1


# Folders


async def test_skills_one_level_down(tmp_path: Path) -> None:
    write(tmp_path, "b", "# Ü", "Second")
    write(tmp_path, "a", description="First")
    (tmp_path / "notes").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("x")
    write(tmp_path / "notes", "deep")
    source = DirectorySource(tmp_path, "local")
    found = await source.catalogue()
    assert [(one.name, one.description) for one in found.skills] == [("a", "First"), ("b", "Second")]
    assert found.errors == ()
    assert await source.body("b") == "# Ü"


async def test_folder_that_is_itself_a_skill(tmp_path: Path) -> None:
    folder = write(tmp_path, "pdf")
    (folder / "forms.md").write_text("fields")
    source = DirectorySource(folder)
    assert source.name == "pdf"
    assert [one.name for one in (await source.catalogue()).skills] == ["pdf"]
    assert await source.body("pdf") == "Do it."
    assert await source.body("pdf", file="forms.md") == "fields"


async def test_faulty_skill_hides_no_other(tmp_path: Path) -> None:
    write(tmp_path, "good")
    (write(tmp_path, "bad") / "SKILL.md").write_text("no frontmatter")
    write(tmp_path, "moved").rename(tmp_path / "elsewhere")
    (write(tmp_path, "bytes") / "SKILL.md").write_bytes(b"---\nname: bytes\n\xff")
    (write(tmp_path, "large") / "SKILL.md").write_text("x" * (MAX_FILE + 1))
    (tmp_path / "folder" / "SKILL.md").mkdir(parents=True)
    found = await DirectorySource(tmp_path).catalogue()
    assert [one.name for one in found.skills] == ["good"]
    told = [error.replace(f"{tmp_path}/", "") for error in found.errors]
    starts = [
        "bad/SKILL.md: no frontmatter",
        "bytes/SKILL.md is not UTF-8 text: byte 16",
        "elsewhere/SKILL.md: name 'moved' in",
        "folder/SKILL.md cannot be read: it is no regular file",
        "large/SKILL.md has more than 1048576 bytes",
    ]
    assert [text[: len(start)] for text, start in zip(told, starts, strict=True)] == starts


async def test_missing_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SkillError, match=r"the folder of skills .*nowhere cannot be read: No such file"):
        await DirectorySource(tmp_path / "nowhere").catalogue()


async def test_files_of_a_skill_on_demand(tmp_path: Path) -> None:
    folder = write(tmp_path, "pdf")
    (folder / "references").mkdir()
    (folder / "references" / "api.md").write_text("näher", encoding="utf-8")
    source = DirectorySource(tmp_path)
    assert await source.body("pdf", file="references/api.md") == "näher"
    assert await source.body("pdf", file="./references/api.md") == "näher"
    for file, message in (("references/no.md", "has no file"), ("references", "no regular file"),
                          ("SKILL.md/x", "cannot be read")):  # fmt: skip
        with pytest.raises(SkillError, match=message):
            await source.body("pdf", file=file)
    with pytest.raises(SkillError, match=r"the skill 'ocr' has no SKILL\.md"):
        await source.body("ocr")
    with pytest.raises(SkillError, match="takes no arguments"):
        await source.body("pdf", arguments={"a": 1})


@pytest.mark.parametrize(
    "file",
    [
        "../secret",
        "references/../../secret",
        "/etc/passwd",
        "",
        ".",
        "..",
        "a//b",
        "a/",
        "a/./b",
        "\0",
        "a\0b",
        "./../x",
    ],
)
async def test_path_that_could_lead_elsewhere_is_refused(tmp_path: Path, file: str) -> None:
    write(tmp_path, "pdf")
    (tmp_path / "secret").write_text("hush")
    with pytest.raises(SkillError, match="is no path below the skill's folder"):
        steps(file)
    with pytest.raises(SkillError, match="is no path below the skill's folder"):
        await DirectorySource(tmp_path).body("pdf", file=file)


@pytest.mark.parametrize("name", ["..", "../pdf", "pdf/../pdf", "/", ""])
async def test_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "pdf")
    (tmp_path / "SKILL.md").write_text("---\nname: x\ndescription: d\n---\nhush")
    with pytest.raises(SkillError):
        await DirectorySource(tmp_path / "pdf").body(name)


async def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path, "outside")
    (outside / "secret").write_text("hush")
    folder = write(tmp_path / "skills", "pdf")
    (folder / "file").symlink_to(outside / "secret")
    (folder / "folder").symlink_to(outside)
    (tmp_path / "skills" / "outside").symlink_to(outside)
    (tmp_path / "skills" / "linked").mkdir()
    (tmp_path / "skills" / "linked" / "SKILL.md").symlink_to(outside / "SKILL.md")
    source = DirectorySource(tmp_path / "skills")
    for file in ("file", "folder/secret"):
        with pytest.raises(SkillError, match="cannot be read"):
            await source.body("pdf", file=file)
    with pytest.raises(SkillError, match="cannot be read"):
        await source.body("outside")
    found = await source.catalogue()
    assert [one.name for one in found.skills] == ["pdf"]
    assert "outside is a link, which is not followed; give its target as a source" in found.errors[0]
    assert "linked/SKILL.md cannot be read" in found.errors[1]
    # The configured folder may be a link: that is its owner's own choice.
    (tmp_path / "named").symlink_to(tmp_path / "skills")
    assert [one.name for one in (await DirectorySource(tmp_path / "named").catalogue()).skills] == ["pdf"]


async def test_pipe_blocks_nobody(tmp_path: Path) -> None:
    folder = write(tmp_path, "pdf")
    os.mkfifo(folder / "pipe")
    with pytest.raises(SkillError, match="no regular file"):
        await DirectorySource(tmp_path).body("pdf", file="pipe")


async def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    folder = write(tmp_path, "pdf")
    (folder / "link").symlink_to("/")
    source = DirectorySource(tmp_path)
    await source.catalogue()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for file in ("SKILL.md", "link", "no", "no/no", "link/x"):
        try:
            await source.body("pdf", file=file)
        except SkillError:
            continue
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before


def test_sources_of_a_configuration(tmp_path: Path) -> None:
    given = Skills(sources=(SkillSource(path=str(tmp_path / "my skills")), SkillSource(server="s")))
    assert [source.name for source in sources_of(given, lambda name: None)] == ["my-skills", "s"]


# The library


async def test_library_over_several_sources(tmp_path: Path) -> None:
    write(tmp_path, "pdf", "Mine.")
    write(tmp_path, "ocr")
    away = Scripted("away", {"x": "X"})
    away.down = ConnectionError("refused")
    library = SkillLibrary([DirectorySource(tmp_path, "local"), Scripted("srv", {"pdf": "Theirs."}), away])
    found = await library.discover()
    assert [one.ref for one in found.skills] == ["local/pdf", "ocr", "srv/pdf"]
    assert found.errors == (("away", "refused"),)
    mine, theirs = await library.load("local/pdf"), await library.load("srv/pdf")
    assert (mine.text, theirs.text) == ("Mine.", "Theirs.")
    assert library.bodies == {mine.hash: "Mine.", theirs.hash: "Theirs."}
    with pytest.raises(SkillError, match="say which"):
        await library.load("pdf")


async def test_source_that_is_away_keeps_its_skills() -> None:
    source = Scripted("srv", {"pdf": "text"})
    library = SkillLibrary([source])
    await library.discover()
    source.down = ExceptionGroup("gone", [OSError("reset")])
    found = await library.discover()
    assert [one.ref for one in found.skills] == ["pdf"]
    assert found.errors == (("srv", "gone (1 sub-exception)"),)
    with pytest.raises(SkillError, match="the skill 'pdf' cannot be read from 'srv': gone"):
        await library.load("pdf")
    source.down, source.bodies = None, {"ocr": "text"}
    assert [one.ref for one in (await library.discover()).skills] == ["ocr"]


async def test_load_asks_the_source_each_time_and_cuts() -> None:
    source = Scripted("srv", {"pdf": "ä" * 10})
    library = SkillLibrary([source], Skills(max_bytes=4))
    first = await library.load("srv/pdf", arguments={"a": 1})  # before anything was discovered
    assert first.text.startswith("ää\n[cut here: 16 of 20 bytes")
    assert (first.ref, first.cut) == ("pdf", 16)
    file = await library.load("pdf", file="x.md")
    assert (file.file, file.hash in library.bodies) == ("x.md", file.hash == first.hash)
    assert source.asked == [("pdf", None, {"a": 1}), ("pdf", "x.md", None)]
    source.bodies["pdf"] = " "
    with pytest.raises(SkillError, match="the skill 'pdf' has no text"):
        await library.load("pdf")


async def test_f35_edited_skill_is_fetched_again_and_told(tmp_path: Path) -> None:
    write(tmp_path, "pdf", "Old.")
    write(tmp_path, "ocr", "Same.")
    before = SkillLibrary([DirectorySource(tmp_path)])
    held = [SkillRef(name, (await before.load(name)).hash) for name in ("pdf", "ocr")]
    assert await before.refresh("c", held) == ()

    write(tmp_path, "pdf", "New.")
    after = SkillLibrary([DirectorySource(tmp_path)])
    steps = await after.refresh("c", held)
    new = (await after.load("pdf")).hash
    assert [(step.change and (step.change.op, step.change.old, step.change.new)) for step in steps] == [
        ("change", held[0].hash, new)
    ]
    assert held[0].hash in (steps[0].note or "")
    assert new in (steps[0].note or "")
    assert sorted(after.bodies.values()) == ["New.", "Same."]


async def test_text_that_is_gone_is_told_once(tmp_path: Path) -> None:
    library = SkillLibrary([DirectorySource(tmp_path)])
    held = [SkillRef("pdf", "a" * 64)]
    (step,) = await library.refresh("c", held)
    assert step.change is None
    assert "there is no skill 'pdf'" in (step.note or "")
    assert await library.refresh("c", held) == ()
    assert len(await library.refresh("other", held)) == 1
    write(tmp_path, "pdf")
    await library.discover()
    (back,) = await library.refresh("c", held)
    assert back.change is not None


async def test_forgotten_texts_are_those_not_in_use() -> None:
    library = SkillLibrary([Scripted("s", {"a": "A", "b": "B"})])
    kept = await library.load("a")
    await library.load("b")
    library.forget([kept.hash])
    assert dict(library.bodies) == {kept.hash: "A"}


async def test_reload_closes_what_is_gone_and_discovers_anew() -> None:
    old, stays, new = Scripted("a", {"x": "X"}), Scripted("b", {"y": "Y"}), Scripted("a", {"z": "Z"})
    library = SkillLibrary([old, stays])
    await library.discover()
    found = await library.update([stays, new], Skills(max_bytes=1))
    assert [one.ref for one in found.skills] == ["y", "z"]
    new.down = OSError("away")
    third = Scripted("a", {})
    third.down = OSError("away")
    assert [one.ref for one in (await library.discover()).skills] == ["y", "z"]
    assert [one.ref for one in (await library.update([stays, third], Skills())).skills] == ["y"]
    assert new.closed == 1
    assert (old.closed, stays.closed) == (1, 0)
    await library.aclose()
    assert (stays.closed, third.closed) == (1, 1)


async def test_sources_of_one_name_are_told_apart() -> None:
    library = SkillLibrary([Scripted("s", {"x": "1"}), Scripted("s", {"x": "2"}), Scripted("s-2", {"x": "3"})])
    found = await library.discover()
    assert [(one.ref) for one in found.skills] == ["s-2-2/x", "s-2/x", "s/x"]
    assert [(await library.load(ref)).text for ref in ("s/x", "s-2/x", "s-2-2/x")] == ["1", "2", "3"]


async def test_all_sources_are_closed_though_one_fails() -> None:
    class Broken(Scripted):
        async def aclose(self) -> None:
            raise OSError("stuck")

    other = Scripted("b", {})
    with pytest.raises(ExceptionGroup, match="did not close"):
        await SkillLibrary([Broken("a", {}), other]).aclose()
    assert other.closed == 1
