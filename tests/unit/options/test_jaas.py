from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.options.jaas import ControlFlag, parse_jaas
from streamgroup.options.secrets import Secret
from tests.unit.options.jaas_cases import as_row, expected_of

VECTORS = Path(__file__).parents[2] / "vectors" / "sasl" / "jaas.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text().splitlines()]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_java_has_read_some_configurations_and_refused_others() -> None:
    expected = [expected_of(row) for row in ROWS]
    assert min(expected.count(None), len(ROWS) - expected.count(None)) > 300


def test_each_configuration_is_read_as_java_reads_it() -> None:
    for row in ROWS:
        expected = expected_of(row)
        if expected is None:
            with pytest.raises(ValueError, match=r"\. \w"):
                parse_jaas(row["config"])
        else:
            assert as_row(parse_jaas(row["config"])) == expected, row["config"]


def escaped(text: str) -> str:
    """The text in double quotes, with an escape for each character that needs one."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'


@given(options=st.dictionaries(st.text(), st.text()), flag=st.sampled_from(ControlFlag))
def test_quoted_options_are_read_as_written(options: dict[str, str], flag: ControlFlag) -> None:
    written = " ".join(f"{escaped(name)}={escaped(value)}" for name, value in options.items())
    row = as_row(parse_jaas(f"{MODULE} {flag.value} {written};"))
    assert row == {"module": MODULE, "flag": flag.value, "options": options}


def test_passwords_are_secret_and_users_are_not() -> None:
    module = parse_jaas(f'{MODULE} required username="alice" password="hunter2" clientSecret="x" tokenauth=true;')
    assert module.options == {
        "username": "alice",
        "password": Secret("hunter2"),
        "clientSecret": Secret("x"),
        "tokenauth": "true",
    }


def test_a_login_module_shows_no_value() -> None:
    module = parse_jaas(f'{MODULE} required username="hunter1" password="hunter2" other="hunter3";')
    assert repr(module) == f"LoginModule({MODULE}, required, username, password, other)"
    assert "hunter" not in f"{module}"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("", "does not begin with a login module"),
        ("hunter2", "not followed by a control flag"),
        (f"{MODULE} hunter2;", "not followed by a control flag"),
        (f'{MODULE} required password="hunter2"', "does not end with ';'"),
        (f"{MODULE} required a=b password=hunter2!;", "option 3 of the login module is not of the form"),
        (f"{MODULE} required a=b keyTab=/hunter2;\n;", "option 2 of the login module has a value that is not a word"),
        (f"{MODULE} required 5=hunter2;", "option 1 of the login module is not of the form"),
        (f'{MODULE} required a="b"; hunter2', "text after the first ';'"),
    ],
)
def test_a_problem_names_the_place_and_no_value(config: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_jaas(config)
    assert "hunter2" not in str(caught.value)
