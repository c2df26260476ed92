"""The cache benchmark measures what it says: the library's share, what others share within a text, a replay that is
not whole."""

import asyncio
from pathlib import Path

import cache
import pytest
from conversations import Conversation, conversations
from peers import environment

from agentkit.models.cache import Block, Prompt


@pytest.fixture(scope="module")
def session() -> Conversation:
    return next(one for one in conversations() if one.name.startswith("openhands/"))


@pytest.mark.parametrize("market", cache.MARKETS, ids=lambda market: market.model)
def test_the_agent_reads_what_the_rules_allow(session: Conversation, market: cache.Market) -> None:
    tally = cache.replayed(session, market, None)
    assert tally.read / tally.best >= cache.BOUND
    assert tally.read / tally.prompt > 0.5
    assert tally.usd > 0


def test_a_replay_that_is_not_whole_is_an_error(session: Conversation) -> None:
    provider = cache.Provider(session)
    with provider.fake, pytest.raises(RuntimeError, match=f"0 requests, not {len(session.steps)}"):
        provider.exchanges()


def test_a_refused_request_is_an_error(session: Conversation) -> None:
    provider = cache.Provider(session)
    provider.fake.fail("billing")
    with provider.fake as fake:
        with pytest.raises(Exception, match=r"."):
            asyncio.run(cache.through_agentkit(session, cache.MARKETS[0], fake))
        with pytest.raises(RuntimeError, match="refused with"):
            provider.exchanges()


def test_the_equal_head_of_a_text_counts_where_any_prefix_is_kept() -> None:
    rules = cache.MARKETS[2].rules

    def prompt(text: str) -> Prompt:
        return Prompt(
            "gpt-5.4",
            (Block("tools", "t", 1_000), Block("system", text, len(text), text=text), Block("messages", "m", 9)),
        )

    before, after = prompt("x" * 600 + "09:00:00"), prompt("x" * 600 + "09:00:20")
    assert cache._equal_head(before, after, rules) == 1_600 - 1_600 % rules.step
    assert cache._equal_head(prompt("a" * 20), prompt("b" * 20), rules) == 0


def test_without_the_other_libraries_it_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "PYTHON", tmp_path / "python")
    with pytest.raises(SystemExit) as left:
        cache.main()
    assert left.value.code == 2
    assert "`make peers`" in capsys.readouterr().err
