"""Runs the Python code of README.md and docs/ and compares what it prints.

Comments in a page steer it, each on a line of its own in front of a fence, invisible to readers:

- `<!-- prints -->` before a ```text fence: exactly what the ```python block above it prints.
- `<!-- continues -->` before a ```python fence: shares names and working folder with the block above it.
- `<!-- not run: reason -->` before a ```python fence: shown only.

A chain of continuing blocks runs in one fresh process, in a folder that holds a link to examples/ only.
"""

import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->")
FENCE = re.compile(r"(\s*)(`{3,})(\w*)")
MARK = "\x1e"


@dataclass
class Block:
    """One fence of a page: its first line of content, the comment in front of it, and what it must print."""

    page: Path
    line: int
    language: str
    steer: str
    text: str
    expected: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page.name}:{self.line}"


@dataclass
class Chain:
    """Blocks that run one after another in one process."""

    blocks: list[Block] = field(default_factory=list)


def read_blocks(page: Path) -> list[Block]:
    """Every fenced block of a page in order."""
    blocks: list[Block] = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    steer = ""
    for number, line in lines:
        if comment := COMMENT.fullmatch(line.strip()):
            steer = comment[1]
        elif fence := FENCE.match(line):
            content: list[str] = []
            for _, inner in lines:
                if inner.strip() == fence[2]:
                    break
                content.append(inner)
            text = textwrap.dedent("".join(f"{inner}\n" for inner in content))
            blocks.append(Block(page, number + 1, fence[3], steer, text))
            steer = ""
        elif line.strip():
            steer = ""
    return blocks


def read_chains(page: Path) -> tuple[list[Chain], list[Block]]:
    """The chains that run, and the blocks that do not. ValueError for a comment that steers nothing."""
    chains: list[Chain] = []
    shown: list[Block] = []
    above: Block | None = None
    for block in read_blocks(page):
        if block.steer == "prints":
            if above is None or not chains or above is not chains[-1].blocks[-1] or block.language != "text":
                raise ValueError(f"{block.place}: 'prints' belongs to a text block right after code that runs")
            above.expected = block.text
        elif block.language == "python" and block.steer.startswith("not run:"):
            shown.append(block)
        elif block.language == "python" and block.steer == "continues":
            if not chains:
                raise ValueError(f"{block.place}: nothing to continue")
            chains[-1].blocks.append(block)
        elif block.language == "python":
            chains.append(Chain([block]))
        above = block
    return chains, shown


def run_chain(chain: Chain, folder: Path) -> list[str]:
    """What each block printed. Tracebacks name page and line."""
    if (ROOT / "examples").is_dir():
        (folder / "examples").symlink_to(ROOT / "examples")
    source = []
    for block in chain.blocks:
        # Lines in front of the code make the numbers of a traceback those of the page.
        code = "\n" * (block.line - 1) + block.text
        source.append(f"exec(compile({code!r}, {str(block.page)!r}, 'exec'), globals())\n")
        source.append(f"print({MARK!r}, end='', flush=True)\n")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", "".join(source)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, f"{chain.blocks[0].place}\n{run.stdout}{run.stderr}"
    return run.stdout.split(MARK)[:-1]


CHAINS = [chain for page in PAGES if page.exists() for chain in read_chains(page)[0]]
SHOWN = [block for page in PAGES if page.exists() for block in read_chains(page)[1]]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.blocks[0].place)
def test_page_prints_expected(chain: Chain, tmp_path: Path) -> None:
    printed = run_chain(chain, tmp_path)
    for block, output in zip(chain.blocks, printed, strict=True):
        if block.expected is not None:
            assert output == block.expected, block.place


def test_blocks_not_run_give_reasons() -> None:
    """Lists them (`pytest -s`)."""
    listed = {block.place: block.steer.removeprefix("not run:").strip() for block in SHOWN}
    print("", *(f"{place}: {reason}" for place, reason in listed.items()), sep="\n")
    assert [place for place, reason in listed.items() if not reason] == []


def test_rules_of_pages_hold(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\nprint(x)\n```\n\n<!-- prints -->\n```text\n1\n```\n"
        "- <!-- no comment line -->\n\n<!-- continues -->\n\n  ```python\n  print(x + 1)\n  ```\n"
        "<!-- not run: needs a key -->\n```python\nraise SystemExit\n```\n```text\nnot compared\n```\n"
    )
    (chain,), (shown,) = read_chains(page)
    assert run_chain(chain, tmp_path) == ["1\n", "2\n"]
    assert [block.expected for block in chain.blocks] == ["1\n", None]
    assert shown.steer == "not run: needs a key"


def test_traceback_names_line_of_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```python\n1 / 0\n```\n")
    with pytest.raises(AssertionError, match=r'page\.md", line 4'):
        run_chain(read_chains(page)[0][0], tmp_path)


def test_output_without_code_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- prints -->\n```text\n1\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:3: 'prints' belongs"):
        read_chains(page)
