"""The code on the pages: Python compiles and names what exists, commands parse, job files are valid."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import streamgroup
from streamgroup.cli.main import main
from streamgroup.jobs.config import load
from streamgroup.options.kafka import KAFKA
from streamgroup.options.producer import PRODUCER
from streamgroup.options.sink import SINK, SINK_ZOOKEEPER
from streamgroup.options.source import SOURCE
from streamgroup.options.zookeeper import ZOOKEEPER

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
OPTIONS = {row.name.lower() for table in (KAFKA, PRODUCER, SINK, SINK_ZOOKEEPER, SOURCE, ZOOKEEPER) for row in table}
OF_SPARK = frozenset({"checkpointlocation", "path"})
"""Options of Spark's own sinks and streams."""
OURS = ("streamgroup", "pyspark")
REST_OF_A_JOB = {
    "source": 'kafka.bootstrap.servers = "localhost:9092"\nkafka.group.id = "orders"\nsubscribe = "orders"\n',
    "sink": 'format = "parquet"\npath = "rows/{member}"\ncheckpoint = "checkpoints/{member}"\n',
}
"""What the sections of a page need besides to be a whole job file."""

Block = tuple[str, int, str]


def blocks(language: str) -> list[Block]:
    """The blocks of a language with page and line; those in lists are indented."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in re.finditer(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
            found.append((page.name, text[: block.start()].count("\n") + 1, textwrap.dedent(block[2])))
    return found


def whole(source: str) -> str:
    """A block that goes on with a reader or writer, from `.option(` on, as an expression."""
    return f"(reader\n{source})" if source.startswith(".") else source


def named(block: Block) -> str:
    return f"{block[0]}:{block[1]}"


# --- Python ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("python"), ids=named)
def test_python_compiles_and_imports_what_exists(block: Block) -> None:
    tree = ast.parse(whole(block[2]))
    compile(tree, named(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if name.name.partition(".")[0] in OURS:
                        importlib.import_module(name.name)
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] in OURS:
                there = importlib.import_module(module)
                for name in names:
                    assert hasattr(there, name.name), f"{module} has no {name.name}"
            case ast.Attribute(value=ast.Name(id="streamgroup"), attr=attribute):
                assert hasattr(streamgroup, attribute), f"streamgroup.{attribute}"


@pytest.mark.parametrize("block", blocks("python"), ids=named)
def test_options_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(whole(block[2]))):
        match node:
            case ast.Call(func=ast.Attribute(attr="option"), args=[ast.Constant(value=str(name)), _]):
                assert name.lower() in OPTIONS | OF_SPARK, name
            case ast.Dict(keys=keys):
                names = [key.value for key in keys if isinstance(key, ast.Constant)]
                ours = [name for name in names if str(name).startswith(("kafka.", "zookeeper.", "group."))]
                assert {name.lower() for name in ours} <= OPTIONS


# --- shell -----------------------------------------------------------------------------------------------------------


def without_blocks(text: str) -> str:
    """The text of a page without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def shell_lines(text: str) -> Iterator[str]:
    """The command lines of a page: in blocks of a shell, and in indented ones behind `$` or at their beginning."""
    shell = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    indented = [line for block in shell.finditer(text) for line in textwrap.indent(block[2], "    ").split("\n")]
    for line in re.sub(r"\\\n\s*", "", "\n".join([*indented, without_blocks(text)])).split("\n"):
        if (command := re.match(r" {4,}(?:\$ )?((?:seq [^|]*\| *|\w+=\S+ )*streamgroup [a-z].*)", line)) is not None:
            yield command[1]


def calls(line: str) -> Iterator[list[str]]:
    """The arguments of each call of `streamgroup` in a command line."""
    for part in re.split(r"\s\|\s|\s&&\s|;\s", line):
        words = shlex.split(part, comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        end = next((at for at, word in enumerate(words) if word in {">", "<", "&", "2>"}), len(words))
        if words[:1] == ["streamgroup"] and "..." not in words and "…" not in words:
            yield words[1:end]


def lines_in_sentences(text: str) -> Iterator[str]:
    """The command lines in backquotes that name a group or a topic; shorter ones only mention a command."""
    for found in re.findall(r"`(streamgroup [a-z][^`]*)`", without_blocks(text)):
        line = " ".join(found.split())
        if re.search(r" (?:--group|-G|--topic|-t) \S", line):
            yield line


FILES_OF_THE_READER = ("offsets.csv", "zookeeper.properties")
COMMANDS = sorted(
    {
        (page.name, shlex.join(call))
        for page in PAGES
        for text in [page.read_text()]
        for line in [*shell_lines(text), *lines_in_sentences(text)]
        for call in calls(line)
    }
)
CLUSTER_ONLY_WITH = {"doctor": "names", "checkpoint": "to_spark", "offsets": "to_latest"}
"""Commands that run without a cluster, and the parameter with which they need one."""


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_of_a_page_parses(page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in FILES_OF_THE_READER:
        Path(file).touch()
    parse(main, shlex.split(command))


def parse(command: click.Command, arguments: list[str], parent: click.Context | None = None) -> None:
    """Parse as the command would, and run nothing. Raises UsageError where a cluster is needed and not named."""
    context = command.make_context(command.name or "", list(arguments), parent=parent)
    given = context.params
    needs_cluster = "bootstrap_server" in given and given.get(CLUSTER_ONLY_WITH.get(command.name or "", ""), True)
    if needs_cluster and not given["bootstrap_server"] and not given.get("zookeeper"):
        raise click.UsageError(f"{command.name} needs --bootstrap-server or --zookeeper", context)
    with context:
        if isinstance(command, click.Group):
            name, found, rest = command.resolve_command(context, context._protected_args + context.args)
            assert found is not None, name
            parse(found, rest, context)


def test_the_pages_have_commands_to_parse() -> None:
    assert len(COMMANDS) >= 35
    assert {command.split()[0] for _, command in COMMANDS} >= {"groups", "lag", "topics", "drain", "consume", "produce"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "--no-such"],
        ["drain", "--timeout", "soon"],
        ["nothing"],
        ["groups", "--describe", "--group", "g"],
        ["skip", "/checkpoint"],
        ["checkpoint", "/checkpoint", "--to-spark"],
        ["doctor", "--group", "g"],
    ],
)
def test_a_command_that_does_not_parse_is_noticed(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(main, arguments)


@pytest.mark.parametrize("arguments", [["drain", "--group", "g"], ["checkpoint", "/c"], ["doctor"], ["lag", "-z", "z"]])
def test_a_command_that_needs_no_cluster_or_names_one_parses(arguments: list[str]) -> None:
    parse(main, arguments)


def test_command_lines_in_sentences_are_found_where_they_name_a_group_or_a_topic() -> None:
    text = "Run `streamgroup groups --describe\n--group g`. It is as `streamgroup groups --describe`.\n"
    assert list(lines_in_sentences(text)) == ["streamgroup groups --describe --group g"]


def test_command_lines_are_found_behind_prompts_pipes_and_variables() -> None:
    text = "    $ streamgroup lag -b x:1 --watch  # look\n    seq 9 | streamgroup produce -b x:1 -t t > out\n"
    text += "\n```sh\nA=1 streamgroup drain \\\n  --list\n```\nThe streamgroup groups of old.\n"
    found = [call for line in shell_lines(text) for call in calls(line)]
    assert found == [["drain", "--list"], ["lag", "-b", "x:1", "--watch"], ["produce", "-b", "x:1", "-t", "t"]]


# --- job files -------------------------------------------------------------------------------------------------------


def descriptor(directory: Path) -> Path:
    """A descriptor of the message `shop.Order`, as protoc writes it."""
    files = FileDescriptorSet()
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="id", number=1)
    field.type, field.label = field.TYPE_INT64, field.LABEL_OPTIONAL
    path = directory / "orders.desc"
    path.write_bytes(files.SerializeToString())
    return path


@pytest.mark.parametrize("block", blocks("toml"), ids=named)
def test_sections_of_a_page_are_those_of_a_job(block: Block, tmp_path: Path) -> None:
    given = tomllib.loads(block[2])
    file = tmp_path / "job.toml"
    text = block[2].replace("/etc/shop/orders.desc", str(descriptor(tmp_path)))
    text += "".join(f"\n[{name}]\n{rest}" for name, rest in REST_OF_A_JOB.items() if name not in given)
    file.write_text(text)
    load(file, "a", {"REGISTRY_PASSWORD": "secret"})
