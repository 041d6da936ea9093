"""The frame of a job: its command line, the exit code and the text of its errors, and the session that it runs in."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import click
import pytest
from pyspark.errors import StreamingQueryException

from streamgroup.errors import ConfigError, StreamGroupError, TransportError
from streamgroup.jobs import ingest, job_run, signals
from streamgroup.jobs.backfill import command as backfill
from streamgroup.jobs.job_file import Metrics, SparkSettings
from streamgroup.jobs.job_run import file_options, job_session, run_command
from streamgroup.jobs.mirror import command as mirror
from streamgroup.jobs.signals import SIGNALS, StopAtOnce, StopRequest
from tests.clock import Clock
from tests.fakes.signals import kept_handlers
from tests.waiting import wait_until

__all__ = ["kept_handlers"]

pytestmark = pytest.mark.usefixtures("kept_handlers")

SETTINGS = SparkSettings("it")


class Said:
    """Keeps what the job says, with the stream that it says it on."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, bool]] = []

    def __call__(self, line: str, *, error: bool = False) -> None:
        self.lines.append((line, error))


def failing(error: BaseException) -> click.Command:
    def act() -> None:
        raise error

    return click.Command("job", callback=act)


# -- the command line --------------------------------------------------------------------------------------------------


def test_every_job_takes_its_file_its_member_and_two_checks_of_the_file() -> None:
    given: dict[str, Any] = {}

    @click.command
    @file_options
    def job(**options: Any) -> None:
        given.update(options)

    said = Said()
    run_command(job, ["--config", "job.toml"], "job.py", (), said)
    assert said.lines == [], "a job that succeeds prints nothing"
    assert (str(given.pop("file")), given) == ("job.toml", {"member": None, "check": False, "print_config": False})
    run_command(job, ["--member", "a", "--print-config", "--check", "--config", "x"], "job.py", (), Said())
    assert (given["member"], given["check"], given["print_config"]) == ("a", True, True)


def test_a_job_without_its_file_ends_with_the_usage_and_the_code_of_a_mistake(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = click.command("job")(file_options(lambda **_: pytest.fail("the job began")))
    with pytest.raises(SystemExit) as ended:
        run_command(job, [], "job.py", (), Said())
    assert ended.value.code == job_run.MISCONFIGURED
    said = capsys.readouterr().err
    assert "Usage: job.py" in said
    assert "Missing option '--config'" in said


def test_without_arguments_those_of_the_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str | None] = []

    @click.command
    @click.option("--member")
    def job(member: str | None) -> None:
        given.append(member)

    monkeypatch.setattr("sys.argv", ["job.py", "--member", "a"])
    run_command(job, None, "job.py", (), Said())
    run_command(job, [], "job.py", (), Said())
    assert given == ["a", None]


# -- the end of a job --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("wrong. Correct it"), 2, "error: wrong. Correct it"),
        (TransportError("gone"), 1, "error: gone"),
        (StreamGroupError("other"), 1, "error: other"),
        (OSError("disk full"), 1, "error: disk full"),
        (KeyboardInterrupt(), 1, "interrupted"),
        (StopAtOnce(), 1, "stopped at once on the second signal: the batch in flight may be repeated"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_is_one_line_of_an_error_and_an_exit_code(error: BaseException, code: int, line: str) -> None:
    said = Said()
    with pytest.raises(SystemExit) as ended:
        run_command(failing(error), [], "job.py", (OSError,), said)
    assert ended.value.code == code
    assert said.lines == [(line, True)]


def test_the_end_of_a_stream_which_click_takes_for_ctrl_c_is_raised() -> None:
    said = Said()
    with pytest.raises(click.Abort):
        run_command(failing(EOFError()), [], "job.py", (), said)
    assert said.lines == []


@pytest.mark.parametrize("error", [OSError("disk full"), KeyError("x")])
def test_an_error_that_the_job_does_not_expect_is_raised_with_its_traceback(error: BaseException) -> None:
    said = Said()
    with pytest.raises(type(error)):
        run_command(failing(error), [], "job.py", (ArithmeticError,), said)
    assert said.lines == []


# -- the session -------------------------------------------------------------------------------------------------------


class Driver:
    """Spark, and what a job starts in its driver. `steps` are the calls in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Any] = []
        self.refused: Exception | None = None
        self.spark: Any = SimpleNamespace(stop=lambda: self.steps.append("stop"))
        for name in ("catch_in_jvm", "check_executors", "listen", "metrics", "open_telemetry"):
            monkeypatch.setattr(job_run, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(job_run, "build_session", self._build_session)

    def _build_session(self, settings: SparkSettings) -> Any:
        assert settings is SETTINGS
        signal.signal(signal.SIGINT, lambda *_: None)  # SparkContext has a handler of its own
        self.steps.append("build")
        return self.spark

    def _catch_in_jvm(self, spark: object) -> None:
        self.steps.append("catch")

    def _check_executors(self, spark: object, packages: tuple[str, ...]) -> None:
        self.steps.append(("check", tuple(packages)))
        if self.refused is not None:
            raise self.refused

    def _listen(self, spark: object) -> None:
        self.steps.append("listen")

    def _metrics(self, spark: object, port: int, *, host: str, cluster_name: str) -> Any:
        self.steps.append(("serve", port, host, cluster_name))
        return SimpleNamespace(port=port or 40_404)

    def _open_telemetry(self, spark: object, endpoint: str, *, interval_s: float, cluster_name: str) -> Any:
        self.steps.append(("export", endpoint, interval_s, cluster_name))
        return SimpleNamespace(close=lambda: self.steps.append("close export"))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_a_session_reports_its_batches_and_stops_at_the_end_of_the_job(driver: Driver) -> None:
    said = Said()
    with job_session(SETTINGS, said, None, ("fastavro",)) as (spark, stop):
        assert spark is driver.spark
        assert not stop
        driver.steps.append("job")
    assert driver.steps == ["build", "catch", ("check", ("fastavro",)), "listen", "job", "stop"]
    assert said.lines == []


def test_both_signals_request_a_stop_although_spark_replaces_a_handler(driver: Driver) -> None:
    for number in SIGNALS:
        with job_session(SETTINGS, Said()) as (_, stop):
            signal.raise_signal(number)
            assert stop
            assert stop.name == number.name


@pytest.mark.parametrize(
    ("served", "steps", "urls"),
    [
        (Metrics(), [], []),
        (Metrics(9404, "10.0.0.7", "prod"), [("serve", 9404, "10.0.0.7", "prod")], ["10.0.0.7:9404"]),
        (Metrics(9404, "::"), [("serve", 9404, "::", "default")], ["[::]:9404"]),
        (Metrics(0), [("serve", 0, "127.0.0.1", "default")], ["127.0.0.1:40404"]),
        (
            Metrics(otlp_endpoint="http://c:4318", otlp_interval_seconds=5.0),
            [("export", "http://c:4318", 5.0, "default")],
            [],
        ),
    ],
    ids=["nowhere", "to Prometheus", "by IPv6", "at a free port", "by OpenTelemetry"],
)
def test_metrics_go_where_the_job_file_says(served: Metrics, steps: list[Any], urls: list[str], driver: Driver) -> None:
    said = Said()
    with job_session(SETTINGS, said, served):
        assert driver.steps[4:] == steps
    assert said.lines == [(f"metrics: http://{url}/metrics", False) for url in urls]


def test_the_last_export_comes_before_the_end_of_the_session_also_if_the_job_fails(driver: Driver) -> None:
    served = Metrics(otlp_endpoint="http://c:4318")
    with pytest.raises(TransportError, match="gone"), job_session(SETTINGS, Said(), served):
        raise TransportError("gone")
    assert driver.steps[-2:] == ["close export", "stop"]


def test_executors_that_cannot_run_the_source_end_the_session_before_the_job(driver: Driver) -> None:
    driver.refused = ConfigError("worker-1 lacks the package streamgroup")
    with pytest.raises(ConfigError, match="worker-1 lacks"), job_session(SETTINGS, Said(), Metrics(9404)):
        pytest.fail("the job began")
    assert driver.steps == ["build", "catch", ("check", ()), "stop"]


def test_a_keystroke_that_arrives_twice_is_one_request_and_a_second_signal_stops_at_once() -> None:
    clock = Clock()
    stop = StopRequest(clock)
    assert not stop
    stop.receive(signal.SIGINT)
    clock.now += 0.2
    stop.receive(signal.SIGINT)
    assert stop
    assert stop.name == "SIGINT"
    clock.now += 1.5
    with pytest.raises(StopAtOnce):
        stop.receive(signal.SIGTERM)


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_the_jvms_signal_is_handed_on_to_this_process(name: str) -> None:
    class Received:
        def getName(self) -> str:  # noqa: N802 (Java's)
            return name

    stop = StopRequest()
    stop.install()
    signals._ForwardingHandler().handle(Received())
    wait_until(lambda: stop, "the signal")
    assert stop.name == f"SIG{name}"


# -- the command of each job -------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]
JOBS: dict[str, Any] = {"ingest": ingest, "backfill": backfill, "mirror": mirror}
for_each_job = pytest.mark.parametrize("name", JOBS)


def main_of(name: str, *more: str) -> None:
    """Run the command of a job with its file in `conf/`."""
    JOBS[name].main(["--config", str(ROOT / "conf" / f"{name}.toml"), "--member", "a", *more])


@for_each_job
def test_check_needs_no_spark(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JOBS[name], "run", lambda _: pytest.fail("Spark was wanted"))
    main_of(name, "--check")
    assert f"{name}.toml is a valid " in capsys.readouterr().out


@for_each_job
def test_a_bad_file_is_one_clean_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.toml").write_text("[sources]\n")
    with pytest.raises(SystemExit) as ended:
        JOBS[name].main(["--config", str(tmp_path / "job.toml")])
    assert ended.value.code == job_run.MISCONFIGURED
    said = capsys.readouterr().err
    assert said.startswith(f"{name}: error: invalid job file ")
    assert "unknown section [sources]. Did you mean [source]?" in said
    assert "Traceback" not in said


@for_each_job
def test_bad_arguments_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        JOBS[name].main(["--confg", "x"])
    assert ended.value.code == job_run.MISCONFIGURED
    assert "--config" in capsys.readouterr().err


@for_each_job
def test_how_a_job_ended_is_its_exit_code(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code in ((TransportError("gone"), 1), (StreamingQueryException("over"), 1), (ConfigError("wrong"), 2)):
        monkeypatch.setattr(JOBS[name], "run", Mock(side_effect=error))
        with pytest.raises(SystemExit) as ended:
            main_of(name)
        assert ended.value.code == code
        assert str(error) in capsys.readouterr().err


@for_each_job
def test_the_submitted_script_is_two_lines_of_code(name: str) -> None:
    script = (ROOT / "jobs" / f"{name}.py").read_text().splitlines()
    assert [line for line in script[1:] if line] == [f"from {JOBS[name].__name__} import main", "main()"]


def test_a_mirror_is_verified_with_success_only_if_the_copy_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "run_verify", lambda _: [])
    main_of("mirror", "--verify")
    monkeypatch.setattr(mirror, "run_verify", lambda _: ["something is lost"])
    with pytest.raises(SystemExit) as ended:
        main_of("mirror", "--verify")
    assert ended.value.code == job_run.FAILED
