"""The options of SASL (`sasl.*`) as frozen values: the mechanism and the credentials in `sasl.jaas.config`.

Names and meanings are those of Java's client. Three differences:

- `password` and `clientSecret` may be references, `env:NAME` or `file:/path`, which are resolved when a connection
  opens.
- A login module must be the one of the mechanism. Java accepts some others by accident.
- `sasl.jaas.config` must be set. The JVM's JAAS file (`java.security.auth.login.config`) is not read.

As in Java, options of a login module that are not named here have no effect. Those of Krb5LoginModule that have one in
Java alone are `storeKey`, `doNotPrompt`, `refreshKrb5Config` and `renewTGT`: MIT's library needs none of them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.options.secrets import Secret, is_reference, is_secret

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
"""Java's default of `sasl.mechanism`."""

TOKEN_PROVIDER = "sasl.tokenProvider"
"""The option for a function that returns tokens. Java has no such option, so it has no prefix."""

TOKEN_MANAGER = "spark.kafka.clusters."
"""The beginning of the settings of the manager of delegation tokens in Spark's Kafka connector."""
TOKEN_MANAGER_HINT = (
    "Spark passes these delegation tokens only to Java classes, so a source in Python never sees them. Leave the "
    "settings out, and write the id and the HMAC of a token into 'kafka.sasl.jaas.config', with tokenauth=true"
)
TOKEN_MANAGER_HINTS = {TOKEN_MANAGER + "*": TOKEN_MANAGER_HINT}

Pairs = tuple[tuple[str, str], ...]

_JAAS = "sasl.jaas.config"
_MECHANISM = "sasl.mechanism"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_OAUTH = "sasl.oauthbearer."
_SERVICE = "sasl.kerberos.service.name"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_SCHEMES = ("https", "http", "file")
_SCHEMES_OF = {"ClientCredentialsJwtRetriever": ("https", "http"), "FileJwtRetriever": ("file",)}
"""The schemes of the URL that a class of Kafka's reads, if not all."""
_UNSECURED = "unsecuredLogin"
_SHADED = "kafkashaded."
"""The prefix of Kafka's classes on Databricks. Users copy such configurations."""


@frozen
class OAuthOptions:
    """How to get a token for OAUTHBEARER: from a token endpoint, a file or a function, or unsecured for tests."""

    token_endpoint_url: str = field(default="", repr=False)
    """`https:` or `http:` for the grant type client_credentials, `file:` for a file with the token. Empty if the token
    is unsecured."""
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str = ""
    """The scope to request; empty for none."""
    extensions: Pairs = field(default=(), repr=False)
    """Names and values that the client sends with the token (KIP-342)."""
    header_urlencode: bool = False
    """Whether client id and secret are percent-encoded for the endpoint, as RFC 6749 says."""
    provider: str = ""
    """`module:function` that returns a token, or a token and its end in milliseconds since 1970. Empty for none."""
    unsecured_claims: Pairs = field(default=(), repr=False)
    """The claims of an unsecured token, among them `sub`. Empty if there is a token endpoint."""
    unsecured_lifetime_s: int = 3_600


@frozen
class KerberosOptions:
    """Where GSSAPI gets its ticket: from a keytab or from a ticket cache."""

    service_name: str
    """The primary of the brokers' principals: `kafka` in `kafka/broker-1.example.com@EXAMPLE.COM`."""
    principal: str = ""
    """The client's principal; empty for that of the ticket cache."""
    use_keytab: bool = False
    keytab: str = ""
    """The path of the keytab; empty for the default client keytab of krb5.conf."""
    use_ticket_cache: bool = False
    ticket_cache: str = ""
    """The path of the ticket cache; empty for the default of krb5.conf."""


@frozen
class SaslOptions:
    """The SASL mechanism and its credentials.

    `username` and `password` are set for PLAIN and SCRAM, `oauth` for OAUTHBEARER, `kerberos` for GSSAPI.
    """

    mechanism: str
    username: str = ""
    password: Secret | None = None
    token_auth: bool = False
    """SCRAM: whether `username` is the id of a delegation token and `password` its HMAC."""
    oauth: OAuthOptions | None = None
    kerberos: KerberosOptions | None = None

    @property
    def shows_client_secret(self) -> bool:
        """Return whether the connection to the token endpoint shows the client secret to an eavesdropper."""
        return self.oauth is not None and self.oauth.token_endpoint_url.startswith("http:")

    @property
    def sends_secret(self) -> bool:
        """Return whether an eavesdropper can reuse the credentials that the client sends."""
        return self.mechanism in (PLAIN, OAUTHBEARER)


def without_effect(options: SaslOptions, given: Iterable[str], prefix: str) -> dict[str, list[str]]:
    """Return the names in `given` that `options` do not use, by the reason."""
    unused: dict[str, list[str]] = {}
    for name in sorted(given):
        key = name.removeprefix(prefix)
        is_of_oauth = key.startswith(_OAUTH) or name == TOKEN_PROVIDER
        if (is_of_oauth and options.oauth is None) or (key == _SERVICE and options.kerberos is None):
            unused.setdefault(f"{prefix}{_MECHANISM} is {options.mechanism}", []).append(name)
        elif options.oauth is not None and key.startswith(_OAUTH) and key != _ENDPOINT:
            if options.oauth.provider:
                unused.setdefault(f"{TOKEN_PROVIDER} gives the tokens", []).append(name)
            elif options.oauth.token_endpoint_url.startswith("file:"):
                unused.setdefault("the token is read from a file", []).append(name)
            elif not options.oauth.token_endpoint_url:
                unused.setdefault("the token is unsecured, and no token endpoint gives it", []).append(name)
    return unused


def sasl_options(settings: Mapping[str, str], prefix: str, token_provider: str = "") -> SaslOptions:
    """Return the options of SASL among `settings`, whose names begin with `prefix`: `kafka.` for Spark's options.

    `token_provider` is the function that returns tokens for OAUTHBEARER, empty for none. Raises ConfigError, which
    names the option to write and shows no value.
    """
    if token_provider.strip() and f"{prefix}{_MECHANISM}" not in settings:
        raise ConfigError(
            f"cannot use {TOKEN_PROVIDER}: option {prefix}{_MECHANISM} is not set, and its default is {GSSAPI}. Set "
            f"{prefix}{_MECHANISM}={OAUTHBEARER}"
        )
    mechanism = settings.get(f"{prefix}{_MECHANISM}", GSSAPI).strip()
    if mechanism not in _MECHANISMS:
        raise ConfigError(
            f"invalid value for option {prefix}{_MECHANISM}: expected one of {', '.join(_MECHANISMS)}. Set one that "
            "the brokers have in sasl.enabled.mechanisms"
        )
    classes, build = _MECHANISMS[mechanism]
    config = settings.get(f"{prefix}{_JAAS}", "")
    if mechanism == OAUTHBEARER and not config.strip():
        config = f"{classes[0]} required;"  # the credentials are in options of their own
    example = f"{classes[0]} required {_EXAMPLES[mechanism]};"
    is_default = f"{prefix}{_MECHANISM}" not in settings
    chosen = f"{prefix}{_MECHANISM}={mechanism}" + (", the default" if is_default else "")
    if not config.strip():
        others = f"{prefix}{_MECHANISM} to one that the listener has, such as {PLAIN} or {SCRAM[-1]}. For Kerberos set "
        raise ConfigError(
            f"cannot use {chosen}: option {prefix}{_JAAS} is not set. Set "
            + (f"{others}{prefix}{_JAAS}" if is_default else "it")
            + f" to: {example} (Spark's spark.kafka.clusters.* passes tokens only to Java classes, so a source in "
            "Python never sees them)"
        )
    if is_reference(config.strip()):
        raise ConfigError(
            f"invalid value for option {prefix}{_JAAS}: a reference may stand for a password only, not for the whole "
            f"value. Set it to, for example: {example}"
        )
    try:
        module = parse_jaas(config)
    except ValueError as error:
        raise ConfigError(f"invalid value for option {prefix}{_JAAS}: {error}") from None
    if module.name.removeprefix(_SHADED) not in classes:
        raise ConfigError(
            f"invalid value for option {prefix}{_JAAS}: its login module does not fit {chosen}, which "
            f"needs {' or '.join(classes)}. Correct one of the two options"
        )
    return build(_Source(settings, prefix, mechanism, module, token_provider.strip()))


@dataclass(frozen=True, slots=True, repr=False)
class _Source:
    """Looks up values: in the options of the login module, and in the other settings."""

    settings: Mapping[str, str]
    prefix: str
    mechanism: str
    module: LoginModule
    provider: str

    def option(self, name: str) -> str:
        """Return an option of the login module, empty if it is missing."""
        value = self.module.options.get(name, "")
        return value.value if isinstance(value, Secret) else value

    def switch(self, name: str) -> bool:
        """Return whether an option of the login module is true, as Java reads it."""
        return self.option(name).lower() == "true"

    def setting(self, name: str) -> str:
        """Return a setting without the spaces around it, empty if it is missing."""
        return self.settings.get(self.prefix + name, "").strip()

    def starting_with(self, start: str) -> Pairs:
        """Return names, without `start`, and values of the options of the login module that begin with it."""
        names = sorted(name for name in self.module.options if name.startswith(start))
        return tuple((name.removeprefix(start), self.option(name)) for name in names)

    def missing(self, text: str) -> ConfigError:
        """Return the error of an option of the login module that is missing. `text` is what to write there."""
        return self.invalid(f"the login module has no {text.partition('=')[0]}", f"Write {text}")

    def invalid(self, cause: str, next_step: str) -> ConfigError:
        return ConfigError(f"invalid value for option {self.prefix}{_JAAS}: {cause}. {next_step}")


def _plain(source: _Source) -> SaslOptions:
    username, password = source.option("username"), source.option("password")
    if not username:
        raise source.missing('username="..."')
    if not password:
        raise source.missing('password="..."')
    return SaslOptions(source.mechanism, username, Secret(password))


def _scram(source: _Source) -> SaslOptions:
    return dataclasses.replace(_plain(source), token_auth=source.switch("tokenauth"))


def _oauth(source: _Source) -> SaslOptions:
    if source.provider:
        return SaslOptions(source.mechanism, oauth=_from_provider(source, source.provider))
    url = source.setting(_ENDPOINT)
    unsecured = any(name.startswith(_UNSECURED) for name in source.module.options)
    if bool(url) == unsecured:
        raise ConfigError(
            f"cannot get a token for {source.prefix}{_MECHANISM}=OAUTHBEARER: "
            + (
                f"both {source.prefix}{_ENDPOINT} and options {_UNSECURED}... are set. Remove the latter"
                if unsecured
                else f"option {source.prefix}{_ENDPOINT} is not set. Set it to the URL of the token endpoint"
            )
        )
    return SaslOptions(source.mechanism, oauth=_unsecured(source) if unsecured else _from_endpoint(source, url))


def _from_provider(source: _Source, provider: str) -> OAuthOptions:
    module, _, function = provider.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(
            f"invalid value for option {TOKEN_PROVIDER}: expected module:function, for example "
            "my_company.tokens:for_kafka"
        )
    if source.setting(_ENDPOINT):
        raise ConfigError(
            f"cannot use {TOKEN_PROVIDER} together with {source.prefix}{_ENDPOINT}. Remove one of the two"
        )
    return OAuthOptions(provider=provider, extensions=source.starting_with("extension_"))


def _from_endpoint(source: _Source, url: str) -> OAuthOptions:
    extensions = source.starting_with("extension_")
    try:
        parts = urlsplit(url)
        scheme = parts.scheme if parts.port is None or parts.port else ""  # a bad port raises ValueError
    except ValueError:
        scheme = ""
    retriever = source.setting(_RETRIEVER)
    if scheme in _SCHEMES and scheme not in _SCHEMES_OF.get(retriever, _SCHEMES):
        raise ConfigError(
            f"cannot use {source.prefix}{_RETRIEVER}={retriever} with a {scheme}: URL in {source.prefix}{_ENDPOINT}. "
            "Remove the class: the URL decides"
        )
    if scheme == "file":
        return OAuthOptions(url, extensions=extensions)
    if scheme not in _SCHEMES:
        raise ConfigError(
            f"invalid value for option {source.prefix}{_ENDPOINT}: expected a URL of https:, http: or file:. Set the "
            "URL of the token endpoint, or of a file with the token"
        )
    tls = sorted(name for name in source.module.options if name.startswith("ssl."))
    if tls:
        raise source.invalid(
            f"the login module's {', '.join(tls)} cannot be used for the token endpoint",
            "Leave them out: the client trusts the system's authorities and kafka.ssl.truststore.*",
        )
    # Since Kafka 4.1 these options take precedence over those of the login module.
    credentials = "sasl.oauthbearer.client.credentials.client"
    client_id = source.setting(f"{credentials}.id") or source.option("clientId").strip()
    secret = source.setting(f"{credentials}.secret") or source.option("clientSecret").strip()
    if not client_id or not secret:
        name, word = ("secret", "clientSecret") if client_id else ("id", "clientId")
        raise ConfigError(
            f"cannot get a token from {source.prefix}{_ENDPOINT}: the client {name} is not set. Set "
            f'{source.prefix}{credentials}.{name}, or write {word}="..." in {source.prefix}{_JAAS}'
        )
    scope = source.setting("sasl.oauthbearer.scope") or source.option("scope").strip()
    encodes = source.setting("sasl.oauthbearer.header.urlencode").lower() == "true"
    return OAuthOptions(url, client_id, Secret(secret), scope, extensions, header_urlencode=encodes)


def _unsecured(source: _Source) -> OAuthOptions:
    claims = source.starting_with(f"{_UNSECURED}StringClaim_")
    for name in source.module.options:
        if name.startswith((f"{_UNSECURED}NumberClaim_", f"{_UNSECURED}ListClaim_", f"{_UNSECURED}PrincipalClaimName")):
            raise source.invalid(
                "an unsecured token has string claims only, and the principal is its claim 'sub'",
                f"Remove the other options {_UNSECURED}...",
            )
    if not dict(claims).get("sub"):
        raise source.missing(f'{_UNSECURED}StringClaim_sub="..."')
    lifetime = source.option(f"{_UNSECURED}LifetimeSeconds") or str(OAuthOptions().unsecured_lifetime_s)
    if not (lifetime.isascii() and lifetime.isdigit() and len(lifetime) <= 9 and int(lifetime)):
        raise source.invalid(
            f"{_UNSECURED}LifetimeSeconds is not a positive number of seconds",
            f'Write {_UNSECURED}LifetimeSeconds="3600"',
        )
    return OAuthOptions(
        extensions=source.starting_with(f"{_UNSECURED}Extension_"),
        unsecured_claims=claims,
        unsecured_lifetime_s=int(lifetime),
    )


def _kerberos(source: _Source) -> SaslOptions:
    services = {source.option("serviceName"), source.setting(_SERVICE)} - {""}
    if len(services) > 1:
        raise source.invalid(f"serviceName differs from option {source.prefix}{_SERVICE}", "Remove one of the two")
    if not services:
        raise ConfigError(
            f"cannot use {source.prefix}{_MECHANISM}=GSSAPI: option {source.prefix}{_SERVICE} is not set. Set it to "
            "the primary of the brokers' principals, mostly 'kafka'"
        )
    keytab, cache, principal = source.option("keyTab"), source.option("ticketCache"), source.option("principal").strip()
    use_keytab, use_cache = source.switch("useKeyTab"), source.switch("useTicketCache")
    if not (use_keytab or use_cache):
        raise source.invalid(
            "the login module uses neither a keytab nor a ticket cache, and the client cannot prompt for a password",
            'Write useKeyTab=true keyTab="/path" principal="...", or useTicketCache=true',
        )
    for path, used, name, switch in (
        (keytab, use_keytab, "keyTab", "useKeyTab"),
        (cache, use_cache, "ticketCache", "useTicketCache"),
    ):
        if path and not used:
            raise source.invalid(f"{name} has no effect without {switch}", f"Write {switch}=true, or remove {name}")
    if use_keytab and not principal:
        raise source.missing('principal="..."')
    kerberos = KerberosOptions(services.pop(), principal, use_keytab, keytab, use_cache, cache)
    return SaslOptions(source.mechanism, kerberos=kerberos)


_KAFKA = "org.apache.kafka.common.security"
_Build = Callable[[_Source], SaslOptions]
_MECHANISMS: Mapping[str, tuple[tuple[str, ...], _Build]] = {
    PLAIN: ((f"{_KAFKA}.plain.PlainLoginModule",), _plain),
    **dict.fromkeys(SCRAM, ((f"{_KAFKA}.scram.ScramLoginModule",), _scram)),
    OAUTHBEARER: ((f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule",), _oauth),
    GSSAPI: (
        ("com.sun.security.auth.module.Krb5LoginModule", "com.ibm.security.auth.module.Krb5LoginModule"),
        _kerberos,
    ),
}
_EXAMPLES = {
    **dict.fromkeys((PLAIN, *SCRAM), 'username="..." password="..."'),
    OAUTHBEARER: 'clientId="..." clientSecret="..."',
    GSSAPI: 'useKeyTab=true keyTab="/path" principal="..."',
}


_SPACE = r"[\x00-\x20]+|/\*[\s\S]*?(?:\*/|\Z)|/[^\n\r]*"
_WORD = r"[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\-\u00a0-\U0010ffff]*"
_TOKEN = re.compile(
    rf"(?P<space>{_SPACE})|(?P<word>{_WORD})|(?P<sign>[=;])"
    r"""|"(?P<double>(?:\\[\s\S]|[^"\\\n\r])*)"?|'(?P<single>(?:\\[\s\S]|[^'\\\n\r])*)'?|(?P<other>[\s\S])"""
)
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<character>[\s\S]))")
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SHOWN_AS_IT_IS = "tokenauth"
"""The one option that is_secret() takes for a secret and that is a switch."""


class ControlFlag(Enum):
    """The control flag of a login module. With one module, all of them mean the same."""

    REQUIRED = "required"
    REQUISITE = "requisite"
    SUFFICIENT = "sufficient"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """One entry of a JAAS configuration: the class of the module and its options. Its `repr` hides all values."""

    name: str
    control_flag: ControlFlag
    options: Mapping[str, str | Secret]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {self.control_flag.value}, {', '.join(self.options)})"


def parse_jaas(text: str) -> LoginModule:
    """Return the only login module of `text`.

    Raises ValueError with the cause, which contains no value of an option: a user who forgets a quote moves the
    password to any place.
    """
    tokens = _tokens(text)
    module = _module(next(tokens, None), tokens)
    if next(tokens, None) is not None:
        raise ValueError("it has text after the first ';'. Write exactly one login module, and quote values with ';'")
    return module


@frozen
class _Token:
    """A token of a JAAS text: a word, a quoted text, or one of the signs `=` and `;`.

    `text` is None for a sign and an unexpected character.
    """

    text: str | None
    sign: str = ""


def _tokens(config: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(config):
        match match.lastgroup:
            case "space":
                continue
            case "word":
                yield _Token(match[0])
            case "double" | "single":
                yield _Token(_ESCAPE.sub(_unescaped, match[match.lastgroup]))
            case _:
                yield _Token(None, match[0])


def _unescaped(match: re.Match[str]) -> str:
    if match["octal"] is not None:
        return chr(int(match["octal"], 8))
    return _CONTROL.get(match["character"], match["character"])


def _module(first: _Token | None, tokens: Iterator[_Token]) -> LoginModule:
    if first is None or not first.text:
        raise ValueError("it does not begin with a login module. Begin it with the module's class name")
    flag = _flag(next(tokens, None))
    options: dict[str, str | Secret] = {}
    for token in tokens:
        if token.sign == ";":
            return LoginModule(first.text, flag, options)
        equals, value = next(tokens, None), next(tokens, None)
        place = f"option {len(options) + 1} of the login module"
        if token.text is None or equals is None or equals.sign != "=":
            raise ValueError(f'{place} is not of the form name="value". Put values in double quotes')
        if value is None or value.text is None:
            raise ValueError(f"{place} has a value that is not a word. Put it in double quotes")
        hidden = is_secret(token.text) and token.text != _SHOWN_AS_IT_IS
        options[token.text] = Secret(value.text) if hidden else value.text
    raise ValueError("the login module does not end with ';'. Write ';' after its last option, and close all quotes")


def _flag(token: _Token | None) -> ControlFlag:
    words = {flag.name: flag for flag in ControlFlag}
    if token is None or token.text is None or token.text.upper() not in words:
        raise ValueError("the login module is not followed by a control flag. Write 'required' after its class name")
    return words[token.text.upper()]
