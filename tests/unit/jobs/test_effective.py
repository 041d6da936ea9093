from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs import config, ingest
from streamgroup.jobs.effective import HIDDEN
from streamgroup.jobs.job_file import StopSettings
from streamgroup.jobs.keys import SECTIONS
from streamgroup.jobs.mirror import command as mirror
from streamgroup.jobs.mirror import config as mirror_config

ROOT = Path(__file__).parents[3]
INGEST, MIRROR = ROOT / "conf" / "ingest.toml", ROOT / "conf" / "mirror.toml"
SOURCE = """
[source]
kafka.bootstrap.servers = "broker:9092"
kafka.group.id = "g"
subscribe = "orders"
"""


def lines(tmp_path: Path, text: str, member: str | None = None, **environment: str) -> list[str]:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return config.effective(file, member, environment)


def line(found: list[str], key: str) -> str:
    (only,) = (line for line in found if line.startswith(f"{key} = "))
    return " ".join(only.split())


def test_each_value_has_its_origin(tmp_path: Path) -> None:
    text = (
        SOURCE
        + 'kafka.group.instance.id = "i-{member}"\nkafka.client.id = "env:CLIENT"\n'
        + '[sink]\nformat = "csv"\npath = "/rows/{member}"\ncheckpoint = "/c/{member}"\n'
        + "columns = [\"'{member}' AS m\"]\n"
    )
    found = lines(tmp_path, text, "a", CLIENT="one")
    assert found[0] == f"# {tmp_path / 'job.toml'}, as member a (--member)"
    assert line(found, "kafka.group.id") == 'kafka.group.id = "g" # file'
    assert line(found, "kafka.group.instance.id").endswith('"i-a" # file, {member} from --member')
    assert line(found, "kafka.client.id") == 'kafka.client.id = "env:CLIENT" # environment variable CLIENT'
    assert line(found, "columns") == "columns = [\"'a' AS m\"] # file"
    assert line(found, "failOnDataLoss") == "failOnDataLoss = true # default"
    assert line(found, "output_mode") == 'output_mode = "append" # default'
    assert line(found, "timeout_seconds") == "timeout_seconds = 60 # default"
    assert line(found, "app_name") == 'app_name = "job" # default, the name of the file'
    from_variable = lines(tmp_path, text, CLIENT="one", STREAMGROUP_MEMBER="b")
    assert line(from_variable, "path").endswith("{member} from environment variable STREAMGROUP_MEMBER")


def test_no_secret_is_shown_but_references_are(tmp_path: Path) -> None:
    text = (
        SOURCE
        + 'kafka.ssl.keystore.location = "/k.p12"\nkafka.ssl.keystore.password = "hunter2"\n'
        + 'kafka.ssl.truststore.location = "/t.p12"\nkafka.ssl.truststore.password = "file:/run/secret"\n'
        + 'kafka.security.protocol = "SSL"\nkafka.ssl.keystore.type = "PKCS12"\nkafka.ssl.truststore.type = "PKCS12"\n'
        + '[sink]\nformat = "console"\noptions = { password = "hunter3", token = "env:TOKEN" }\n'
        + '[spark]\nconf = { "spark.authenticate.secret" = "hunter4", '
        + '"spark.hadoop.fs.azure.account.key.n" = "hunter6", '
        + '"spark.hadoop.javax.jdo.option.ConnectionURL" = "jdbc:mysql://db/x?user=u&password=hunter7" }\n'
    )
    found = lines(tmp_path, text, TOKEN="hunter5")
    assert "hunter" not in "\n".join(found)
    assert line(found, "kafka.ssl.keystore.password") == f'kafka.ssl.keystore.password = "{HIDDEN}" # file'
    assert line(found, "kafka.ssl.truststore.password").startswith(
        'kafka.ssl.truststore.password = "file:/run/secret" #'
    )
    assert line(found, "token") == 'token = "env:TOKEN" # environment variable TOKEN'


def test_an_invalid_file_is_refused_as_by_the_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[sink\] format is required"):
        lines(tmp_path, SOURCE)


def test_an_option_in_another_case_is_not_shown_with_its_default_too(tmp_path: Path) -> None:
    found = lines(tmp_path, SOURCE + 'failondataloss = "false"\n[sink]\nformat = "console"\n')
    assert not [line for line in found if line.startswith("failOnDataLoss")]
    assert line(found, "failondataloss") == 'failondataloss = "false" # file'


def test_the_mirror_shows_what_it_sets_itself(tmp_path: Path) -> None:
    found = mirror_config.effective(MIRROR, "a", {})
    assert line(found, "startingOffsets") == 'startingOffsets = "earliest" # the mirror'
    assert line(found, "orders") == 'orders = "orders-copy" # file'


@pytest.mark.parametrize(("job", "file"), [(ingest.main, INGEST), (mirror.main, MIRROR)], ids=["ingest", "mirror"])
def test_the_printed_configuration_is_a_job_file_again(
    job: object, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(job)
    job(["--config", str(file), "--member", "a", "--print-config"])
    printed = capsys.readouterr().out
    tomllib.loads(printed)
    again = tmp_path / "again.toml"
    again.write_text(printed)
    load = config.load if file is INGEST else mirror_config.load
    assert load(again, None, {}).source.items() >= load(file, "a", {}).source.items()


def test_the_defaults_of_keys_are_those_of_the_job() -> None:
    defaults = {key.name: key.default for keys in SECTIONS.values() for key in keys if key.default}
    assert defaults == {
        "output_mode": f'"{config.Sink("x").output_mode}"',
        "timeout_seconds": f"{StopSettings().timeout_seconds:g}",
    }
