"""Which settings may change while the daemon runs, and what the digests tell apart."""

from pathlib import Path

import pytest

from agentd.config import Changes, Refused, digest, digests, reload
from tests.agentd.config.loading import settings


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ()),
        ("context: {keep_last: 3, mask: {keep_rounds: 2}}", ("context.keep_last", "context.mask.keep_rounds")),
        ("agent: {instruction: Be brief., tools: {internal: [plan.*]}}", ("agent.instruction", "agent.tools.internal")),
        ("agent: {conversation_budget: {tokens: 5}}", ("agent.conversation_budget",)),
        ("memory: {max_keys: 1}", ("memory.max_keys",)),
        ("skills: {sources: [{path: a}]}", ("skills.sources",)),
        ("tools: {disabled: [think], grants: {user: all}}", ("tools.grants", "tools.disabled")),
        ("limits: {run: {steps: 1}}", ("limits.run.steps",)),
        ("intelligence: {budget: {lifetime_tokens: 9}}", ("intelligence.budget.lifetime_tokens",)),
    ],
)
def test_what_may_change(tmp_path: Path, text: str, keys: tuple[str, ...]) -> None:
    new = settings(tmp_path, text)
    found = reload(settings(tmp_path), new)
    assert found == Changes(new, keys)
    assert isinstance(found, Changes)
    assert found.sections == frozenset(key.split(".")[0] for key in keys)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("agent: {name: other, instruction: x}", ("agent.name",)),
        ("intelligence: {max_output: 5, budget: {lifetime_tokens: 9}}", ("intelligence.max_output",)),
        ("store: {kind: memory}\nlifecycle: {idle_grace: 1s}", ("store.kind", "lifecycle.idle_grace")),
        ("context: {keep_last: 1}\nsecurity: {max_body: 1MiB}", ("security.max_body",)),
        ("knowledge: {auto_context: {top_k: 1}}", ("knowledge.auto_context.top_k",)),
        ("observability: {log_level: debug}", ("observability.log_level",)),
        ("a2a: {scope: principal}\ninterface: {debug: true}", ("a2a.scope", "interface.debug")),
    ],
)
def test_what_may_not_refuses_all(tmp_path: Path, text: str, keys: tuple[str, ...]) -> None:
    found = reload(settings(tmp_path), settings(tmp_path, text))
    assert found == Refused(keys)
    assert all(key in str(found) for key in keys)


def test_digests_tell_which_section_changed(tmp_path: Path) -> None:
    old, new = settings(tmp_path), settings(tmp_path, "context: {keep_last: 3}\nstore: {prefix: agentd}")
    changed = {name for name, value in digests(new).items() if digests(old)[name] != value}
    assert changed == {"context"}
    assert digest(old) != digest(new)
    assert digest(old) == digest(settings(tmp_path, "context: {keep_last: 12}"))
