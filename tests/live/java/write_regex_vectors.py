"""Run as a program, writes which names Java's regular expressions match, to tests/vectors/java_regex.tsv."""

from __future__ import annotations

import random
from pathlib import Path

from streamgroup.testing.releases import NEWEST
from tests.live.java.cases import ask_java

PROGRAM = Path(__file__).parent / "Patterns.java"
VECTORS = Path(__file__).parents[2] / "vectors" / "java_regex.tsv"

NAMES = (
    *("orders", "my-orders", "orders.v1", "a", "ab", "AB", "b-b", "a_b", "1", "__consumer_offsets", "z9", "aab"),
    *("abab", "k", "K", "ss", "", "x&&y", "a|b", "a~b", "a-b", "^a", "a]b", "[a]", "{1}"),
)
"""Topics, and names with the characters that mean something in expressions."""
PIECES = (
    *("a", "b", "o", "r", "-", ".", "_", "1", "|", "^", "$", "#", " ", "&", "&&", "~", "]", "}"),
    *("*", "+", "?", "{2}", "{1,}", "{2,1}", "{,2}", "{", "?+", "*+", "++", "{2}+"),
    *("(", ")", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?i)", "(?-i)", "(?i:", "(?s)", "(?d)", "(?y)"),
    *("[ab]", "[^ab]", "[a-z&&[^b]]", "[a--b]", "[a~~b]", "[a||b]", "[]a]", "[^]a]", "[a-]", "[-a]", "[a-c[x-z]]"),
    *("[^a-z&&[b]]", "[", "[\\p{L}&&[^o]]", "[\\w-]", "[\\w-z]", "[a-\\d]", "[&&a]", "[a&&]", "[a&&b-d]"),
    *("[a-z&&b&&c]", "[a&b]", "[a-[b]]", "[\\Qa-\\E]", "[z-a]"),
    *("\\w", "\\W", "\\d", "\\D", "\\s", "\\b", "\\B", "\\h", "\\V", "\\R", "\\A", "\\Z", "\\z", "\\G", "\\.", "\\-"),
    *("\\p{Alpha}", "\\p{Lu}", "\\P{L}", "\\pL", "\\p{IsAlphabetic}", "\\p{IsLatin}", "\\p{javaLowerCase}"),
    *("\\p{Punct}", "\\p{Nothing}", "\\p{InBasicLatin}", "\\p{script=Latin}"),
    *("\\Qa.b\\E", "\\Q", "\\E", "\\x61", "\\u0061", "\\x{61}", "\\0141", "\\cA", "\\y", "\\1", "\\2", "\\k<n>"),
)
WRITTEN = (
    *("orders", "^orders$", "orders.*", ".*-orders", "(my-)?orders(\\.v[0-9]+)?", "(?!__).*", "[^_].*", "(?i)ORDERS"),
    *("\\p{Alpha}+", "\\p{javaLowerCase}+-\\p{Lower}+", "[a-z&&[^aeiou]]+", "\\Qorders.v1\\E", "a++b"),
    *("(?<n>a)\\k<n>b", "(?>a|ab)b", "(ab)\\1", "[\\w&&[^\\d]]+", "\\w+\\.\\w+", "[a-z]+(?=\\.)"),
    "(?<!my-)orders",
)
"""Expressions as people write them."""


def expressions(seed: int, count: int) -> list[str]:
    """Return expressions of random pieces."""
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 6))) for _ in range(count)]


def ask(patterns: list[str]) -> list[str]:
    """Return Java's answers for all names."""
    return ask_java(NEWEST, ["\t".join((pattern, *NAMES)) for pattern in patterns], program=PROGRAM)


def main() -> None:
    """Write the vectors."""
    patterns = [*WRITTEN, *dict.fromkeys(expressions(1, 2_000))]
    lines = (f"{pattern}\t{answer}\n" for pattern, answer in zip(patterns, ask(patterns), strict=True))
    VECTORS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
