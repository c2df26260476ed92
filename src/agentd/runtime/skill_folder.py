"""Skills in a folder. Reads files below the folder it is given, and nothing else: no link is followed, no device read.

The folder holds skills one level down, or is itself one: then SKILL.md is right in it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentd.context.skill_file import FILE, Skill, SkillError, read_skill
from agentd.context.skills import Offered, clipped

MAX_SKILLS = 512
MAX_FILE = 1 << 20
"""Bytes of a file that are read: thirty times what the model is shown of a body by default."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
# Not to wait for a pipe that nobody writes to.
_FILE = _READ | os.O_NONBLOCK
_FOLDER = _READ | os.O_DIRECTORY


class DirectorySource:
    """A `SkillSource` over a folder; `name` is the folder's own by default. Files are read anew, in a thread."""

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path = Path(path).expanduser()
        self.name = name or re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.realpath(self.path).rpartition("/")[2]) or "skills"

    async def catalogue(self) -> Offered:
        """The skills in the folder, and what is wrong with those that cannot be read. Raises SkillError if the folder
        itself cannot."""
        return await asyncio.to_thread(self._catalogue)

    async def body(
        self, name: str, *, file: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> str:  # fmt: skip
        """The text below the frontmatter of a skill, or of another file in its folder. Raises SkillError."""
        if arguments:
            raise SkillError(f"the skill {clipped(name)!r} takes no arguments; load it without them")
        return await asyncio.to_thread(self._body, name, file)

    async def aclose(self) -> None:
        """Nothing is held open."""

    def _catalogue(self) -> Offered:
        root = os.path.realpath(self.path)
        alone = self._skill((), os.path.basename(root))
        if alone is not None:
            return Offered((alone,))
        skills: list[Skill] = []
        errors: list[str] = []
        for name in self._folders(errors):
            try:
                found = self._skill((name,), name)
            except SkillError as error:
                errors.append(str(error))
            else:
                skills += [found] if found is not None else []
            if len(skills) == MAX_SKILLS:
                errors.append(f"{self.path} has more than {MAX_SKILLS} skills; the others are left out")
                break
        return Offered(tuple(skills), tuple(errors))

    def _folders(self, errors: list[str]) -> list[str]:
        names = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_symlink():
                        if entry.is_dir():
                            errors.append(f"{entry.path} is a link, which is not followed; give its target as a source")
                    elif entry.is_dir(follow_symlinks=False):
                        names.append(entry.name)
        except OSError as error:
            raise SkillError(f"the folder of skills {self.path} cannot be read: {error.strerror}") from None
        return sorted(names)

    def _skill(self, folder: tuple[str, ...], name: str) -> Skill | None:
        """The skill in a folder; None where there is no SKILL.md."""
        try:
            text = self._text((*folder, FILE))
        except FileNotFoundError:
            return None
        return read_skill(text, folder=name, where=str(self.path.joinpath(*folder, FILE)))[0]

    def _body(self, name: str, file: str | None) -> str:
        folder = self._folder_of(name)
        parts = (*folder, *(steps(file) if file is not None else [FILE]))
        try:
            text = self._text(parts)
        except FileNotFoundError:
            what = f"file {clipped(file)!r}" if file is not None else FILE
            raise SkillError(f"the skill {clipped(name)!r} has no {what}") from None
        if file is not None:
            return text
        return read_skill(text, folder=name, where=str(self.path.joinpath(*parts)))[1].strip()

    def _folder_of(self, name: str) -> tuple[str, ...]:
        if len(steps(name)) != 1:
            raise SkillError(f"{clipped(name)!r} is no name of a skill")
        if os.path.basename(os.path.realpath(self.path)) == name and os.path.lexists(self.path / FILE):
            return ()
        return (name,)

    def _text(self, parts: Sequence[str]) -> str:
        """A file below the folder as text. Raises SkillError, or FileNotFoundError where there is none."""
        where = self.path.joinpath(*parts)
        try:
            data = read_below(self.path, parts, MAX_FILE)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SkillError(f"{where} cannot be read: {error.strerror or error}") from None
        if len(data) > MAX_FILE:
            raise SkillError(f"{where} has more than {MAX_FILE} bytes; split it")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SkillError(f"{where} is not UTF-8 text: byte {error.start} of it") from None


def steps(file: str) -> list[str]:
    """The folders and the file that a relative path names. Raises SkillError for one that could lead elsewhere."""
    parts = file.removeprefix("./").split("/")
    if "\0" in file or any(part in ("", ".", "..") for part in parts):
        raise SkillError(f"{clipped(file)!r} is no path below the skill's folder; name one such as references/api.md")
    return parts


def read_below(root: Path, parts: Sequence[str], most: int) -> bytes:
    """The first `most` + 1 bytes of a regular file below `root`. Each step is opened in the one before and no link is
    followed, so that nothing can be put in its way between a check and the reading. Raises OSError."""
    at = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        file = os.open(parts[-1], _FILE, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file")
    with open(file, "rb") as stream:
        return stream.read(most + 1)
