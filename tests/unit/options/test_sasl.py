from __future__ import annotations

import json
import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.options.parse import parse_sink
from streamgroup.options.sasl import ControlFlag, KerberosOptions, OAuthOptions, SaslOptions, parse_jaas, sasl_options
from streamgroup.options.secrets import Secret
from streamgroup.options.types import SinkOptions
from tests.unit.options.jaas_cases import as_row, expected_of, random_configs

SECURITY = "org.apache.kafka.common.security"
PLAIN = f"{SECURITY}.plain.PlainLoginModule"
SCRAM = f"{SECURITY}.scram.ScramLoginModule"
OAUTH = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
URL = "https://id.example.com/token"
SECRET = "hunter2"


def read(mechanism: str | None, module: str, options: str, **settings: str) -> SaslOptions:
    """Options of a read, with `_` in place of `.` in the names of other settings."""
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
    if mechanism is not None:
        given["kafka.sasl.mechanism"] = mechanism
    return sasl_options({**given, "kafka.sasl.jaas.config": f"{module} required {options};"}, "kafka.")


def oauth(options: str = "", url: str = URL, **settings: str) -> OAuthOptions:
    found = read("OAUTHBEARER", OAUTH, options, sasl_oauthbearer_token_endpoint_url=url, **settings)
    assert found.oauth is not None
    return found.oauth


def kerberos(options: str, service: str = "kafka", mechanism: str | None = "GSSAPI") -> KerberosOptions:
    found = read(mechanism, KRB5, options, sasl_kerberos_service_name=service)
    assert found.kerberos is not None
    return found.kerberos


# -- accepted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [PLAIN, f"kafkashaded.{PLAIN}"])
def test_plain_has_a_user_and_a_password(module: str) -> None:
    found = read(" PLAIN ", module, 'username="alice" password="hunter2" user_alice="of a broker"')
    assert found == SaslOptions("PLAIN", "alice", Secret("hunter2"))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("option", "token_auth"), [("", False), ("tokenauth=TRUE", True), ("tokenauth=yes", False)])
def test_scram_may_use_a_delegation_token(mechanism: str, option: str, token_auth: bool) -> None:
    found = read(mechanism, SCRAM, f'username="id" password="hmac==" {option}')
    assert found == SaslOptions(mechanism, "id", Secret("hmac=="), token_auth=token_auth)


def test_a_password_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    found = read("PLAIN", PLAIN, 'username="alice" password="env:KAFKA_PASSWORD"')
    assert found.password is not None
    assert found.password.reveal("kafka.sasl.jaas.config") == "hunter2"


def test_names_without_a_prefix_are_those_of_a_properties_file() -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required username=a password=b;"}
    assert sasl_options(settings, "") == SaslOptions("PLAIN", "a", Secret("b"))


def test_oauth_gets_a_token_with_client_credentials_or_from_a_file() -> None:
    options = 'clientId="id" clientSecret="hunter2" scope="a b" extension_logicalCluster="lkc" extension_a="1"'
    assert oauth(options) == OAuthOptions(
        URL, "id", Secret("hunter2"), "a b", extensions=(("a", "1"), ("logicalCluster", "lkc"))
    )
    of_a_file = oauth("extension_a=b", url="file:///run/token")
    assert of_a_file == OAuthOptions("file:///run/token", extensions=(("a", "b"),)), "it needs no client"


def test_options_of_kafka_4_1_stand_before_those_of_the_login_module() -> None:
    found = oauth(
        'clientId="old" clientSecret="old" scope="old"',
        sasl_oauthbearer_client_credentials_client_id="id",
        sasl_oauthbearer_client_credentials_client_secret="hunter2",
        sasl_oauthbearer_scope="new",
    )
    assert found == OAuthOptions(URL, "id", Secret("hunter2"), "new")


def test_an_unsecured_token_has_its_claims() -> None:
    options = 'unsecuredLoginStringClaim_sub="alice" unsecuredLoginStringClaim_scope=s unsecuredLoginExtension_a="b"'
    found = read("OAUTHBEARER", OAUTH, f'{options} unsecuredLoginLifetimeSeconds="60"').oauth
    assert found == OAuthOptions(
        extensions=(("a", "b"),), unsecured_claims=(("scope", "s"), ("sub", "alice")), unsecured_lifetime_s=60
    )


def test_kerberos_takes_a_keytab_or_a_ticket_cache_and_is_the_default_mechanism() -> None:
    found = kerberos('useKeyTab=true storeKey=true keyTab="/etc/a.keytab" principal="alice@EXAMPLE.COM"')
    assert found == KerberosOptions("kafka", "alice@EXAMPLE.COM", use_keytab=True, keytab="/etc/a.keytab")
    found = kerberos('useTicketCache=True ticketCache="/tmp/krb5cc" serviceName="kafka"', mechanism=None)
    assert found == KerberosOptions("kafka", use_ticket_cache=True, ticket_cache="/tmp/krb5cc")
    assert kerberos("useTicketCache=true serviceName=broker", service="").service_name == "broker"


# -- refused -----------------------------------------------------------------------------------------------------------

REFUSED = [
    (
        "scram-sha-256",
        SCRAM,
        "username=a password=hunter2",
        "kafka.sasl.mechanism: expected one of PLAIN, SCRAM-SHA-256",
    ),
    ("AWS_MSK_IAM", "software.amazon.msk.auth.iam.IAMLoginModule", "", "kafka.sasl.mechanism: expected one of"),
    ("", PLAIN, "username=a password=hunter2", "kafka.sasl.mechanism: expected one of"),
    ("PLAIN", SCRAM, "username=a password=hunter2", f"does not fit kafka.sasl.mechanism=PLAIN, which needs {PLAIN}"),
    ("SCRAM-SHA-512", PLAIN, "username=a password=hunter2", f"which needs {SCRAM}"),
    ("GSSAPI", PLAIN, "username=a password=hunter2", f"which needs {KRB5} or com.ibm"),
    ("OAUTHBEARER", "com.example.hunter2", "", f"which needs {OAUTH}"),
    ("PLAIN", PLAIN, "password=hunter2", 'the login module has no username. Write username="..."'),
    ("PLAIN", PLAIN, 'username="" password=hunter2', "the login module has no username"),
    ("PLAIN", PLAIN, "user=hunter2", "the login module has no username"),
    ("PLAIN", PLAIN, "username=hunter2", 'the login module has no password. Write password="..."'),
    ("SCRAM-SHA-256", SCRAM, "username=hunter2 password=''", "the login module has no password"),
    ("PLAIN", PLAIN, "username=a password=hunter2!", "is not of the form name="),
    ("OAUTHBEARER", OAUTH, "clientId=a clientSecret=hunter2", "kafka.sasl.oauthbearer.token.endpoint.url is not set"),
    ("OAUTHBEARER", OAUTH, "unsecuredLoginStringClaim_x=hunter2", 'Write unsecuredLoginStringClaim_sub="..."'),
    ("OAUTHBEARER", OAUTH, "unsecuredLoginStringClaim_sub=a unsecuredLoginListClaim_x=hunter2", "string claims only"),
    (
        "OAUTHBEARER",
        OAUTH,
        "unsecuredLoginStringClaim_sub=a unsecuredLoginLifetimeSeconds=hunter2",
        'Write unsecuredLoginLifetimeSeconds="3600"',
    ),
    ("GSSAPI", KRB5, "useTicketCache=true", "kafka.sasl.kerberos.service.name is not set"),
    ("GSSAPI", KRB5, "serviceName=kafka", "uses neither a keytab nor a ticket cache"),
    ("GSSAPI", KRB5, "serviceName=kafka useKeyTab=true", 'the login module has no principal. Write principal="..."'),
    (
        "GSSAPI",
        KRB5,
        "serviceName=kafka useTicketCache=true keyTab=hunter2",
        "keyTab has no effect without useKeyTab. Write useKeyTab=true, or remove keyTab",
    ),
    (
        "GSSAPI",
        KRB5,
        "serviceName=kafka useKeyTab=true principal=a ticketCache=hunter2",
        "ticketCache has no effect without useTicketCache",
    ),
]


@pytest.mark.parametrize(("mechanism", "module", "options", "problem"), REFUSED)
def test_a_problem_names_the_option_to_write_and_no_value(
    mechanism: str, module: str, options: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        read(mechanism, module, options)
    message = str(caught.value)
    assert SECRET not in message
    assert "kafka.sasl." in message
    assert re.search(r"\. (Set|Write|Correct|Remove|Put) \w", message)


@pytest.mark.parametrize(
    ("options", "settings", "problem"),
    [
        ("", {"url": URL}, "the client id is not set. Set kafka.sasl.oauthbearer.client.credentials.client.id"),
        (
            "clientId=a",
            {"url": URL},
            "the client secret is not set. Set kafka.sasl.oauthbearer.client.credentials.client.s",
        ),
        ("", {"url": SECRET}, "token.endpoint.url: expected a URL of https:, http: or file:"),
        ("", {"url": f"ftp://{SECRET}"}, "token.endpoint.url: expected a URL of https:, http: or file:"),
        ("", {"url": f"https://host:{SECRET}"}, "token.endpoint.url: expected a URL of https:, http: or file:"),
        ("", {"url": f"https://[{SECRET}"}, "token.endpoint.url: expected a URL of https:, http: or file:"),
        ("unsecuredLoginStringClaim_sub=hunter2", {"url": URL}, "Remove the latter"),
        (
            "clientId=a clientSecret=b",
            {"url": URL, "sasl_oauthbearer_jwt_retriever_class": "FileJwtRetriever"},
            "sasl.oauthbearer.jwt.retriever.class=FileJwtRetriever with a https: URL",
        ),
        (
            "",
            {"url": "file:/token", "sasl_oauthbearer_jwt_retriever_class": "ClientCredentialsJwtRetriever"},
            "sasl.oauthbearer.jwt.retriever.class=ClientCredentialsJwtRetriever with a file: URL",
        ),
        (
            "ssl.truststore.location=hunter2 clientId=a clientSecret=b",
            {"url": URL},
            "the login module's ssl.truststore.location cannot be used for the token endpoint. Leave them out: the",
        ),
    ],
)
def test_problems_of_the_token_endpoint(options: str, settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        oauth(options, **settings)
    assert SECRET not in str(caught.value)


def test_two_service_names_contradict() -> None:
    with pytest.raises(ConfigError, match=r"serviceName differs from option kafka\.sasl\.kerberos\.service\.name"):
        kerberos("useTicketCache=true serviceName=broker")


@pytest.mark.parametrize("config", [None, "", " \n"])
def test_without_a_jaas_config_the_error_shows_one(config: str | None) -> None:
    settings = {"sasl.mechanism": "PLAIN"} | ({} if config is None else {"sasl.jaas.config": config})
    with pytest.raises(
        ConfigError, match=rf'sasl\.jaas\.config is not set\. Set it to: {PLAIN} required username="\.\.\." pass'
    ):
        sasl_options(settings, "")


def test_without_a_mechanism_the_error_says_that_there_are_others_than_the_default() -> None:
    expected = (
        "cannot use sasl.mechanism=GSSAPI, the default: option sasl.jaas.config is not set. Set sasl.mechanism to one "
        "that the listener has, such as PLAIN or SCRAM-SHA-512. For Kerberos set sasl.jaas.config to: com.sun."
    )
    with pytest.raises(ConfigError, match=re.escape(expected)):
        sasl_options({}, "")


@pytest.mark.parametrize("config", ["env:JAAS", " file:/run/jaas.conf"])
def test_a_reference_stands_for_a_password_only(config: str) -> None:
    with pytest.raises(ConfigError, match=r"a reference may stand for a password only.*password=\"\.\.\.\";"):
        sasl_options({"sasl.mechanism": "PLAIN", "sasl.jaas.config": config}, "")


# -- secrets -----------------------------------------------------------------------------------------------------------

SHOWN = [
    read("PLAIN", PLAIN, "username=alice password=hunter2"),
    read("SCRAM-SHA-512", SCRAM, "username=alice password=hunter2 tokenauth=true"),
    read(
        "OAUTHBEARER",
        OAUTH,
        "clientId=a clientSecret=hunter2 extension_x=hunter2",
        sasl_oauthbearer_token_endpoint_url="https://user:hunter2@id.example.com/token",
    ),
    read("OAUTHBEARER", OAUTH, "unsecuredLoginStringClaim_sub=hunter2"),
    read("GSSAPI", KRB5, "serviceName=kafka useTicketCache=true"),
]


@pytest.mark.parametrize("options", SHOWN, ids=lambda options: options.mechanism)
def test_options_show_no_secret_and_travel_to_tasks(options: SaslOptions) -> None:
    assert SECRET not in f"{options} {options!r}"
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(pickle.loads(pickle.dumps(options)))


def test_any_text_is_read_or_refused_without_its_values() -> None:
    chance = random.Random(9)
    pairs = (("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("OAUTHBEARER", OAUTH), ("GSSAPI", KRB5))
    read_ones = 0
    for config in random_configs(10_000, seed=10):
        mechanism, module = chance.choice(pairs)
        wanted = chance.choice(("username", "clientId", "serviceName", "unsecuredLoginStringClaim_sub"))
        text = config.replace("org.x.Module", module).replace("name=", f"{wanted}=").replace("k=", "password=")
        text = text.replace("x", SECRET).replace("word", SECRET)
        try:
            found = sasl_options({"sasl.mechanism": mechanism, "sasl.jaas.config": text}, "")
        except ConfigError as error:
            refusal = str(error)
        else:
            assert found.mechanism == mechanism
            read_ones += 1
            continue
        assert SECRET not in refusal, text
        assert refusal.isprintable(), text
    assert 50 < read_ones < 9_000


VECTORS = Path(__file__).parents[2] / "vectors" / "sasl" / "jaas.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text().splitlines()]


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
    row = as_row(parse_jaas(f"{PLAIN} {flag.value} {written};"))
    assert row == {"module": PLAIN, "flag": flag.value, "options": options}


def test_passwords_are_secret_and_users_are_not_and_a_login_module_shows_neither() -> None:
    module = parse_jaas(f'{PLAIN} required username="alice" password="hunter2" clientSecret="x" tokenauth=true;')
    secret = {"password": Secret("hunter2"), "clientSecret": Secret("x")}
    assert module.options == {"username": "alice", "tokenauth": "true", **secret}
    assert f"{module}" == repr(module) == f"LoginModule({PLAIN}, required, username, password, clientSecret, tokenauth)"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("", "does not begin with a login module"),
        ("hunter2", "not followed by a control flag"),
        (f"{PLAIN} hunter2;", "not followed by a control flag"),
        (f'{PLAIN} required password="hunter2"', "does not end with ';'"),
        (f"{PLAIN} required a=b password=hunter2!;", "option 3 of the login module is not of the form"),
        (f"{PLAIN} required a=b keyTab=/hunter2;\n;", "option 2 of the login module has a value that is not a word"),
        (f"{PLAIN} required 5=hunter2;", "option 1 of the login module is not of the form"),
        (f'{PLAIN} required a="b"; hunter2', "text after the first ';'"),
    ],
)
def test_a_problem_names_the_place_and_no_value(config: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_jaas(config)
    assert "hunter2" not in str(caught.value)


# -- among the options of a write --------------------------------------------------------------------------------------

BY_PASSWORD = {
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{PLAIN} required username="ann" password="hunter2";',
}
BY_TOKEN = {"kafka.sasl.mechanism": "OAUTHBEARER"}


def write(protocol: str, options: dict[str, str]) -> SinkOptions:
    return parse_sink({"kafka.bootstrap.servers": "b1:9092", "kafka.security.protocol": protocol, **options})


def test_the_mechanism_and_the_login_module_give_the_credentials() -> None:
    options = write("sasl_ssl", BY_PASSWORD)
    assert options.client.security_protocol == "SASL_SSL"
    assert options.client.sasl == SaslOptions("PLAIN", "ann", Secret("hunter2"))
    assert options.client.tls is not None
    assert "hunter2" not in repr(options)
    assert options.notes == ()


def test_a_password_in_the_clear_is_warned_of() -> None:
    options = write("SASL_PLAINTEXT", BY_PASSWORD)
    assert options.client.tls is None
    assert any("with PLAIN anyone on the network can read the credentials. Use SASL_SSL" in n for n in options.notes)


def test_a_token_endpoint_without_tls_is_warned_of() -> None:
    name = "kafka.sasl.oauthbearer"
    credentials = {f"{name}.client.credentials.client.id": "me", f"{name}.client.credentials.client.secret": "s"}
    options = write("SASL_SSL", {**BY_TOKEN, **credentials, f"{name}.token.endpoint.url": "http://idp/token"})
    assert any("begins with http: anyone on the network can read the client secret" in note for note in options.notes)


@pytest.mark.parametrize(
    ("protocol", "name"),
    [("PLAINTEXT", "kafka.sasl.mechanism"), ("SSL", "kafka.sasl.mechanism"), ("SSL", "sasl.tokenProvider")],
)
def test_without_sasl_its_options_are_ignored(protocol: str, name: str) -> None:
    options = write(protocol, {name: "nonsense"})
    assert options.client.sasl is None
    assert f"ignored option {name}: kafka.security.protocol is {protocol}, which has no SASL" in options.notes


ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
SCOPE = {"kafka.sasl.oauthbearer.scope": "kafka"}
UNSECURED_JAAS = f'{OAUTH} required unsecuredLoginStringClaim_sub="ann";'


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (
            {**BY_PASSWORD, "kafka.sasl.kerberos.service.name": "kafka", "sasl.tokenProvider": "m:f", **SCOPE},
            "ignored options kafka.sasl.kerberos.service.name, kafka.sasl.oauthbearer.scope, sasl.tokenProvider: "
            "kafka.sasl.mechanism is PLAIN",
        ),
        (
            {**BY_TOKEN, "sasl.tokenProvider": "m:f", **SCOPE},
            "ignored option kafka.sasl.oauthbearer.scope: sasl.tokenProvider gives the tokens",
        ),
        (
            {**BY_TOKEN, ENDPOINT: "file:/token", **SCOPE},
            "ignored option kafka.sasl.oauthbearer.scope: the token is read from a file",
        ),
        (
            {**BY_TOKEN, "kafka.sasl.jaas.config": UNSECURED_JAAS, **SCOPE},
            "ignored option kafka.sasl.oauthbearer.scope: the token is unsecured, and no token endpoint gives it",
        ),
    ],
)
def test_options_that_the_mechanism_does_not_use_are_named(options: dict[str, str], note: str) -> None:
    assert write("SASL_SSL", options).notes == (note,)


def test_a_function_or_credentials_for_a_token_endpoint_need_no_login_module() -> None:
    options = write("SASL_SSL", {**BY_TOKEN, "sasl.tokenProvider": "my_company.tokens:for_kafka"})
    assert options.client.sasl == SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="my_company.tokens:for_kafka"))
    credentials = "kafka.sasl.oauthbearer.client.credentials.client"
    handler = f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
    others = {"kafka.sasl.oauthbearer.header.urlencode": "true", "kafka.sasl.login.callback.handler.class": handler}
    given = {ENDPOINT: URL, f"{credentials}.id": "me", f"{credentials}.secret": "s3cret", **others}
    asked = OAuthOptions(URL, "me", Secret("s3cret"), header_urlencode=True)
    assert write("SASL_SSL", {**BY_TOKEN, **given}).client.sasl == SaslOptions("OAUTHBEARER", oauth=asked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.mechanism": "SCRAM-SHA-512"}, r"spark\.kafka\.clusters\.\* passes tokens only to Java classes"),
        (
            {"sasl.tokenProvider": "m:f"},
            r"mechanism is not set, and its default is GSSAPI\. Set kafka\.sasl\.mechanism=OA",
        ),
        ({**BY_TOKEN, "sasl.tokenProvider": "no colon"}, "expected module:function, for example"),
        (
            {**BY_TOKEN, "sasl.tokenProvider": "m:f", "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp"},
            "cannot use sasl.tokenProvider together with kafka.sasl.oauthbearer.token.endpoint.url",
        ),
        ({**BY_TOKEN, "kafka.sasl.login.callback.handler.class": "com.acme.X"}, "Set kafka|set sasl.tokenProvider"),
        ({"kafka.sasl.client.callback.handler.class": "com.acme.X"}, "it names a Java class, which Python cannot run"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write("SASL_SSL", options)
