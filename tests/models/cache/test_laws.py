"""Laws of the simulator, over random conversations and every kind of rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.models.cache import KINDS, Bill, Block, CacheRules, Prompt, PromptCache, simulator
from tests.models.cache.notation import rules

BY_KIND = {
    "marked blocks": rules("claude-sonnet-4-6"),
    "message ends": rules("gpt-5.6-sol"),
    "interval": rules("gpt-5.5"),
    "common prefix": rules("gemini-2.5-pro"),
    "full blocks": rules("any", "vllm"),
    "units": rules("deepseek-v4-flash"),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
SIZES = st.sampled_from([1, 10, 63, 64, 500, 1023, 1024, 4096])
TIMES = st.sampled_from([0, 1, 60, 299, 300, 301, 1799, 1800, 3600, 3601])


@st.composite
def requests(draw: st.DrawFn, kind: str, most: int = 5) -> list[tuple[Prompt, int]]:
    """A conversation that grows, is edited and forks, each request with its time."""
    names = iter(range(10_000))

    def block() -> Block:
        ends = draw(st.sampled_from([None, "user", "tool", "assistant"])) if kind == "message ends" else None
        return Block("messages", f"m{next(names)}", draw(SIZES), ends=ends)

    system = [Block("system", f"s{n}", draw(SIZES), ends="developer") for n in range(draw(st.integers(0, 2)))]
    row, now, found = [*system, block()], 0, list[tuple[Prompt, int]]()
    for _ in range(draw(st.integers(1, most))):
        what = draw(st.sampled_from(["grow", "grow", "grow", "edit", "cut", "same"]))
        if what == "grow":
            row = [*row, *[block() for _ in range(draw(st.integers(1, 25)))]]
        elif what == "edit":
            at = draw(st.integers(0, len(row) - 1))
            row = [*row[:at], replace(row[at], digest=f"x{next(names)}"), *row[at + 1 :]]
        elif what == "cut":
            row = [*row[: draw(st.integers(1, len(row)))]]
        found.append((Prompt("m", tuple(marked(draw, row, kind)), mode=draw(MODES)), now))
        now += draw(TIMES)
    return found


MODES = st.sampled_from(["implicit", "explicit"])


def marked(draw: st.DrawFn, row: list[Block], kind: str) -> list[Block]:
    ttl = {"marked blocks": "5m", "message ends": "30m"}.get(kind)
    places = draw(st.sets(st.integers(0, len(row) - 1), max_size=4)) if ttl else set()
    return [replace(block, mark=ttl if at in places else None) for at, block in enumerate(row)]


def bills(found: CacheRules, sent: list[tuple[Prompt, int]], shift: float = 0) -> list[Bill]:
    cache = PromptCache(found)
    return [cache.send(prompt, at=at + shift) for prompt, at in sent]


@EVERY_KIND
@given(st.data())
@settings(max_examples=40)
def test_the_four_counters_sum_to_the_prompt_and_no_read_passes_the_ceiling(kind: str, data: st.DataObject) -> None:
    cache = PromptCache(BY_KIND[kind])
    for prompt, at in data.draw(requests(kind)):
        ceiling = cache.ceiling(prompt, at=at)
        bill = cache.send(prompt, at=at)
        assert min(bill.read, bill.write_short, bill.write_long, bill.fresh) >= 0
        assert bill.read + bill.write_short + bill.write_long + bill.fresh == prompt.tokens
        assert bill.read <= ceiling <= prompt.tokens
        assert bill.usage(7).prompt_tokens == prompt.tokens


@EVERY_KIND
@given(st.data())
@settings(max_examples=30)
def test_behind_a_changed_block_nothing_is_read(kind: str, data: st.DataObject) -> None:
    sent = data.draw(requests(kind))
    prompt, at = sent[-1]
    place = data.draw(st.integers(0, len(prompt.blocks) - 1))
    changed = [replace(block, digest="new") if n == place else block for n, block in enumerate(prompt.blocks)]
    cache = PromptCache(BY_KIND[kind])
    for earlier, when in sent:
        cache.send(earlier, at=when)
    bill = cache.send(replace(prompt, blocks=tuple(changed)), at=at + 1)
    assert bill.read <= (prompt.sums[place - 1] if place else 0)


@EVERY_KIND
@given(st.data())
@settings(max_examples=30)
def test_sent_again_it_writes_nothing_and_another_scope_reads_nothing(kind: str, data: st.DataObject) -> None:
    sent = data.draw(requests(kind))
    prompt, at = sent[-1]
    cache = PromptCache(BY_KIND[kind])
    for earlier, when in sent:
        cache.send(earlier, at=when)
    again = cache.send(prompt, at=at + 1)
    assert (again.write_short, again.write_long) == (0, 0)
    other = cache.send(replace(prompt, scope="other"), at=at + 2)
    assert (other.read, other.hit) == (0, None)
    assert cache.send(replace(prompt, model="other"), at=at + 2).read == 0


@EVERY_KIND
@given(st.data(), st.integers(-10_000, 10_000))
@settings(max_examples=30)
def test_shifting_all_times_changes_nothing(kind: str, data: st.DataObject, shift: int) -> None:
    sent = data.draw(requests(kind))
    assert bills(BY_KIND[kind], sent, shift) == bills(BY_KIND[kind], sent)


@pytest.mark.parametrize("kind", ["marked blocks", "message ends"])
@given(st.data())
@settings(max_examples=60)
def test_one_mark_more_never_reads_less(kind: str, data: st.DataObject) -> None:
    sent = data.draw(requests(kind))
    prompt, at = sent[-1]
    bare = [n for n, block in enumerate(prompt.blocks) if block.mark is None]
    if not bare or len(prompt.blocks) - len(bare) >= 4:
        return
    place = data.draw(st.sampled_from(bare))
    ttl = BY_KIND[kind].default_ttl
    more = [replace(block, mark=ttl) if n == place else block for n, block in enumerate(prompt.blocks)]
    reads = bills(BY_KIND[kind], sent)[-1].read
    assert bills(BY_KIND[kind], [*sent[:-1], (replace(prompt, blocks=tuple(more)), at)])[-1].read >= reads


@EVERY_KIND
@given(st.data())
@settings(max_examples=20)
def test_the_search_of_the_ceiling_finds_the_longest_prefix(kind: str, data: st.DataObject) -> None:
    """Halving against a plain comparison with every earlier request."""
    found = BY_KIND[kind]
    cache = PromptCache(found)
    earlier: list[tuple[Prompt, int]] = []
    for prompt, at in data.draw(requests(kind)):
        shared = 0
        for other, when in earlier:
            if at - when >= found.longest:
                continue
            heads = zip(prompt.blocks, other.blocks, strict=False)
            same = next(
                (n for n, (a, b) in enumerate(heads) if a.digest != b.digest),
                min(len(prompt.blocks), len(other.blocks)),
            )
            shared = max(shared, same)
        known = cache._shared(cache._keys(prompt), at)
        assert known == shared
        cache.send(prompt, at=at)
        earlier.append((prompt, at))


def test_expired_entries_leave_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "_SWEEP", 64)
    cache = PromptCache(BY_KIND["marked blocks"])
    for number in range(1_000):
        cache.send(Prompt("m", (Block("system", str(number), 2000, "5m"),)), at=number * 100)
    assert max(len(cache._seen), len(cache._entries)) < 130
