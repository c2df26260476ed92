"""Rules between keys, and what this release does not support. Values only; the price table is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from agentd.config.faults import Path, clipped, key_text
from agentd.config.secrets import REFERENCE, is_hidden_header
from agentd.config.settings import Settings
from agentd.config.thinking import HOSTS, Allowance, Endpoint
from agentd.config.values import duration_text
from agentkit.models.catalog import rates

RECORDING = "replay"
"""What the tools of a recording that is replayed stand under, as those of a server do."""
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PER = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


class Finding(NamedTuple):
    """A fault before its place in a file is known. `uses`: the other keys that it rests on."""

    path: Path
    found: str
    want: str
    uses: tuple[Path, ...] = ()


Rule: TypeAlias = Callable[[Settings], Iterable[Finding]]


def _sizes(s: Settings) -> Iterator[Finding]:
    context, memory = s.context, s.memory
    if context.compact_to >= context.compact_at:
        want = f"it has to be below context.compact_at, which is {context.compact_at}"
        yield Finding(("context", "compact_to"), str(context.compact_to), want, (("context", "compact_at"),))
    if memory.max_value_bytes > memory.max_bytes:
        want = f"it is at most memory.max_bytes, which is {memory.max_bytes} bytes"
        yield Finding(
            ("memory", "max_value_bytes"), f"{memory.max_value_bytes} bytes", want, (("memory", "max_bytes"),)
        )


def _doors(s: Settings) -> Iterator[Finding]:
    listen, allow = s.a2a.listen, ("security", "allow_insecure_listen")
    if listen is not None and not listen.is_loopback and not s.security.allow_insecure_listen:
        missing = [name for name, given in (("tls", s.a2a.tls), ("principals", s.a2a.principals)) if not given]
        if missing:
            found = f"{listen}, which others can reach, without {' and without '.join(f'a2a.{m}' for m in missing)}"
            want = "set them, listen on loopback, or set security.allow_insecure_listen"
            yield Finding(("a2a", "listen"), found, want, (allow, *(("a2a", name) for name in missing)))
    inspector = s.interface.listen
    if s.interface.enabled and not inspector.is_loopback and not s.security.allow_insecure_listen:
        want = "the inspector has no TLS: listen on loopback, or set security.allow_insecure_listen"
        found = f"{inspector}, which others can reach"
        yield Finding(("interface", "listen"), found, want, (("interface", "enabled"), allow))
    doors = [(("a2a", "listen"), listen), (("observability", "metrics_addr"), s.observability.metrics_addr)]
    if s.interface.enabled:
        doors.append((("interface", "listen"), inspector))
    for at, (path, address) in enumerate(doors):
        for other, earlier in doors[:at]:
            if address is not None and address == earlier and address.port:
                found = f"{address}, as {'.'.join(other)}"
                yield Finding(path, found, "every listener has an address of its own", (other,))


def _models(s: Settings) -> Iterator[Finding]:
    for at, endpoint in enumerate(s.intelligence.endpoints):
        place = ("intelligence", "endpoints", at)
        dialect = s.intelligence.dialect_of(endpoint)
        named = (("intelligence", "dialect"), (*place, "dialect"))
        if dialect is None:
            want = f"name intelligence.dialect: only {', '.join(HOSTS)}, replay: and fake: tell theirs"
            yield Finding((*place, "url"), "an endpoint of no known dialect", want, named)
        elif dialect not in ("replay", "fake") and (problem := _url_problem(endpoint.url)):
            yield Finding((*place, "url"), *problem, uses=named)
        elif _lacks_credential(s, endpoint):
            want = f"name intelligence.token, or a token of its own: {REFERENCE}"
            yield Finding((*place, "url"), "an endpoint that asks for a credential, and none is configured", want)
    for at, server in enumerate(s.mcp.servers):
        if server.url is not None and (problem := _url_problem(server.url)):
            yield Finding(("mcp", "servers", at, "url"), *problem)
    if s.a2a.url is not None and (problem := _url_problem(s.a2a.url)):
        yield Finding(("a2a", "url"), *problem)
    for at, peer in enumerate(s.a2a.peers):
        if problem := _url_problem(peer.url):
            yield Finding(("a2a", "peers", at, "url"), *problem)


def _lacks_credential(s: Settings, endpoint: Endpoint) -> bool:
    """Whether a provider's own host is to be asked without any credential. Other servers may well need none."""
    if endpoint.token or s.intelligence.token or any(is_hidden_header(name) for name in s.intelligence.headers):
        return False
    return urlsplit(endpoint.url).hostname in HOSTS


def _url_problem(url: str) -> tuple[str, str] | None:
    want = "an http:// or https:// URL of a host, without user and password"
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            return "a URL with user or password (not shown)", f"credentials are secrets: {REFERENCE} as token"
        _ = parts.port
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # brackets that hold no address, a port that is no number
        is_web = False
    return None if is_web else ("text that is no such URL", want)


def _money(s: Settings) -> Iterator[Finding]:
    budgets: list[tuple[Path, Allowance | None]] = [(("agent", "conversation_budget"), s.agent.conversation_budget)]
    budgets += [
        (("intelligence", "budget", "windows", at), window) for at, window in enumerate(s.intelligence.budget.windows)
    ]
    budgets += [(("a2a", "principals", at, "quota"), rule.quota) for at, rule in enumerate(s.a2a.principals)]
    used: dict[Path, str | None] = {
        ("intelligence", "model"): s.intelligence.model,
        ("context", "summarize", "model"): s.context.summarize.model,
        ("intelligence", "budget", "degrade_model"): s.intelligence.budget.degrade_model,
    }
    used |= {("intelligence", "endpoints", at, "model"): one.model for at, one in enumerate(s.intelligence.endpoints)}
    unpriced = [(path, model) for path, model in used.items() if model is not None and rates(model) is None]
    for path, budget in budgets:
        if budget is None:
            continue
        for place, model in unpriced if budget.usd is not None else ():
            found = f"{budget.usd} USD, but there is no price for {clipped(model)!r}, which is {key_text(place)}"
            yield Finding((*path, "usd"), found, "set tokens or requests instead", (place,))
        if budget.tokens is None and budget.requests is None and budget.usd is None:
            uses = tuple((*path, name) for name in ("tokens", "requests", "usd"))
            yield Finding(path, "a budget without a figure", "set tokens, requests or usd", uses)
    for at, window in enumerate(s.intelligence.budget.windows):
        if window.reset is not None and window.reset.total_seconds() >= _PER[window.per]:
            place = ("intelligence", "budget", "windows", at)
            yield Finding((*place, "reset"), str(window.reset), f"less than a {window.per}", ((*place, "per"),))


def _names(s: Settings) -> Iterator[Finding]:
    lists: list[tuple[Path, str, list[str]]] = [
        (("mcp", "servers"), "name", [server.name for server in s.mcp.servers]),
        (("a2a", "principals"), "id", [rule.id for rule in s.a2a.principals]),
        (("a2a", "peers"), "name", [peer.name for peer in s.a2a.peers]),
        (("triggers",), "name", [trigger.name for trigger in s.triggers]),
    ]
    for path, key, names in lists:
        counted = Counter(names)
        for at, name in enumerate(names):
            if counted[name] > 1 and name in names[:at]:
                first = names.index(name)
                found = f"{name!r}, which item [{first}] has"
                yield Finding((*path, at, key), found, "it is unique in its list", ((*path, first, key),))


def _triggers(s: Settings) -> Iterator[Finding]:
    for at, trigger in enumerate(s.triggers):
        if trigger.every < timedelta(seconds=1):
            yield Finding(("triggers", at, "every"), duration_text(trigger.every), "at least 1s")
        if trigger.context.startswith("subagent/"):
            found = repr(clipped(trigger.context))
            yield Finding(("triggers", at, "context"), found, "a subagent's conversation is that of its call alone")


def _servers(s: Settings) -> Iterator[Finding]:
    for at, server in enumerate(s.mcp.servers):
        place = ("mcp", "servers", at)
        if not _NAME.fullmatch(server.name):
            want = "a name of ASCII letters, digits, _, - and ."
            yield Finding((*place, "name"), repr(clipped(server.name)), want)
        elif server.name == RECORDING:
            yield Finding((*place, "name"), repr(server.name), "recordings have it: give it another name")
        if (server.command is None) == (server.url is None):
            found = "neither command nor url" if server.url is None else "both command and url"
            yield Finding(place, found, "a server has one of the two", ((*place, "command"), (*place, "url")))
        elif server.url is None and server.headers:
            yield Finding((*place, "headers"), "headers for a child process", "it takes env", ((*place, "url"),))
        elif server.command is None and server.env:
            yield Finding((*place, "env"), "variables for a URL", "it takes headers", ((*place, "command"),))
    known = {server.name for server in s.mcp.servers}
    for at, source in enumerate(s.skills.sources):
        path = ("skills", "sources", at)
        if (source.path is None) == (source.server is None):
            found = "neither path nor server" if source.path is None else "both path and server"
            yield Finding(path, found, "a source has one of the two", ((*path, "path"), (*path, "server")))
        elif source.server is not None and source.server not in known:
            yield Finding((*path, "server"), repr(source.server), "name a server of mcp.servers", (("mcp", "servers"),))
        for name, value in (("discover", source.discover), ("filter", source.filter)):
            if source.server is None and value is not None:
                yield Finding((*path, name), "it for a folder", "it is for servers", ((*path, "server"),))
    yield from _overrides(s, known)


def _overrides(s: Settings, known: set[str]) -> Iterator[Finding]:
    memory, at_memory = s.tools.overrides.memory, ("tools", "overrides", "memory")
    if (memory.preset is None) != (memory.server is None):
        found = "a server without a preset" if memory.preset is None else "a preset without a server"
        yield Finding((*at_memory, "server"), found, "give both", ((*at_memory, "preset"),))
    elif memory.server is not None and memory.server not in known:
        yield Finding(
            (*at_memory, "server"), repr(memory.server), "name a server of mcp.servers", (("mcp", "servers"),)
        )
    calls = memory.calls
    if memory.preset is not None and calls:
        op = next(iter(calls))
        yield Finding((*at_memory, op), "a mapping beside a preset", "do one of the two", ((*at_memory, "preset"),))
    if (calls or memory.preset is not None) and s.a2a.scope == "principal":
        found = "principal, while memory is with an MCP server, which knows no senders"
        yield Finding(("a2a", "scope"), found, "use instance", (at_memory,))
    for op, steps in calls.items():
        for at, step in enumerate(steps or ()):
            if step.server not in known:
                where: Path = (*at_memory, op, at, "server")
                yield Finding(where, repr(step.server), "name a server of mcp.servers", (("mcp", "servers"),))
        if steps and f"memory.{op}" in s.tools.disabled:
            uses = (("tools", "disabled"),)
            found = f"an override of memory.{op}, which tools.disabled names"
            yield Finding(("tools", "overrides", "memory", op), found, "do one of the two", uses)


def _secrets(s: Settings) -> Iterator[Finding]:
    tables: list[tuple[Path, object]] = [(("intelligence", "headers"), s.intelligence.headers)]
    for at, server in enumerate(s.mcp.servers):
        tables += [(("mcp", "servers", at, "headers"), server.headers), (("mcp", "servers", at, "env"), server.env)]
    for path, table in tables:
        for name, value in table.items() if isinstance(table, dict) else ():
            if isinstance(value, str) and is_hidden_header(name):
                yield Finding((*path, name), "a literal (not shown)", f"it carries a secret: {REFERENCE}")


def _store(s: Settings) -> Iterator[Finding]:
    if s.store.kind == "memory" and s.store.path is not None:
        yield Finding(("store", "path"), "a folder for the memory store", "it has none", (("store", "kind"),))
    for at, rule in enumerate(s.a2a.principals):
        given = [name for name, value in rule.match if value is not None]
        if len(given) != 1:
            place = ("a2a", "principals", at, "match")
            found = " and ".join(given) or "nothing"
            want = "a rule matches by one of bearer, subject, san, any"
            yield Finding(place, found, want, tuple((*place, name) for name in type(rule.match).model_fields))


RULES: tuple[Rule, ...] = (_sizes, _doors, _models, _money, _names, _triggers, _servers, _secrets, _store)


def unsupported(s: Settings) -> Iterator[Finding]:
    """Each setting that asks for what this release does not do. What a later release does is taken off here."""
    for is_set, path, instead in _later(s):
        if is_set:
            yield Finding(path, "a setting that this release does not support", instead)


def _later(s: Settings) -> Iterator[tuple[bool, Path, str]]:
    off = "leave it off"
    tactic = s.intelligence.budget.tactic
    yield tactic in ("slow", "degrade"), ("intelligence", "budget", "tactic"), "use wait, refuse or fail"
    yield s.intelligence.budget.degrade_model is not None, ("intelligence", "budget", "degrade_model"), off
    yield s.context.background, ("context", "background"), "summaries are made when they are due: false"
    yield s.knowledge.auto_context.tool is not None, ("knowledge", "auto_context", "tool"), off
    yield s.knowledge.auto_context.on != "never", ("knowledge", "auto_context", "on"), "never"
    yield s.store.kind == "postgres", ("store", "kind"), "use sqlite or memory"
    yield bool(s.a2a.peers), ("a2a", "peers"), off
    yield s.a2a.push.enabled, ("a2a", "push", "enabled"), "false"
    for at, rule in enumerate(s.a2a.principals):
        yield rule.match.san is not None, ("a2a", "principals", at, "match", "san"), "match by bearer or any"
        unproved = s.a2a.listen is not None and rule.match.subject is not None
        yield unproved, ("a2a", "principals", at, "match", "subject"), "no transport proves one: match by bearer or any"
    yield s.interface.enabled, ("interface", "enabled"), "false"
    yield s.observability.metrics_addr is not None, ("observability", "metrics_addr"), off
    yield s.observability.otel == "on", ("observability", "otel"), off


LATER_SECTIONS = frozenset({"workflows"})
"""Sections of the design that have no keys yet: named, so that nobody looks for a slip of the pen."""
