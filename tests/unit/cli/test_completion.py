from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamgroup.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_streamgroup(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_STREAMGROUP_COMPLETE={shell}_complete" in result.output


def test_another_shell_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["completion", "csh"]).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [("streamgroup la", ["lag"]), ("streamgroup lag --wa", ["--watch"])],
    ids=["command", "option"],
)
def test_commands_and_options_are_completed(words: str, completed: list[str]) -> None:
    number = str(len(words.split()) - 1)
    asked = {"_STREAMGROUP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": number}
    program = Path(sys.executable).with_name("streamgroup")
    done = subprocess.run(
        [program], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=True
    )
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == completed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [(("streamgroup", "la"), ["lag"]), (("streamgroup", "topics", "--cr"), ["--create"])],
    ids=["command", "option"],
)
def test_bash_completes_by_the_script(words: tuple[str, ...], completed: list[str]) -> None:
    typed = " ".join(words)
    script = rf"""
        eval "$(streamgroup completion bash)" || exit 1
        [[ $(complete -p streamgroup) =~ -F\ ([^ ]+) ]] || exit 2
        COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}
        "${{BASH_REMATCH[1]}}" streamgroup
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    bash = ["bash", "--norc", "--noprofile", "-c", script]
    done = subprocess.run(
        bash, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, completed), done.stderr
