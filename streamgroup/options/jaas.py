"""The grammar of `sasl.jaas.config`, as Java's client reads it (`JaasConfig`, with `java.io.StreamTokenizer`).

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

A word consists of letters, digits, `_`, `$`, `-` and `.`, and begins with a letter, `_` or `$`. Any other value needs
single or double quotes, in which `\\` escapes as in C. Comments are `/* ... */`, and from a slash outside of quotes to
the end of the line. Java reads quotes to the end of the line where they are not closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroup.options.secrets import Secret, is_secret

_SPACE = r"[\x00-\x20]+|/\*[\s\S]*?(?:\*/|\Z)|/[^\n\r]*"
_WORD = r"[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\-\u00a0-\U0010ffff]*"
_TOKEN = re.compile(
    rf"(?P<space>{_SPACE})|(?P<word>{_WORD})|(?P<sign>[=;])"
    r"""|"(?P<double>(?:\\[\s\S]|[^"\\\n\r])*)"?|'(?P<single>(?:\\[\s\S]|[^'\\\n\r])*)'?|(?P<other>[\s\S])"""
)
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<character>[\s\S]))")
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SHOWN_AS_IT_IS = "tokenauth"
"""The one option that is_secret() takes for a secret and that is a switch."""


class ControlFlag(Enum):
    """The control flag of a login module. With one module, all of them mean the same."""

    REQUIRED = "required"
    REQUISITE = "requisite"
    SUFFICIENT = "sufficient"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """One entry of a JAAS configuration: the class of the module and its options. Its `repr` hides all values."""

    name: str
    control_flag: ControlFlag
    options: Mapping[str, str | Secret]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {self.control_flag.value}, {', '.join(self.options)})"


def parse_jaas(text: str) -> LoginModule:
    """Return the only login module of `text`.

    Raises ValueError with the cause, which contains no value of an option: a user who forgets a quote moves the
    password to any place.
    """
    tokens = _tokens(text)
    module = _module(next(tokens, None), tokens)
    if next(tokens, None) is not None:
        raise ValueError("it has text after the first ';'. Write exactly one login module, and quote values with ';'")
    return module


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or quoted text, or one of the signs `=` and `;`. `text` is None for a sign and an unexpected character."""

    text: str | None
    sign: str = ""


def _tokens(config: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(config):
        match match.lastgroup:
            case "space":
                continue
            case "word":
                yield _Token(match[0])
            case "double" | "single":
                yield _Token(_ESCAPE.sub(_unescaped, match[match.lastgroup]))
            case _:
                yield _Token(None, match[0])


def _unescaped(match: re.Match[str]) -> str:
    if match["octal"] is not None:
        return chr(int(match["octal"], 8))
    return _CONTROL.get(match["character"], match["character"])


def _module(first: _Token | None, tokens: Iterator[_Token]) -> LoginModule:
    if first is None or not first.text:
        raise ValueError("it does not begin with a login module. Begin it with the module's class name")
    flag = _flag(next(tokens, None))
    options: dict[str, str | Secret] = {}
    for token in tokens:
        if token.sign == ";":
            return LoginModule(first.text, flag, options)
        equals, value = next(tokens, None), next(tokens, None)
        place = f"option {len(options) + 1} of the login module"
        if token.text is None or equals is None or equals.sign != "=":
            raise ValueError(f'{place} is not of the form name="value". Put values in double quotes')
        if value is None or value.text is None:
            raise ValueError(f"{place} has a value that is not a word. Put it in double quotes")
        hidden = is_secret(token.text) and token.text != _SHOWN_AS_IT_IS
        options[token.text] = Secret(value.text) if hidden else value.text
    raise ValueError("the login module does not end with ';'. Write ';' after its last option, and close all quotes")


def _flag(token: _Token | None) -> ControlFlag:
    """Return the flag, in any case of letters."""
    words = {flag.name: flag for flag in ControlFlag}
    if token is None or token.text is None or token.text.upper() not in words:
        raise ValueError("the login module is not followed by a control flag. Write 'required' after its class name")
    return words[token.text.upper()]
