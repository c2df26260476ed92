"""The test vectors of the simulator, by provider; each function is one cache. USD are of input alone."""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from agentkit.models.cache import Bill, Block, Prompt, PromptCache
from agentkit.transcripts import load
from tests.models.cache.notation import SOL, SONNET, anthropic, blocks, fresh_cache, openai, rules
from tests.transcripts.samples import FOLDER

Counts = tuple[int, int, int, int]


def counts(bill: Bill) -> Counts:
    return bill.read, bill.write_short, bill.write_long, bill.fresh


def usd(model: str, *bills: Bill, output_tokens: int = 0) -> Decimal:
    quotes = [bill.quote(model, output_tokens=output_tokens) for bill in bills]
    assert all(quote.known for quote in quotes)
    return sum((quote.usd for quote in quotes), Decimal(0))


def run(prompts: Sequence[Prompt], *, times: Sequence[float] | None = None, model: str = SONNET) -> list[Bill]:
    cache = fresh_cache(model)
    return [
        cache.send(prompt, at=at) for prompt, at in zip(prompts, times or range(0, 10 * len(prompts), 10), strict=True)
    ]


# -- Anthropic: Claude Sonnet 4.6 --------------------------------------------------------------------------------------


def test_a1_twenty_new_blocks_behind_one_mark_read_nothing() -> None:
    bills = run([blocks(10, marks=(10,)), blocks(15, marks=(15,)), blocks(35, marks=(35,))])
    assert [counts(bill) for bill in bills] == [(0, 2000, 0, 0), (2000, 1000, 0, 0), (0, 7000, 0, 0)]
    assert [usd(SONNET, bill) for bill in bills] == [Decimal("0.0075"), Decimal("0.00435"), Decimal("0.02625")]


def test_a2_a_mark_at_the_previous_tail_saves_the_read() -> None:
    bills = run([blocks(10, marks=(10,)), blocks(15, marks=(15,)), blocks(35, marks=(15, 35))])
    assert counts(bills[2]) == (3000, 4000, 0, 0)
    assert usd(SONNET, bills[2]) == Decimal("0.0159")


@pytest.mark.parametrize(
    ("count", "expected", "price"), [(29, (2000, 3800, 0, 0), "0.01485"), (30, (0, 6000, 0, 0), "0.0225")]
)
def test_a3_the_look_back_is_twenty_positions_its_own_counted(count: int, expected: Counts, price: str) -> None:
    bills = run([blocks(10, marks=(10,)), blocks(count, marks=(count,))])
    assert counts(bills[1]) == expected
    assert usd(SONNET, bills[1]) == Decimal(price)


def test_a4_thirty_calls_with_one_write() -> None:
    bills = run([anthropic("p:20000*")] * 30, times=[60 * n for n in range(30)])
    assert [bill.read for bill in bills] == [0, *[20000] * 29]
    assert sum(bill.write_short for bill in bills) == 20000
    assert usd(SONNET, *bills, output_tokens=200) == Decimal("0.339")


def test_a5_below_the_minimum_nothing_is_cached() -> None:
    short = run([anthropic("x:1023*")] * 2)
    assert [counts(bill) for bill in short] == [(0, 0, 0, 1023)] * 2
    assert [bill.ignored for bill in short] == [((0, "below_minimum"),)] * 2
    assert usd(SONNET, short[0]) == Decimal("0.003069")
    enough = run([anthropic("x:1000 y:24*")] * 2)
    assert [counts(bill) for bill in enough] == [(0, 1024, 0, 0), (1024, 0, 0, 0)]
    assert [round(usd(SONNET, bill), 6) for bill in enough] == [Decimal("0.003840"), Decimal("0.000307")]


def test_a6_a_clock_in_front_of_the_mark_writes_anew() -> None:
    bills = run([anthropic("s:2000 clock1:40*"), anthropic("s:2000 clock2:40*")])
    assert [counts(bill) for bill in bills] == [(0, 2040, 0, 0)] * 2
    assert usd(SONNET, bills[0]) == Decimal("0.00765")


def test_a7_a_clock_behind_the_mark_costs_its_own_tokens() -> None:
    bills = run([anthropic("s:2000* clock1:40"), anthropic("s:2000* clock2:40")])
    assert [counts(bill) for bill in bills] == [(0, 2000, 0, 40), (2000, 0, 0, 40)]
    assert [usd(SONNET, bill) for bill in bills] == [Decimal("0.00762"), Decimal("0.00072")]


def test_a8_two_lifetimes() -> None:
    bills = run([anthropic("s:2000^"), anthropic("s:2000^ d:3000^ q:500* t:40")])
    assert [counts(bill) for bill in bills] == [(0, 0, 2000, 0), (2000, 500, 3000, 40)]
    assert [usd(SONNET, bill) for bill in bills] == [Decimal("0.012"), Decimal("0.020595")]


def test_a9_a_read_refreshes_and_five_minutes_are_not_within_five_minutes() -> None:
    bills = run([anthropic("s:2000*")] * 4, times=[0, 299, 598, 898])
    assert [bill.read for bill in bills] == [0, 2000, 2000, 0]
    assert [bill.write_short for bill in bills] == [2000, 0, 0, 2000]
    assert usd(SONNET, *bills) == Decimal("0.0162")


def test_a10_readable_from_the_first_byte_on() -> None:
    cache = fresh_cache()
    prompt = anthropic("s:2000*")
    bills = [
        cache.send(prompt, at=0, first_byte=2.0),
        cache.send(prompt, at=1, first_byte=2.5),
        cache.send(prompt, at=3),
    ]
    assert [bill.read for bill in bills] == [0, 0, 2000]
    assert [bill.write_short for bill in bills] == [2000, 2000, 0]
    assert usd(SONNET, *bills) == Decimal("0.0156")


def test_a11_a_changed_tool_changes_everything() -> None:
    bills = run(
        [
            anthropic("tools:500 sys:1500* m:200*"),
            anthropic("tools2:500 sys:1500* m:200*"),
            anthropic("tools2:500 sys:1500* m2:200*"),
        ]
    )
    assert [counts(bill) for bill in bills] == [(0, 2200, 0, 0), (0, 2200, 0, 0), (2000, 200, 0, 0)]
    assert usd(SONNET, *bills) == Decimal("0.01785")


def test_a12_a_compaction_keeps_the_frozen_part() -> None:
    bills = run(
        [
            anthropic("s:3000* t1:400 t2:400 t3:400 t4:400 t5:400*"),
            anthropic("s:3000* sum:300 t5:400*"),
            anthropic("s:3000* sum:300* t5:400 t6:200*"),
        ]
    )
    assert [counts(bill) for bill in bills] == [(0, 5000, 0, 0), (3000, 700, 0, 0), (3700, 200, 0, 0)]
    assert [usd(SONNET, bill) for bill in bills] == [Decimal("0.01875"), Decimal("0.003525"), Decimal("0.00186")]


def test_a14_the_recorded_session_is_reproduced() -> None:
    """Block sizes from the recorded usage: what was written before, what is written now, what stays fresh."""
    (session,) = load(FOLDER / "claude-code" / "small-edit-session.jsonl")
    usages = [response.usage for response in session.responses if response.usage is not None]
    cache = fresh_cache("claude-sonnet-4-20250514")
    row = [Block("system", "before", usages[0].cache_read_tokens, "5m")]
    cache.send(Prompt("m", tuple(row)), at=0)
    for number, usage in enumerate(usages):
        row = [replace(block, mark=None) for block in row]
        row.append(Block("messages", f"turn{number}", usage.cache_write_tokens, "5m"))
        bill = cache.send(Prompt("m", (*row, Block("messages", f"late{number}", usage.input_tokens))), at=number + 1)
        assert counts(bill) == (usage.cache_read_tokens, usage.cache_write_tokens, 0, usage.input_tokens)
    assert [usage.cache_read_tokens for usage in usages[1:]] == [15_550, 15_854, 16_289, 16_532, 16_957, 17_303]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a:2000* b:500^", "block 1 asks for 1h, longer"),
        ("a:9* b:9* c:9* d:9* e:9*", "block 4 carries mark number 5"),
    ],
)
def test_a13_what_the_provider_would_refuse(text: str, complaint: str) -> None:
    cache = fresh_cache()
    with pytest.raises(ValueError, match=complaint):
        cache.send(anthropic(text), at=0)


def test_a_lifetime_that_the_provider_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="block 0: anthropic knows the lifetimes 5m, 1h, not '30m'"):
        fresh_cache().send(Prompt(SONNET, (Block("system", "s", 2000, "30m"),)), at=0)


# -- OpenAI: gpt-5.6-sol -----------------------------------------------------------------------------------------------


def sol(*prompts: Prompt, times: Sequence[float] | None = None) -> list[Bill]:
    return run(prompts, times=times, model=SOL)


def test_o1_implicit_mode_reads_what_the_last_turn_wrote() -> None:
    bills = sol(openai("d:1500 u1:200"), openai("d:1500 u1:200 a1:300 u2:200"))
    assert [counts(bill) for bill in bills] == [(0, 1700, 0, 0), (1700, 500, 0, 0)]
    assert [usd(SOL, bill) for bill in bills] == [Decimal("0.0085"), Decimal("0.00318")]


def test_o2_implicit_mode_shares_no_head_between_questions() -> None:
    bills = sol(openai("d:2000 u1:100"), openai("d:2000 u2:100"))
    assert [counts(bill) for bill in bills] == [(0, 2100, 0, 0)] * 2
    assert usd(SOL, bills[1]) == Decimal("0.0105")


def test_o3_an_explicit_mark_does() -> None:
    bills = sol(openai("d:2000* u1:100", mode="explicit"), openai("d:2000* u2:100", mode="explicit"))
    assert [counts(bill) for bill in bills] == [(0, 2000, 0, 100), (2000, 0, 0, 100)]
    assert [usd(SOL, bill) for bill in bills] == [Decimal("0.0104"), Decimal("0.0012")]


def test_o4_a_point_inside_a_message_is_no_boundary() -> None:
    longer = Prompt(
        SOL, (*openai("d:1500").blocks, Block("messages", "uA", 200), Block("messages", "x", 100, ends="user"))
    )
    bills = sol(openai("d:1500 uA:200"), longer)
    assert [counts(bill) for bill in bills] == [(0, 1700, 0, 0), (0, 1800, 0, 0)]
    assert [usd(SOL, bill) for bill in bills] == [Decimal("0.0085"), Decimal("0.009")]


def test_o5_explicit_mode_looks_up_explicit_marks_alone() -> None:
    bills = sol(openai("d:1500 u1:200"), openai("d:1500 u1:200 a1:100 u2:100*", mode="explicit"))
    assert [counts(bill) for bill in bills] == [(0, 1700, 0, 0), (0, 1900, 0, 0)]
    assert [usd(SOL, bill) for bill in bills] == [Decimal("0.0085"), Decimal("0.0095")]


def test_o6_volatile_text_at_the_end_is_written_in_implicit_mode_every_turn() -> None:
    bills = sol(
        openai("d:2000 u1:200 v1:50"),
        openai("d:2000 u1:200 a1:100 u2:100 v2:50"),
        openai("d:2000 u1:200 a1:100 u2:100 a2:100 u3:100 v3:50"),
    )
    assert [counts(bill) for bill in bills] == [(0, 2250, 0, 0), (0, 2450, 0, 0), (0, 2650, 0, 0)]
    assert usd(SOL, *bills) == Decimal("0.03675")


def test_o7_and_left_alone_in_explicit_mode() -> None:
    bills = sol(
        openai("d:2000* u1:200* v1:50", mode="explicit"),
        openai("d:2000* u1:200* a1:100 u2:100* v2:50", mode="explicit"),
        openai("d:2000* u1:200 a1:100 u2:100* a2:100 u3:100* v3:50", mode="explicit"),
    )
    assert [counts(bill) for bill in bills] == [(0, 2200, 0, 50), (2200, 200, 0, 50), (2400, 200, 0, 50)]
    assert usd(SOL, *bills) == Decimal("0.01544")


def test_o8_minimum_and_lifetime() -> None:
    short = sol(*[openai("d:800 u:200")] * 2)
    assert [counts(bill) for bill in short] == [(0, 0, 0, 1000)] * 2
    assert usd(SOL, short[0]) == Decimal("0.004")
    bills = sol(*[openai("d:2000 u1:100")] * 4, times=[0, 1799, 3598, 5398])
    assert [bill.read for bill in bills] == [0, 2100, 2100, 0]
    assert [bill.write_short for bill in bills] == [2100, 0, 0, 2100]
    assert usd(SOL, *bills) == Decimal("0.02268")


@pytest.mark.parametrize(
    ("pairs", "expected", "price"), [(20, (2100, 400, 0, 0), "0.00284"), (21, (0, 2520, 0, 0), "0.0126")]
)
def test_o9_twenty_earlier_ends_are_looked_up(pairs: int, expected: Counts, price: str) -> None:
    more = " ".join(f"a{n}:10 u{n}:10" for n in range(1, pairs + 1))
    bills = sol(openai("d:2000 u0:100"), openai(f"d:2000 u0:100 {more}"))
    assert counts(bills[1]) == expected
    assert usd(SOL, bills[1]) == Decimal(price)


def test_o10_the_last_output_of_a_run_is_an_end() -> None:
    first = "d:1500 u1:200 c1:50 t1:100 t2:100"
    bills = sol(openai(first), openai(f"{first} c2:50 t3:100"))
    assert [counts(bill) for bill in bills] == [(0, 1950, 0, 0), (1950, 150, 0, 0)]
    assert [usd(SOL, bill) for bill in bills] == [Decimal("0.00975"), Decimal("0.00153")]


@pytest.mark.parametrize(
    ("model", "hidden", "read"),
    [
        ("gpt-5.2", 0, 12_032),
        ("gpt-5.2", 1, 11_904),
        ("gpt-5.2", 126, 11_904),
        ("gpt-5.5", 0, 10_240),
        ("gpt-5.5", 60, 10_112),
    ],
)
def test_o11_older_models_read_in_steps(model: str, hidden: int, read: int) -> None:
    cache = PromptCache(replace(rules(model), hidden=hidden))
    prompt = openai("u:12033", model=model)
    assert counts(cache.send(prompt, at=0)) == (0, 0, 0, 12_033)
    bill = cache.send(prompt, at=1)
    assert (bill.read, bill.write, bill.fresh) == (read, 0, 12_033 - read)
    assert "hidden" in bill.assumed


def test_twelve_hours_are_billed_as_long() -> None:
    bills = sol(openai("d:2000^ u:500*", mode="explicit"))
    assert counts(bills[0]) == (0, 500, 2000, 0)


def test_at_most_four_marks_are_written_and_the_others_still_looked_up() -> None:
    text = "d:2000* u1:10* u2:10* u3:10* u4:10*"
    cache = fresh_cache(SOL)
    assert cache.send(openai(text, mode="explicit"), at=0).written == (1, 2, 3, 4)
    assert cache.send(openai("d:2000* u9:10*", mode="explicit"), at=1).read == 0


# -- others ------------------------------------------------------------------------------------------------------------


def parts(model: str, text: str) -> Prompt:
    return Prompt(
        model, tuple(Block("messages", name, int(size)) for name, size in (p.split(":") for p in text.split()))
    )


def test_deepseek_reads_a_common_prefix_from_the_third_request_on() -> None:
    cache = fresh_cache("deepseek-v4-flash")
    bills = [cache.send(parts("deepseek-v4-flash", f"A:1000 {last}:100"), at=n) for n, last in enumerate("BCD")]
    assert [bill.read for bill in bills] == [0, 0, 960]


def test_deepseek_reads_the_end_of_an_input_and_of_an_output() -> None:
    cache = fresh_cache("deepseek-v4-flash")
    reply = (Block("messages", "R", 128),)
    cache.send(parts("deepseek-v4-flash", "A:640"), at=0, reply=reply)
    assert cache.send(parts("deepseek-v4-flash", "A:640 R:128 C:64"), at=1).read == 768
    assert cache.send(parts("deepseek-v4-flash", "A:640 X:64"), at=2).read == 640


def test_llama_cpp_computes_the_last_token_and_keeps_the_reply_less_its_own_last() -> None:
    cache = fresh_cache("any", "llama.cpp")
    assert cache.send(parts("any", "p:443"), at=0).read == 0
    # The last token of a reply is in no cache yet, so it is a block of its own here.
    assert cache.send(parts("any", "p:443"), at=1, reply=(Block("messages", "r", 7),)).read == 442
    assert cache.send(parts("any", "p:443 r:7 last:1 more:14"), at=2).read == 450


def test_llama_cpp_reads_up_to_a_changed_character() -> None:
    cache = fresh_cache("any", "llama.cpp")
    cache.send(parts("any", "head:3 rest:440"), at=0)
    assert cache.send(parts("any", "head:3 other:441"), at=1).read == 3


def test_vllm_reads_full_blocks_and_never_the_last_token() -> None:
    cache = fresh_cache("any", "vllm")
    cache.send(parts("any", "p:4096"), at=0)
    bill = cache.send(parts("any", "p:4096"), at=math.pi)
    assert (bill.read, bill.fresh) == (4080, 16)


def test_gemini_reads_from_its_minimum_on() -> None:
    cache = fresh_cache("gemini-3.5-flash")
    cache.send(parts("gemini-3.5-flash", "p:4095 q:1"), at=0)
    assert cache.send(parts("gemini-3.5-flash", "p:4095 r:9000"), at=1).read == 0
    assert cache.send(parts("gemini-3.5-flash", "p:4095 q:1 r:10"), at=2).read == 4096


def test_what_a_provider_drops_is_not_read() -> None:
    cache = fresh_cache()
    prompt = anthropic("s:2000* a:500*")
    cache.send(prompt, at=0)
    cache.evict(prompt, keep=2000)
    assert cache.ceiling(prompt, at=1) == 2000
    assert counts(cache.send(prompt, at=1)) == (2000, 500, 0, 0)
    cache.evict(prompt)
    assert cache.ceiling(prompt, at=2) == 0
