"""Java's regular expressions: the same matches as in Java, or an error."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamgroup.java_regex import LENGTH_MOST, compile_java, search_name
from tests.live.java.write_regex_vectors import NAMES, VECTORS, WRITTEN

ROWS = [line.rsplit("\t", 1) for line in VECTORS.read_text(encoding="utf-8").splitlines()]


def differences(patterns: Sequence[str], answers: Sequence[str]) -> list[tuple[str, str]]:
    """Return the expressions that compile here and mean something else in Java, with Java's answer."""
    wrong = []
    for pattern, answer in zip(patterns, answers, strict=True):
        try:
            compiled = compile_java(pattern)
        except ValueError:
            continue
        ours = "".join(f"{bool(compiled.search(name)):d}{bool(compiled.fullmatch(name)):d}" for name in NAMES)
        if ours != answer:
            wrong.append((pattern, answer))
    return wrong


def test_each_expression_matches_what_java_matches() -> None:
    assert differences([pattern for pattern, _ in ROWS], [answer for _, answer in ROWS]) == []


def test_few_valid_expressions_are_refused() -> None:
    valid = [pattern for pattern, answer in ROWS if answer != "!"]
    refused = []
    for pattern in valid:
        try:
            compile_java(pattern)
        except ValueError:
            refused.append(pattern)
    assert len(refused) < len(valid) / 5
    assert not set(refused) & set(WRITTEN)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(", r"a \( without a \) at position 2"),
        ("a)", r"a \) without a \( at position 1"),
        ("[a", r"it ends where a \] is expected"),
        ("*a", r"a \* with nothing before it to repeat"),
        ("a{1", "a { without }"),
        ("a{,2}", r"the quantifier \{,2\}"),
        ("a{2,1}", "the wrong way round"),
        ("a**", "a quantifier after a quantifier"),
        ("[z-a]", "the range z-a the wrong way round"),
        ("[a-\\d]", "a class as the end of a range"),
        ("[a&&]", "&& without a set on both sides"),
        ("\\y", r"the escape \\y, which is not supported"),
        ("a\\", r"it ends where a character after \\ is expected"),
        ("\\xzz", "the number 'zz' of a character"),
        ("\\x{110000}", "the number '110000' of a character"),
        ("\\u00", "it ends where a digit is expected"),
        ("\\08", r"\\0 without digits"),
        ("\\2(a)", "a reference to group 2, which is not before it"),
        ("\\k<n>", "a reference to a group 'n' that is not before it"),
        ("(?<1>a)", "the name '1' of a group"),
        ("(?<n>a)(?<n>b)", "a second group 'n'"),
        ("(?x)a b", "the flag 'x', which is not supported"),
        ("(?U)a", "the flag 'U', which is not supported"),
        ("(?i)+", "a quantifier after flags"),
        ("(?i)\\p{Lu}", "the flag i together with a property of upper or lower case"),
        ("\\b{g}", r"the boundary \\b\{g\}, which is not supported"),
        ("\\p{Nothing}", "the property 'Nothing', which is not supported"),
        ("\\p{age=6}", "the property 'age=6', which is not supported"),
        ("\\p{IsNothing}", "unknown property"),
        ("a" * (LENGTH_MOST + 1), "longer than 10000 characters"),
        ("(?:(?:a{100}){100}){100}", "more than 100000 pieces"),
        ("[a-z]{2147483647}", "more than 100000 pieces"),
        ("(" * 5_000 + ")" * 5_000, "too large or too deeply nested"),
    ],
)
def test_an_expression_that_cannot_be_matched_as_in_java_is_an_error(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        compile_java(pattern)


def test_flags_count_for_the_rest_of_their_group() -> None:
    assert compile_java("a(?i)b").fullmatch("aB")
    assert not compile_java("a(?i)b").fullmatch("AB")
    assert compile_java("(?:(?i)a)b").fullmatch("Ab")
    assert not compile_java("(?:(?i)a)b").fullmatch("AB")
    assert not compile_java("(?i)stra\\u00dfe").search("STRASSE")  # one letter is never two in Java


SLOW, SLOW_NAME = "(a|aa)+b", "a" * 45
"""Each further letter of the name takes more than half as much time again."""


def test_a_search_that_takes_too_long_in_a_name_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^the search takes more than 0\.25 s\. Replace repetitions"):
        search_name(compile_java(SLOW), SLOW_NAME)


@pytest.mark.parametrize("pattern", [SLOW, r"^([a-z]+)\.([a-z]+)\.([a-z]+)\.([a-z0-9]+)$", "(.*)-(.*)-(.*)-(.*)-(.*)"])
def test_a_pattern_that_is_slow_only_in_other_names_finds_its_match(pattern: str) -> None:
    compiled = compile_java(pattern)
    found = [name for name in ("aab", "eu.shop.payments.v1", "a-b-c-d-e", "other") if search_name(compiled, name)]
    assert len(found) == 1
