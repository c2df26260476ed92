"""Templates of prompts: Jinja2's immutable sandbox, narrowed to what cannot run away. Touches only its arguments.

What is left of the language is values, conditions, loops two deep and a few filters; nothing can be called, loaded,
defined or multiplied. What that cannot rule out beforehand is counted while rendering: work and bytes of output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentkit.core.contracts.errors import AgentKitError, MissingExtraError
from agentkit.core.contracts.surrogates import replace_surrogates

try:
    from jinja2 import ChainableUndefined, Template, TemplateError, Undefined, nodes, pass_context
    from jinja2.exceptions import TemplateRuntimeError
    from jinja2.filters import FILTERS, sync_do_rejectattr, sync_do_selectattr
    from jinja2.runtime import Context, LoopContext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.tests import TESTS
except ImportError as error:
    raise MissingExtraError("agentd", error.name or "jinja2", "agentd") from None

MAX_SOURCE = 64 << 10
"""Bytes of a template."""
MAX_OUTPUT = 256 << 10
"""Bytes of what it renders to."""
MAX_WORK = 200_000
"""Steps of one rendering: a node of a loop's body for each of its rounds, 64 characters or items of what a filter
takes. The built-in template takes some hundreds."""
MAX_LOOPS = 2
MAX_ITEMS = 64
"""Items of a list that is written out in a template."""
_SPENT = "work spent"
_EACH = "items of a loop"
"""Names with blanks, which no template can spell."""


class RenderError(AgentKitError, RuntimeError):
    """A template could not be rendered; the message says why."""


@dataclass(frozen=True)
class Problem:
    """What keeps a template from being used. `line` from 1; None where it is about the whole. `name`: the variable that
    is unknown."""

    found: str
    want: str
    line: int | None = None
    name: str | None = None


@dataclass(frozen=True)
class Compiled:
    """A template that may be rendered. `reads`: the names of data that it reads."""

    source: str
    reads: frozenset[str]
    _template: Template

    def render(self, data: Mapping[str, Any], *, max_bytes: int = MAX_OUTPUT) -> str:
        """The text for `data`: plain mappings, lists, texts and numbers. What is missing is empty.

        Raises RenderError where the template fails, gives more than `max_bytes` of UTF-8 or works too long.
        """
        pieces: list[str] = []
        left = max_bytes
        try:
            for piece in self._template.generate({**data, _SPENT: [0]}):
                left -= len(piece.encode("utf-8", "surrogatepass"))
                if left < 0:
                    raise RenderError(f"it gives more than {max_bytes} bytes")
                pieces.append(piece)
        except RenderError:
            raise
        except Exception as error:  # a template runs operations of all kinds on data of all kinds
            raise RenderError(f"{type(error).__name__}: {error}") from error
        return replace_surrogates("".join(pieces))


def compiled(
    source: str, names: Mapping[str, Collection[str] | None], elsewhere: Mapping[str, tuple[str, str]] | None = None
) -> Compiled | list[Problem]:
    """The template in `source`, or all that is wrong with it. `names`: the data it may read, each with the keys that
    it has, None where they are free. `elsewhere`: names that are data in another place, and how that is to be said."""
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE:
        return [Problem("a template that is too long", f"it has at most {MAX_SOURCE} bytes")]
    try:
        tree = _ENVIRONMENT.parse(source)
        problems = [_explained(one, elsewhere or {}) for one in _problems(tree, names)]
        if problems:
            return sorted(set(problems), key=lambda one: (one.line or 0, one.found))
        reads = frozenset(node.name for node in tree.find_all(nodes.Name)) & names.keys()
        for loop in list(tree.find_all(nodes.For)):
            weight = sum(1 for child in loop.body for _ in child.find_all(nodes.Node)) + len(loop.body)
            weight += 0 if loop.test is None else 1 + sum(1 for _ in loop.test.find_all(nodes.Node))
            loop.iter = nodes.Filter(loop.iter, _EACH, [nodes.Const(weight)], [], None, None, lineno=loop.lineno)
            loop.set_environment(_ENVIRONMENT)
        code = _ENVIRONMENT.compile(tree, filename="<template>")
        return Compiled(source, reads, _ENVIRONMENT.template_class.from_code(_ENVIRONMENT, code, {}))
    except TemplateError as error:
        return [Problem(f"it does not parse: {error.message}", "see the template language of Jinja2", _line(error))]
    except (RecursionError, MemoryError, SyntaxError):
        return [Problem("nested too deeply", "split the condition or expression")]
    except (ValueError, OverflowError) as error:
        return [Problem(f"it does not parse: {error}", "numbers and escapes of the usual size")]


def _line(error: TemplateError) -> int | None:
    return getattr(error, "lineno", None)


# What is refused beforehand

_PLAIN = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Assign, nodes.Name, nodes.Const,
    nodes.Tuple, nodes.List, nodes.Filter, nodes.Test, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And,
    nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Div, nodes.FloorDiv, nodes.Getattr,
    nodes.Getitem, nodes.Slice, nodes.Keyword,
)  # fmt: skip
_INSTEAD: dict[type[nodes.Node], tuple[str, str]] = {
    nodes.Call: ("a call", "data is read and passed through filters; nothing can be called"),
    nodes.Mul: ("a multiplication", "text cannot be multiplied; have the figure in the data"),
    nodes.Pow: ("a power", "have the figure in the data"),
    nodes.Mod: ("the operator %", "use the tests even, odd and divisibleby"),
    nodes.Concat: ("the operator ~", "write the values one after the other"),
    nodes.Dict: ("a mapping that is written out", "use a condition"),
    nodes.Include: ("an include", "a template is whole in itself"),
    nodes.Import: ("an import", "a template is whole in itself"),
    nodes.FromImport: ("an import", "a template is whole in itself"),
    nodes.Extends: ("an extends", "a template is whole in itself"),
    nodes.Block: ("a block", "a template is whole in itself"),
    nodes.Macro: ("a macro", "use a loop"),
    nodes.CallBlock: ("a call block", "use a loop"),
    nodes.FilterBlock: ("a filter block", "apply the filter to a value"),
    nodes.AssignBlock: ("a set block", "set takes a value: {% set name = value %}"),
    nodes.With: ("a with block", "use {% set name = value %}"),
    nodes.NSRef: ("a namespace", "set takes a plain name"),
}


def _problems(tree: nodes.Template, names: Mapping[str, Collection[str] | None]) -> Iterator[Problem]:
    own = {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
    for name in sorted(own & (names.keys() | {"loop"})):
        yield Problem(f"{name!r} is set, which is a name of the data", "use another name")
    yield from _walked(tree, names, own, 0)


def _explained(problem: Problem, elsewhere: Mapping[str, tuple[str, str]]) -> Problem:
    told = elsewhere.get(problem.name or "")
    return problem if told is None else replace(problem, found=told[0], want=told[1])


def _walked(
    node: nodes.Node, names: Mapping[str, Collection[str] | None], own: Collection[str], loops: int
) -> Iterator[Problem]:
    if not isinstance(node, _PLAIN):
        found, want = _INSTEAD.get(type(node), (f"a {type(node).__name__.lower()}", "the language has none here"))
        if isinstance(node, nodes.Call):
            called = getattr(node.node, "name", None) or getattr(node.node, "attr", None)
            found = f"a call of {called!r}" if called else found
        yield Problem(found, want, node.lineno)
        # What is in it is looked at too, unless it is a name that is called: the call says it all.
        hidden = ("node",) if isinstance(node, nodes.Call) else ("items",) if isinstance(node, nodes.Dict) else ()
        inside: Iterable[nodes.Node] = node.iter_child_nodes(exclude=hidden)
    else:
        yield from _problem_of(node, names, own, loops)
        inside = node.iter_child_nodes()
    deeper = loops + isinstance(node, nodes.For)
    for child in inside:
        yield from _walked(child, names, own, deeper)


def _problem_of(
    node: nodes.Node, names: Mapping[str, Collection[str] | None], own: Collection[str], loops: int
) -> Iterator[Problem]:
    if isinstance(node, nodes.Name) and node.ctx == "load":
        is_loop = node.name == "loop" and loops > 0
        if node.name not in names and node.name not in own and not is_loop:
            there = f"there is: {', '.join(sorted(names))}"
            yield Problem(f"an unknown variable, {node.name!r}", there, node.lineno, node.name)
    elif isinstance(node, (nodes.Getattr, nodes.Getitem)):
        yield from _problem_of_key(node, names)
    elif isinstance(node, (nodes.Filter, nodes.Test)):
        known: Mapping[str, Any] = _FILTERS if isinstance(node, nodes.Filter) else _TESTS
        what = type(node).__name__.lower()
        if node.name not in known:
            yield Problem(f"the {what} {node.name!r}", f"there is: {', '.join(sorted(known))}", node.lineno)
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            yield Problem(f"a {what} with * or **", "write its arguments out", node.lineno)
    elif isinstance(node, nodes.For):
        if node.recursive:
            yield Problem("a recursive loop", "a loop goes over one list", node.lineno)
        if loops >= MAX_LOOPS:
            yield Problem(f"loops nested more than {MAX_LOOPS} deep", "print the list's _text twin", node.lineno)
    elif isinstance(node, (nodes.List, nodes.Tuple)) and getattr(node, "ctx", "load") == "load":
        if len(node.items) > MAX_ITEMS or not all(isinstance(item, nodes.Const) for item in node.items):
            yield Problem("a list of other than constants", f"at most {MAX_ITEMS} texts and numbers", node.lineno)
    elif isinstance(node, nodes.Add) and any(isinstance(side, nodes.Const) and isinstance(side.value, str)
                                             for side in (node.left, node.right)):  # fmt: skip
        yield Problem("a sum of texts", "write the values one after the other", node.lineno)


def _problem_of_key(
    node: nodes.Getattr | nodes.Getitem, names: Mapping[str, Collection[str] | None]
) -> Iterator[Problem]:
    key = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
    if isinstance(key, str) and isinstance(node.node, nodes.Name):
        keys = names.get(node.node.name)
        if keys is not None and key not in keys:
            there = f"it has {', '.join(sorted(keys))}" if keys else "it has no keys"
            yield Problem(f"an unknown variable, '{node.node.name}.{key}'", there, node.lineno)


# What is counted and refused while rendering


class _Environment(ImmutableSandboxedEnvironment):
    """Keys of mappings, places in lists, and the counters of a loop; no attribute of any object besides."""

    intercepted_binops = frozenset({"+"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        return obj if isinstance(obj, Undefined) else self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, (list, str)) and isinstance(argument, int):
            return obj[argument] if -len(obj) <= argument < len(obj) else self.undefined(obj=obj)
        return self.getattr(obj, argument) if isinstance(argument, str) else self.undefined(obj=obj)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return left + right
        raise TemplateRuntimeError("only numbers can be added")


_LOOP = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem"})


def _printed(value: Any) -> str:
    if value is None or isinstance(value, Undefined):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float, list, dict, tuple)):
        return json.dumps(value, ensure_ascii=False, default=_printed)
    raise TemplateRuntimeError(f"a {type(value).__name__} cannot be printed")


def _spend(context: Context, steps: int) -> None:
    spent: list[int] = context.parent[_SPENT]
    spent[0] += steps
    if spent[0] > MAX_WORK:
        raise RenderError("it takes too many steps; have fewer loops in each other")


@pass_context
def _each(context: Context, value: Any, weight: int) -> list[Any]:
    if value is None or isinstance(value, Undefined):
        return []
    if not isinstance(value, (list, tuple)):
        raise TemplateRuntimeError(f"a loop goes over a list, not over {type(value).__name__}")
    _spend(context, len(value) * (weight + 1))
    return list(value)


def _counted(work: Callable[..., Any], kinds: tuple[type, ...] = ()) -> Callable[..., Any]:
    """A filter whose work is counted by the size of what it is given, and that takes a value of `kinds` alone. A
    missing value stays missing."""

    @pass_context
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        size = len(value) if isinstance(value, (str, list, tuple, dict)) else 0
        _spend(context, 1 + size // 64)
        if kinds and isinstance(value, Undefined):
            return value
        if kinds and not isinstance(value, kinds):
            raise TemplateRuntimeError(f"a filter of {kinds[0].__name__} got {type(value).__name__}")
        return work(context, value, *args, **kwargs)

    return run


def _default(context: Context, value: Any, default: Any = "", boolean: bool = False) -> Any:
    return default if isinstance(value, Undefined) or value is None or (boolean and not value) else value


def _join(context: Context, value: Any, separator: str = "", attribute: str | None = None) -> str:
    texts = [_printed(item) for item in (value if attribute is None else _map(context, value, attribute))]
    size = sum(map(len, texts)) + len(_printed(separator)) * max(len(texts) - 1, 0)
    if size > MAX_OUTPUT:
        raise RenderError(f"a list joined to more than {MAX_OUTPUT} characters")
    return _printed(separator).join(texts)


def _map(context: Context, value: Any, attribute: str) -> list[Any]:
    found = (context.environment.getitem(item, attribute) for item in value)
    return [None if isinstance(one, Undefined) else one for one in found]


def _to_json(context: Context, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=_printed)
    if len(text) > MAX_OUTPUT:
        raise RenderError(f"JSON of more than {MAX_OUTPUT} characters")
    return text


def _truncate(context: Context, value: str, length: int = 255) -> str:
    return value if len(value) <= length else f"{value[: max(length, 0)]}…"


def _sort(context: Context, value: Any, reverse: bool = False, attribute: str | None = None) -> list[Any]:
    made: list[Any] = FILTERS["sort"](context.environment, list(value), reverse, False, attribute)
    return made


_LISTS = (list, tuple)
_FILTERS: dict[str, Callable[..., Any]] = {
    "default": _counted(_default),
    "length": _counted(lambda context, value: 0 if isinstance(value, Undefined) else len(value)),
    "lower": _counted(lambda context, value: value.lower(), (str,)),
    "upper": _counted(lambda context, value: value.upper(), (str,)),
    "trim": _counted(lambda context, value: value.strip(), (str,)),
    "truncate": _counted(_truncate, (str,)),
    "tojson": _counted(_to_json),
    "first": _counted(lambda context, value: value[0] if value else context.environment.undefined(), _LISTS),
    "last": _counted(lambda context, value: value[-1] if value else context.environment.undefined(), _LISTS),
    "reverse": _counted(lambda context, value: list(reversed(value)), _LISTS),
    "join": _counted(_join, _LISTS),
    "sort": _counted(_sort, _LISTS),
    "map": _counted(_map, _LISTS),
    "selectattr": _counted(lambda context, value, *how: list(sync_do_selectattr(context, value, *how)), _LISTS),
    "rejectattr": _counted(lambda context, value, *how: list(sync_do_rejectattr(context, value, *how)), _LISTS),
}
_FILTERS |= {"d": _FILTERS["default"], "count": _FILTERS["length"]}
_TESTS = {
    name: TESTS[name]
    for name in (
        "defined", "undefined", "none", "string", "number", "mapping", "sequence", "boolean", "integer", "true",
        "false", "even", "odd", "divisibleby", "in", "eq", "equalto", "ne", "lt", "le", "gt", "ge",
    )
}  # fmt: skip


def _environment() -> _Environment:
    made = _Environment(undefined=ChainableUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_printed,
                        cache_size=0)  # fmt: skip
    made.globals.clear()
    made.filters = {**_FILTERS, _EACH: _each}
    made.tests = dict(_TESTS)
    return made


_ENVIRONMENT = _environment()
