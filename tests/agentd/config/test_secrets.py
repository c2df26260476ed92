"""Secrets by reference: looked up once, shown nowhere."""

# ruff: noqa: E501 - a row of a table is a line, however long its message is

import copy
import json
import pickle
from pathlib import Path

import pytest

from agentd.config import ConfigError, SecretRef, digest, digests, document, json_schema, reload
from agentd.config.secrets import is_hidden_header
from tests.agentd.config.loading import BASE, MODEL, faults, said, settings

ENVIRON = {**MODEL, "TOKEN": "hush-hush"}
TEXT = """
intelligence:
  token: {env: TOKEN}
  headers: {X-Api-Key: {file: FOLDER/key}, X-Team: desk}
"""


def with_secrets(folder: Path, token: str = "hush-hush") -> tuple[str, dict[str, str]]:
    (folder / "key").write_text("hush-file\n")
    return TEXT.replace("FOLDER", str(folder)), {**MODEL, "TOKEN": token}


def test_a_secret_is_what_it_refers_to(tmp_path: Path) -> None:
    text, environ = with_secrets(tmp_path)
    found = settings(tmp_path, text, environ=environ).intelligence
    key = found.headers["X-Api-Key"]
    assert found.token is not None
    assert isinstance(key, SecretRef)
    assert (found.token.reveal(), key.reveal()) == ("hush-hush", "hush-file")


def test_no_form_of_settings_shows_a_secret(tmp_path: Path) -> None:
    text, environ = with_secrets(tmp_path)
    found = settings(tmp_path, text, environ=environ)
    forms = [
        repr(found), str(found), f"{found.intelligence.token}", f"{found.intelligence!r:>9}", json.dumps(document(found)),
        found.model_dump_json(), repr(found.model_dump()), json.dumps(digests(found)), json.dumps(json_schema()),
        repr(copy.deepcopy(found)), repr(found.model_copy(deep=True)),
    ]  # fmt: skip
    assert [form for form in forms if "hush" in form] == []
    assert document(found)["intelligence"]["token"] == {"env": "TOKEN"}
    with pytest.raises(TypeError):
        pickle.dumps(found.intelligence.token)


def test_a_changed_secret_is_a_change_without_a_digest(tmp_path: Path) -> None:
    """The digest goes into a store, where a hash of a short secret could be guessed."""
    text, environ = with_secrets(tmp_path)
    old = settings(tmp_path, text, environ=environ)
    new = settings(tmp_path, text, environ={**environ, "TOKEN": "hush-new"})
    assert digest(old) == digest(new)
    assert reload(old, new).keys == ("intelligence.token",)
    assert old.intelligence.token != new.intelligence.token
    assert len({old.intelligence.token, copy.copy(old.intelligence.token)}) == 1
    assert old.intelligence.token != "hush-hush"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hush", "a literal (not shown)"), ("'{env: hush}'", "a literal (not shown)"), ("12345", "a literal (not shown)"),
        ("[hush]", "a literal (not shown)"), ("{vault: hush}", "a mapping that is no reference (not shown)"),
        ("{env: A, file: hush}", "a mapping that is no reference (not shown)"), ("{env: hush-hush}", "something else (not shown)"),
        ("{env: 5}", "something else (not shown)"), ("{env: GONE}", "the variable GONE is not set"),
        ("{env: EMPTY}", "the variable EMPTY is empty"), ("{file: FOLDER/gone}", "the file FOLDER/gone cannot be read: No such file or directory"),
        ("{file: FOLDER}", "the file FOLDER cannot be read: Is a directory"), ("{file: FOLDER/empty}", "the file FOLDER/empty is empty"),
        ("{file: FOLDER/binary}", "the file FOLDER/binary is not UTF-8 text"), ("{file: FOLDER/large}", "the file FOLDER/large has more than 65536 bytes"),
        ("{file: FOLDER/nul}", "the file FOLDER/nul holds a NUL"),
    ],
)  # fmt: skip
def test_what_is_no_secret(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_text("x" * 70_000)
    (tmp_path / "nul").write_text("a\0b")
    document = f"intelligence: {{token: {text.replace('FOLDER', str(tmp_path))}}}"
    (fault,) = faults(tmp_path, document, environ={**MODEL, "EMPTY": ""})
    assert fault.found == found.replace("FOLDER", str(tmp_path))
    assert "hush" not in fault.found + fault.want


PLACES = [
    "intelligence: {token: SECRET}", "intelligence: {tokn: SECRET}", "intelligence: SECRET", "intelligence: [SECRET]",
    "intelligence: {headers: SECRET}", "intelligence: {headers: {Authorization: SECRET}}", "intelligence: {headers: {a: [SECRET]}}",
    "intelligence: {endpoints: ['https://u:SECRET@x/']}", "intelligence: {endpoints: ['ftp://u:SECRET@x/?k=SECRET']}",
    "intelligence: {endpoints: [{url: 5, token: SECRET}]}", "intelligence: {timeout: 'http://u:SECRET@x/?key=SECRET'}",
    "a2a: {tls: {cert: a, key: SECRET}}", "a2a: {principals: [{id: a, role: user, match: SECRET}]}",
    "a2a: {principals: [{id: a, role: user, match: {bearer: SECRET}}]}", "a2a: {principals: SECRET}",
    "a2a: {peers: [{name: a, url: 'http://u:SECRET@x'}]}", "mcp: {servers: [{name: a, command: [x], env: {PASSWORD: SECRET}}]}",
    "a: SECRET", "token: SECRET", "intelligence: {token: *SECRET}", "intelligence: {token: 'SECRET}", "intelligence: {token: !SECRET x}",
    "intelligence: {token: a, token: SECRET}", "intelligence: {<<: SECRET}", "SECRET", "[SECRET]", "intelligence: {token: %SECRET}",
]  # fmt: skip


@pytest.mark.parametrize("text", PLACES)
def test_a_misplaced_secret_is_in_no_message(tmp_path: Path, text: str) -> None:
    found = said(tmp_path, BASE, text.replace("SECRET", "hush123"), environ={}, whole=False)
    assert found
    assert "hush123" not in "".join(found)


@pytest.mark.parametrize("key", ["intelligence.token", "intelligence.tokn", "intelligence", "a2a.tls.key", "x.y"])
def test_a_literal_in_a_variable_or_flag_is_in_no_message(tmp_path: Path, key: str) -> None:
    for environ, flags in [({"AGENTD_" + key.upper().replace(".", "__"): "hush123"}, []), ({}, [(key, "hush123")])]:
        found = faults(tmp_path, BASE, environ=environ, flags=flags)
        assert found
        assert "hush123" not in "".join(map(str, found)) + repr(ConfigError(found))


def test_a_reference_in_a_variable(tmp_path: Path) -> None:
    for environ in (
        {"AGENTD_INTELLIGENCE__TOKEN": "{env: TOKEN}"},
        {"AGENTD_INTELLIGENCE__TOKEN__ENV": "TOKEN"},
        {"AGENTD_INTELLIGENCE__HEADERS__X": "{env: TOKEN}", "AGENTD_INTELLIGENCE__TOKEN__ENV": "TOKEN"},
    ):
        found = settings(tmp_path, environ={**ENVIRON, **environ}).intelligence
        assert found.token is not None
        assert found.token.reveal() == "hush-hush"


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [("Authorization", True), ("X-Auth", True), ("x-api-key", True), ("COOKIE", True), ("DB_PASSWORD", True),
     ("Author", False), ("X-Team", False), ("HOME", False)],
)  # fmt: skip
def test_names_that_carry_secrets(name: str, is_hidden: bool) -> None:
    assert is_hidden_header(name) is is_hidden
