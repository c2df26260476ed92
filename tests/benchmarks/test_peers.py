"""The libraries that benchmarks compare with are pinned, and nothing else needs them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVEN = {"langchain", "langchain-anthropic", "langchain-openai", "openai-agents", "pydantic-ai-slim"}


def test_the_other_libraries_are_pinned_for_their_own_environment_alone() -> None:
    lines = (ROOT / "constraints-peers.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin)] == []
    assert {pin.split("==")[0] for pin in pins} >= DRIVEN
    ours = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert [name for name in DRIVEN if f"\n{name}==" in ours] == []


def test_the_same_clients_are_compared() -> None:
    """Both sides talk to the provider through the same release of its client."""
    for name in ("anthropic", "openai"):
        pins = [re.search(rf"^{name}==(.+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE) for file in
                ("constraints.txt", "constraints-peers.txt")]  # fmt: skip
        assert pins[0] is not None
        assert pins[1] is not None
        assert pins[0][1] == pins[1][1]
