"""Secrets by reference: {env: NAME} or {file: PATH}. Touches what the resolver that is handed in touches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Never, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

Kind: TypeAlias = Literal["env", "file"]
Resolver: TypeAlias = Callable[[Kind, str], str]
"""Gives the text behind a reference, or raises LookupError whose message says what is missing, never what was read."""

MAX_BYTES = 1 << 16
"""Bytes of a secret's file; a chain of certificates takes a tenth."""
REFERENCE = "give it as {env: NAME} or {file: PATH}"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN_HEADER = re.compile(
    r"auth(?!or(?!i[sz]))|cookie|credential|key|passw|secret|session|signature|token", re.IGNORECASE
)


class SecretRef:
    """A secret: where it came from, for everyone to see, and its text, for `reveal` alone.

    Equal if reference and text are equal, so that a changed secret is a changed setting. It cannot be pickled, and no
    form of text shows more than the reference.
    """

    __slots__ = ("_text", "kind", "name")

    def __init__(self, kind: Kind, name: str, text: str) -> None:
        self.kind: Kind = kind
        self.name = name
        self._text = text

    def reveal(self) -> str:
        """The text itself: for the request that needs it, not for messages, logs or stores."""
        return self._text

    def reference(self) -> dict[str, str]:
        """As the document gives it."""
        return {self.kind: self.name}

    def __repr__(self) -> str:
        return f"SecretRef({self.kind}: {self.name})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretRef):
            return NotImplemented
        return (self.kind, self.name, self._text) == (other.kind, other.name, other._text)

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def __copy__(self) -> SecretRef:
        return self

    def __deepcopy__(self, memo: object) -> SecretRef:
        return self

    def __reduce__(self) -> Never:
        raise TypeError("a secret is not pickled")


def resolver(environ: Mapping[str, str]) -> Resolver:
    """Reads variables from `environ`, files from the working directory on; a file's last line break is left out."""

    def resolve(kind: Kind, name: str) -> str:
        if kind == "env":
            text = environ.get(name)
            if text is None:
                raise LookupError(f"the variable {name} is not set")
        else:
            text = _file_text(name)
        if not text:
            raise LookupError(f"{'the variable' if kind == 'env' else 'the file'} {name} is empty")
        if "\0" in text:
            raise LookupError(f"{'the variable' if kind == 'env' else 'the file'} {name} holds a NUL")
        return text

    return resolve


def _file_text(name: str) -> str:
    try:
        with open(name, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise LookupError(f"the file {name} cannot be read: {getattr(error, 'strerror', None) or 'no name'}") from None
    if len(data) > MAX_BYTES:
        raise LookupError(f"the file {name} has more than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise LookupError(f"the file {name} is not UTF-8 text") from None


def is_hidden_header(name: str) -> bool:
    """Whether a header or variable of this name carries a secret as a rule, so that its value has to be a reference."""
    return _HIDDEN_HEADER.search(name) is not None


def _refused(found: str, want: str) -> PydanticCustomError:
    return PydanticCustomError("want", "{want}", {"want": want, "found": found})


def _secret(value: Any, info: ValidationInfo) -> SecretRef:
    if isinstance(value, SecretRef):
        return value
    if not isinstance(value, dict):
        raise _refused("a literal (not shown)", f"a secret never stands in the document: {REFERENCE}")
    if len(value) != 1 or (kind := next(iter(value))) not in ("env", "file"):
        raise _refused("a mapping that is no reference (not shown)", REFERENCE)
    name = value[kind]
    if not isinstance(name, str) or not name or (kind == "env" and not _NAME.fullmatch(name)):
        what = "the name of a variable" if kind == "env" else "the path of a file"
        raise _refused("something else (not shown)", f"{kind}: takes {what}")
    resolve: Resolver = info.context["resolve"] if info.context else resolver({})
    try:
        return SecretRef(kind, name, resolve(kind, name))
    except LookupError as error:
        raise _refused(str(error.args[0]), "a secret has to be there at start") from None


def _header(value: Any, info: ValidationInfo) -> SecretRef | str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | SecretRef):
        return _secret(value, info)
    raise _refused("neither text nor a reference (not shown)", f"text, or if it is secret {REFERENCE}")


def _reference(value: SecretRef | str) -> dict[str, str] | str:
    return value if isinstance(value, str) else value.reference()


_Env: TypeAlias = Annotated[dict[Literal["env"], Annotated[str, Field(pattern=_NAME.pattern)]], Field(min_length=1)]
_File: TypeAlias = Annotated[dict[Literal["file"], str], Field(min_length=1)]

Secret: TypeAlias = Annotated[
    SecretRef, BeforeValidator(_secret, json_schema_input_type=_Env | _File), PlainSerializer(_reference)
]
HeaderValue: TypeAlias = Annotated[
    SecretRef | str, PlainValidator(_header, json_schema_input_type=str | _Env | _File), PlainSerializer(_reference)
]
"""The value of a header or of a variable of a child process: text, or a reference where it is secret."""
