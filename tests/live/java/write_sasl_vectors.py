"""Run as a program, writes how Java reads sasl.jaas.config and which SASL messages it sends, to tests/vectors/sasl."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.live.java.cases import RELEASES, ask_java
from tests.unit.options.jaas_cases import random_configs

VECTORS = Path(__file__).parents[2] / "vectors" / "sasl"
PROGRAM = Path(__file__).parent / "SaslAnswers.java"

SEPARATOR = "\x01"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

CONFIGS = (
    f'{PLAIN} required username="alice" password="alice-secret";',
    f"{PLAIN} required username='alice' password='a\"b';",
    f'{PLAIN} required\n  username="alice"\n  password="alice-secret";\n',
    f"{PLAIN} required username=alice password=secret-1.2_$;",
    f"{PLAIN} required;",
    f'{PLAIN} REQUIRED a="b";',
    f'{PLAIN} Requisite a="b";',
    f'{PLAIN} sufficient a="b";',
    f'{PLAIN} optional a="b";',
    f'"{PLAIN}" "required" "a"="b";',
    f'/* a "comment" ; */ {PLAIN} // and = another;\nrequired a="b" ; // end',
    f'{PLAIN} required a="b"; /* not closed',
    f'{PLAIN} required /*/ a="b"; /**/ a="c";',
    f'{PLAIN} required /***/ a="c" /* \n*\n/ \n*/;',
    f'{PLAIN} required a="/* no comment */ // none";',
    f"{PLAIN} required keyTab=/etc/kafka.keytab ;\n;",
    f'{PLAIN} required keyTab="/etc/kafka.keytab" storeKey=true;',
    f'{PLAIN} required a="\\"quoted\\" and \\\\ and \\n \\t \\r \\a \\b \\f \\v \\x \\\'";',
    f'{PLAIN} required a="\\0\\1\\12\\123\\1234\\377\\400\\477\\78\\8\\9";',
    f"{PLAIN} required a='\\42' b=\"\\47\";",
    f'{PLAIN} required a="not closed\nb="c";',
    f'{PLAIN} required a="not closed\rb="c";',
    f'{PLAIN} required a="escaped \\\nend of line";',
    f'{PLAIN} required a="";',
    f'{PLAIN} required ""="b";',
    f'{PLAIN} required a="b" a="c";',
    f'{PLAIN} required a="b"c="d";',
    f'{PLAIN} required a = "b" c\n=\n"d";',
    f'{PLAIN} required ünï="cödé €" 😀="😀";',
    f"{PLAIN} required a=ünï b=€;",
    f'{PLAIN} required a="\x00\x01\x85\xa0";',
    f'{PLAIN}\x00required\x01a="b"\x1f;\x20',
    f'{PLAIN} required _a="1" $b="2" a-b="3" a.b="4" a5="5";',
    # Java refuses each of these.
    "",
    " \n ",
    "// only a comment",
    ";",
    f"{PLAIN}",
    f"{PLAIN};",
    f"{PLAIN} ;",
    f"{PLAIN} needed;",
    f"{PLAIN} =required;",
    f"{PLAIN} 5;",
    f'{PLAIN} required a="b"',
    f'{PLAIN} required a="b" a',
    f"{PLAIN} required a",
    f"{PLAIN} required a=",
    f"{PLAIN} required a=;",
    f"{PLAIN} required a;",
    f"{PLAIN} required a b;",
    f'{PLAIN} required a:"b";',
    f'{PLAIN} required a=="b";',
    f"{PLAIN} required a=5;",
    f"{PLAIN} required a=5b;",
    f"{PLAIN} required a=-b;",
    f"{PLAIN} required a=.b;",
    f"{PLAIN} required a=b@c;",
    f"{PLAIN} required a=b!;",
    f"{PLAIN} required a=b/c;",
    f'{PLAIN} required a="b;',
    f'{PLAIN} required a="b\\";',
    f'{PLAIN} required a="b\\',
    f'{PLAIN} required a="b"; {PLAIN} required a="b";',
    f'{PLAIN} required a="b";;',
    f'{PLAIN} required a="b"; x',
    f'{PLAIN} required, a="b";',
    f'{PLAIN} required a="b", c="d";',
    f'{PLAIN} required {{ a="b"; }};',
    f'KafkaClient {{ {PLAIN} required a="b"; }};',
    '"" required a="b";',
    '5 required a="b";',
    # An option without a name, which Java keeps as null.
    f'{PLAIN} required ="b";',
    f'{PLAIN} required =="b";',
    f'{PLAIN} required 5="b";',
    f'{PLAIN} required -="b";',
)


@dataclass(frozen=True)
class Scram:
    """One exchange of SCRAM."""

    mechanism: str
    user: str
    password: str
    client_nonce: str
    server_nonce: str
    salt: bytes
    iterations: int
    token_auth: bool = False

    def question(self) -> str:
        texts = (self.mechanism, self.user, self.password, self.client_nonce, self.server_nonce)
        extensions = ("tokenauth", "true") if self.token_auth else ()
        return "\t".join(
            ("scram", *map(_hex, texts), self.salt.hex(), _hex(str(self.iterations)), *map(_hex, extensions))
        )


@dataclass(frozen=True)
class OAuth:
    """One first message of OAUTHBEARER."""

    token: str
    extensions: Mapping[str, str] = field(default_factory=dict)

    def question(self) -> str:
        pairs = (text for pair in self.extensions.items() for text in pair)
        return "\t".join(("oauth", _hex(self.token), *map(_hex, pairs)))


# The two with the user "user" are those of RFC 5802 and RFC 7677, with the hashes that Kafka has.
EXCHANGES = tuple(
    Scram(mechanism, user, password, client_nonce, server_nonce, salt, iterations, token_auth)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for user, password, client_nonce, server_nonce, salt, iterations, token_auth in (
        ("user", "pencil", "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", "5b6d99689d12358eec", 4096, False),
        ("user", "pencil", "fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j", "4125c247e43ab1e93c6dff76", 4096, False),
        ("a=b,c", "p=a,ss", "n!~/+", "x", "00", 8192, False),
        ("ünï €😀", "pässwörd €😀", "abc", "def", "ff" * 64, 4096, False),
        ("ﬁ\u00ad", "I\u00adX ⅸ", "abc", "def", "0102", 4096, False),
        (" ", " \t", "0", "0", "0102030405060708", 16384, False),
        ("dG9rZW4taWQ", "aG1hYy1vZi10aGUtdG9rZW4=", "1234", "5678", "a0b0c0", 4096, True),
    )
    for salt in (bytes.fromhex(salt),)
)
CREDENTIALS = (("tim", "tanstaaftanstaaf"), ("alice", "alice secret"), ("ünï €😀", "pässwörd €😀"), (" ", "=,"))
TOKENS = (
    OAuth("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."),
    OAuth("ya29._~+/-==", {"identityPoolId": "pool a\tb\r\n~", "logicalCluster": "lkc-1"}),
    OAuth("t", {"a": "1", "b": "2"}),
    OAuth("t", {"auth": "x"}),
    OAuth("t", {"Auth": "x"}),
    OAuth("t", {"a1": "x"}),
    OAuth("t", {"": "x"}),
    OAuth("t", {"a": ""}),
    OAuth("t", {"a": "x\x01b=c"}),
    OAuth("t", {"a": "é"}),
    OAuth("t", {"a\n": "x"}),
)


def _hex(text: str) -> str:
    return text.encode().hex()


def _text(field: str) -> str:
    return bytes.fromhex(field).decode()


def jaas_questions(configs: Sequence[str]) -> list[str]:
    return [f"jaas\t{_hex(config)}" for config in configs]


def jaas_row(config: str, answer: str) -> dict[str, Any]:
    """Java's reading: module, flag and pairs of names (null if Java has none) and values; or why it refuses."""
    if answer.startswith("!"):
        return {"config": config, "refused": answer[2:]}
    module, flag, *fields = answer.split("\t")
    names = [None if name == "-" else _text(name) for name in fields[::2]]
    options = [list(pair) for pair in zip(names, map(_text, fields[1::2]), strict=True)]
    return {"config": config, "module": _text(module), "flag": _text(flag), "options": options}


def message_questions() -> list[str]:
    return [
        *(exchange.question() for exchange in EXCHANGES),
        *(f"plain\t{_hex(user)}\t{_hex(password)}" for user, password in CREDENTIALS),
        *(token.question() for token in TOKENS),
    ]


def message_rows(answers: Sequence[str]) -> list[dict[str, Any]]:
    """Each case with the messages, null where Java refuses. A message of PLAIN or OAUTHBEARER stands alone."""
    rows: list[dict[str, Any]] = [{**vars(exchange), "salt": exchange.salt.hex()} for exchange in EXCHANGES]
    rows += [{"mechanism": "PLAIN", "user": user, "password": password} for user, password in CREDENTIALS]
    rows += [{"mechanism": "OAUTHBEARER", **vars(token)} for token in TOKENS]
    return [
        {**row, "messages": None if answer.startswith("!") else [_ordered(_text(one)) for one in answer.split("\t")]}
        for row, answer in zip(rows, answers, strict=True)
    ]


def _ordered(message: str) -> str:
    """A first message of OAUTHBEARER with its extensions sorted: Java's come in the order of a hash table."""
    if not message.endswith(SEPARATOR * 2):
        return message
    header, token, *extensions = message[:-2].split(SEPARATOR)
    return SEPARATOR.join([header, token, *sorted(extensions), "", ""])


def lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def ask_about_jaas(release: str, configs: Sequence[str]) -> list[dict[str, Any]]:
    answers = ask_java(release, jaas_questions(configs), program=PROGRAM)
    return [jaas_row(config, answer) for config, answer in zip(configs, answers, strict=True)]


def ask_about_both(release: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Ask one JVM about the stored configurations and the messages."""
    answers = ask_java(release, [*jaas_questions(STORED_CONFIGS), *message_questions()], program=PROGRAM)
    count = len(STORED_CONFIGS)
    rows = [jaas_row(config, answer) for config, answer in zip(STORED_CONFIGS, answers[:count], strict=True)]
    return rows, message_rows(answers[count:])


STORED_CONFIGS = (*CONFIGS, *random_configs(1_000, seed=7))

if __name__ == "__main__":
    VECTORS.mkdir(parents=True, exist_ok=True)
    jaas, messages = ask_about_both(RELEASES[-1])
    (VECTORS / "jaas.jsonl").write_text(lines(jaas))
    (VECTORS / "messages.jsonl").write_text(lines(messages))
