"""Texts near the grammar of `sasl.jaas.config`, and how Java read them: a row of tests/vectors/sasl/jaas.jsonl."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from streamgroup.options.sasl import LoginModule
from streamgroup.options.secrets import Secret


def expected_of(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Our reading of the row: None where Java refuses, and where it keeps an option without a name."""
    if "refused" in row or any(name is None for name, _ in row["options"]):
        return None
    return {"module": row["module"], "flag": row["flag"], "options": dict(row["options"])}


def as_row(module: LoginModule) -> dict[str, Any]:
    options = {name: value.value if isinstance(value, Secret) else value for name, value in module.options.items()}
    return {"module": module.name, "flag": module.control_flag.value, "options": options}


_PIECES = (
    *('"x"', "'y z'", '"a\\"b"', "'\\101\\n'", "word", "a.b-c", "_w$", "5", "-", "-3.5", ".", "=", "=", ";", '"', "'"),
    *(" ", "\n", "\r\n", "\t", "/* c */", "/*", "*/", "// c\n", "/", "*"),
    *("\\", "\\7", "\\477", "#", "@", ",", "{", "}"),
    *("é", "€", "😀", "\x85", "\xa0", "\x00", "required", "Optional", "org.x.Module", 'k="v"', " k=v "),
)


def random_configs(count: int, seed: int) -> list[str]:
    """Texts near the grammar: a good one with a few pieces put in or taken out."""
    chance = random.Random(seed)
    configs = []
    for _ in range(count):
        pieces = ["org.x.Module", " ", "required", " "]
        for _ in range(chance.randrange(4)):
            value = chance.choice(_PIECES[:7]) if chance.random() < 0.8 else chance.choice(_PIECES)
            pieces += ["name", "=", value, chance.choice((" ", "\n", "/* c */", "// c\n", ""))]
        pieces.append(";")
        for _ in range(chance.randrange(3)):
            place = chance.randrange(len(pieces) + 1)
            pieces[place : place + chance.randrange(2)] = [chance.choice(_PIECES)]
        configs.append("".join(pieces))
    return configs
