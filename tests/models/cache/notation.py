"""The notation of the test vectors: `name:tokens`, `*` a mark at the short lifetime, `^` at the long one."""

import re
from dataclasses import replace

from agentkit.models.cache import Block, CacheRules, Prompt, PromptCache, rules_for

SONNET, SOL = "claude-sonnet-4-6", "gpt-5.6-sol"
_ROLES = {"d": "developer", "u": "user", "v": "user", "a": "assistant", "c": "assistant", "t": "tool"}


def rules(model: str, provider: str | None = None) -> CacheRules:
    found = rules_for(model, provider)
    assert found is not None
    return found


def anthropic(text: str, model: str = SONNET, **options: object) -> Prompt:
    """`tools` and `sys`, `s` are of their tiers, all else is a message block."""
    blocks = []
    for part in text.split():
        name, tokens, mark = _read(part)
        tier = "tools" if name.startswith("tool") else "system" if name in ("s", "sys") else "messages"
        blocks.append(Block(tier, name, tokens, {"*": "5m", "^": "1h", "": None}[mark]))
    return replace(Prompt(model, tuple(blocks)), **options)  # type: ignore[arg-type]


def openai(text: str, model: str = SOL, mode: str = "implicit") -> Prompt:
    """Every block is a message; the first letter of its name is the role."""
    blocks = []
    for part in text.split():
        name, tokens, mark = _read(part)
        role = _ROLES[name[0]]
        blocks.append(Block("messages", name, tokens, {"*": "30m", "^": "12h", "": None}[mark], role))
    return Prompt(model, tuple(blocks), mode=mode)


def blocks(count: int, tokens: int = 200, marks: tuple[int, ...] = ()) -> Prompt:
    """`count` message blocks; `marks` count from 1."""
    return anthropic(" ".join(f"b{n}:{tokens}{'*' if n in marks else ''}" for n in range(1, count + 1)))


def fresh_cache(model: str = SONNET, provider: str | None = None) -> PromptCache:
    return PromptCache(rules(model, provider))


def _read(part: str) -> tuple[str, int, str]:
    found = re.fullmatch(r"([\w.]+):(\d+)([*^]?)", part)
    assert found, part
    return found[1], int(found[2]), found[3]
