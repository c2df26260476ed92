"""Text into trees: JSON's values in YAML's notation, and never anything but a fault for what is neither."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config.document import MAX_BYTES, MAX_DEPTH, read_document
from agentd.config.merge import plain

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def value(text: str) -> Any:
    node, faults = read_document(f"key: {text}".encode(), "a.yaml")
    assert faults == []
    assert node is not None
    return plain(node)["key"]


def complaints(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    return [str(fault) for fault in read_document(data, "a.yaml")[1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True), ("false", False), ("null", None), ("", None), ("0", 0), ("-7", -7), ("1e3", 1000),
        ("1.5", 1.5), ("2.0", 2), ("1E-2", 0.01), ('"true"', "true"), ("'10'", "10"), ("!!str 10", "10"),
        ("on", "on"), ("no", "no"), ("Yes", "Yes"), ("True", "True"), ("~", "~"), ("010", "010"), ("0x1F", "0x1F"),
        ("12:30:45", "12:30:45"), ("1_000", "1_000"), (".5", ".5"), ("+1", "+1"), (".inf", ".inf"),
        ("2026-11-30", "2026-11-30"), ("[on, 1, a b]", ("on", 1, "a b")), ("{a: {b: 1}}", {"a": {"b": 1}}),
        ('"\\ud83d\\ude00"', "\U0001f600"), ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_json(text: str, expected: Any) -> None:
    found = value(text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3: a:", "repeated key 'a', first on line 1"),
        ("x:\n  a: 1\n  b:\n  - {c: 1,\n     c: 2}\n", "a.yaml:5: x.b[0].c:", "repeated key 'c', first on line 4"),
        ("base: &b {x: 1}\nnext:\n  <<: *b\n", "a.yaml:3: next.<<:", "a merge key"),
        ("a: !!python/name:os.system x\n", "a.yaml:1: a:", "a tag"),
        ("a: !!binary aGk=\n", "a.yaml:1: a:", "a tag"),
        ("a: !!set {x}\n", "a.yaml:1: a:", "a tag"),
        ("[1]: 2\n", "a.yaml:1:", "a key that is no text"),
        ("a: &x [*x]\n", "a.yaml:1: a[0]:", "an alias of what it stands in"),
        ("a: 1e999\n", "a.yaml:1: a:", "a number out of range"),
        (f"a: {'9' * 5000}\n", "a.yaml:1: a:", "a number out of range"),
        ('a: "\\ud800"\n', "a.yaml:1: a:", "half a surrogate pair"),
        ("- a\n", "a.yaml:1:", "a list at the top"),
        ("text\n", "a.yaml:1:", "text at the top"),
        ("a: 1\n--- \nb: 2\n", "a.yaml:2:", "not YAML"),
        ("a: [1\nb: 2\n", "a.yaml:2:", "not YAML"),
        ("a: b\n\tc: 1\n", "a.yaml:2:", "not YAML"),
        ("a: 1\nb: \x07\n", "a.yaml:2:", "a character that YAML does not allow"),
        (b"a: 1\nb: \xff\n", "a.yaml:2:", "bytes that are not UTF-8"),
        ('a: "\\UFFFFFFFF"\n', "a.yaml:", "out of range"),
        (f"a: {'[' * 5000}", "a.yaml:1:", "nested too deeply"),
        (f"a: {'[' * MAX_DEPTH}{']' * MAX_DEPTH}", "a.yaml:1:", "nested too deeply"),
        (b"#" * (MAX_BYTES + 1), "a.yaml:", "a document has at most"),
    ],
)  # fmt: skip
def test_faults_have_their_place(text: str | bytes, where: str, part: str) -> None:
    (found, *_) = complaints(text)
    assert found.startswith(where)
    assert part in found


def test_all_faults_of_a_file_are_collected() -> None:
    assert len(complaints("a: 1\na: 2\nb: !!set {x}\nc: 1e999\nd:\n  <<: 1\n  e: 1\n  e: 2\n")) == 5


def test_a_billion_laughs_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (found,) = complaints("\n".join(lines))
    assert "more than 100000 values" in found


def test_aliases_stand_for_their_value() -> None:
    node, faults = read_document(b"a: &x {b: [1]}\nc: *x\n", "a.yaml")
    assert faults == []
    assert node is not None
    assert plain(node) == {"a": {"b": (1,)}, "c": {"b": (1,)}}


@pytest.mark.parametrize(
    "secret", ["*hunter2", "%hunter2", "@hunter2", "'hunter2", '"hunter2', "!hunter2 x", "{hunter2: ["]
)
def test_syntax_errors_quote_nothing(secret: str) -> None:
    assert "hunter2" not in " ".join(complaints(f"intelligence:\n  token: {secret}\n"))


@given(st.dictionaries(TEXTS, JSON_VALUES, max_size=4), st.sampled_from([None, 2, "\t"]))
def test_every_json_document_reads_as_itself(document: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(document, indent=indent)
    node, faults = read_document(text.encode(), "a.json")
    assert faults == []
    assert node is not None
    assert json.loads(json.dumps(plain(node))) == document


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.text("ab:-[]{}&*!|>'\"%@`#,? \n\t\\xuU0123456789.<~", max_size=60).map(str.encode)
)
def test_any_bytes_give_a_tree_or_faults(data: bytes) -> None:
    node, faults = read_document(data, "a.yaml")
    assert node is not None or faults
    for fault in faults:
        assert "\n" not in str(fault)
        str(fault).encode()
