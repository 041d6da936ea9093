"""The errors of Kerberos: the cause of each code, the next step, and whether a retry may succeed."""

from __future__ import annotations

from dataclasses import dataclass


class KerberosFailure(Exception):
    """A call of the Kerberos library has failed.

    `code` is the error of MIT's library (`krb5.h`), 0 if there is none. `text` has no key. `expired` is true if the
    ticket has ended.
    """

    def __init__(self, code: int, text: str, *, expired: bool = False) -> None:
        super().__init__(text)
        self.code, self.text, self.expired = code, text, expired

    @property
    def no_ticket(self) -> bool:
        """True if the client has no valid ticket: none at all, or an expired one."""
        return self.expired or self.code in _NO_TICKET


@dataclass(frozen=True, slots=True)
class Remedy:
    """The next step after a failure. `retried` is true if the same call may succeed later."""

    next_step: str
    retried: bool = False


_BASE = -1_765_328_384
"""The code of error 0 of the Kerberos protocol (RFC 4120, section 7.5.9); the library's own errors follow from 128."""

_OTHER_PRINCIPAL = 39_756_032
"""KG_CCACHE_NOMATCH: the ticket cache is of another principal than the one that was asked for."""
_NO_TICKET = frozenset((_BASE + 141, _BASE + 142, _BASE + 195))
"""KRB5_CC_NOTFOUND, KRB5_CC_END, KRB5_FCC_NOFILE."""

_CLOCKS = "Set the clocks of this machine, of the KDC and of the brokers by one time server (NTP)"
_NEW_KEYTAB = "Write the keytab anew with the present key: kadmin's ktadd, or ktpass for Active Directory"
_ADMINISTRATOR = "Ask the administrator of the realm to enable the principal again"
_REACH_KDC = (
    "Check that this machine reaches the KDC that krb5.conf names for the realm; KRB5_CONFIG names another krb5.conf"
)
_KRB5_CONF = "Correct krb5.conf, or name another one by the environment variable KRB5_CONFIG"
_ENCRYPTION = "Give the principals keys of a type that client, brokers and KDC allow, such as aes256-cts"

_REMEDIES = {
    _BASE + 1: Remedy(_ADMINISTRATOR),  # the client's entry has expired
    _BASE + 6: Remedy("Correct principal in kafka.sasl.jaas.config, or create the principal in the realm"),
    _BASE + 7: Remedy(  # the KDC does not know the broker's principal
        "Correct kafka.sasl.kerberos.service.name. Brokers must be reached by the host name in their principal: "
        "compare kafka.bootstrap.servers, advertised.listeners, and rdns and dns_canonicalize_hostname in krb5.conf"
    ),
    _BASE + 14: Remedy(_ENCRYPTION),
    _BASE + 18: Remedy(_ADMINISTRATOR),
    _BASE + 23: Remedy(_ADMINISTRATOR),  # the key has expired
    _BASE + 24: Remedy(_NEW_KEYTAB),  # preauthentication failed
    _BASE + 29: Remedy("The KDC is not available now. A retry may succeed", retried=True),
    _BASE + 31: Remedy(_NEW_KEYTAB),  # the integrity check failed
    _BASE + 33: Remedy(_CLOCKS, retried=True),  # the ticket is not valid yet
    _BASE + 34: Remedy("A retry may succeed", retried=True),  # the request is a repeat, as two at one moment look
    _BASE + 37: Remedy(_CLOCKS),
    _BASE + 135: Remedy(_KRB5_CONF),
    _BASE + 136: Remedy(_KRB5_CONF),
    _BASE + 148: Remedy(_CLOCKS),  # the clock of the KDC differs
    _BASE + 154: Remedy(_KRB5_CONF),  # no KDC is known for the realm
    _BASE + 156: Remedy(_REACH_KDC, retried=True),
    _BASE + 194: Remedy("Give this process the right to read the ticket cache"),
    _BASE + 210: Remedy(_NEW_KEYTAB),  # preauthentication failed, as the library says it
    _BASE + 217: Remedy(_KRB5_CONF),  # no realm is known for the host
    _BASE + 220: Remedy(_REACH_KDC, retried=True),  # the name of the KDC does not resolve
    _BASE + 224: Remedy(_KRB5_CONF),  # no default realm
    _BASE + 237: Remedy(_ENCRYPTION),
    _OTHER_PRINCIPAL: Remedy("Correct principal in kafka.sasl.jaas.config, or run kinit for this principal"),
}
_UNKNOWN = Remedy(
    "Check the ticket or the keytab, kafka.sasl.kerberos.service.name and krb5.conf. The environment variable "
    "KRB5_TRACE names a file for the steps of the library"
)


def remedy(failure: KerberosFailure) -> Remedy:
    """Return what to do about a failure."""
    return _REMEDIES.get(failure.code, _UNKNOWN)
