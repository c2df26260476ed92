"""Replays a real coding session into a stored context and writes its report, with the library alone.

Two commands do all of it, `agentkit replay` and `agentkit inspect --html`; this script only names the files.
"""

import sys
from pathlib import Path

from agentkit.cli import run

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "out"


def main(out: Path = OUT) -> int:
    """Returns the exit code of the first command that fails, else 0."""
    transcript = HERE / "transcripts" / "worktree-long.jsonl"
    store, report = out / "context.db", out / "worktree-long.html"
    out.mkdir(exist_ok=True)
    for old in out.glob("context.db*"):  # a run that is there already would have to be resumed
        old.unlink()
    print("A real coding session, once more through a stored context. Each turn is on disk before the next begins.\n")
    code = run(["replay", shown(transcript), "--store", shown(store)])
    if code:
        return code
    print("\nThe context is stored. Now the report: where its tokens and its money went.\n")
    code = run(["inspect", shown(transcript), "--html", shown(report)])
    if code:
        return code
    print(f"Open it in a browser: {report.as_uri()}")
    print(f"The same as text:     .venv/bin/agentkit inspect {shown(transcript)}")
    return 0


def shown(path: Path) -> str:
    """A path as short as the working folder allows."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    sys.exit(main())
