"""A failure of Kerberos says what to do next, and whether a retry may succeed. The codes are those of MIT's krb5.h."""

from __future__ import annotations

import pytest

from streamgroup.auth.kerberos_errors import KerberosFailure, remedy

UNKNOWN_CLIENT = -1765328378  # KRB5KDC_ERR_C_PRINCIPAL_UNKNOWN
UNKNOWN_SERVER = -1765328377  # KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN
ETYPE_NOSUPP = -1765328370
CLIENT_REVOKED = -1765328366
PREAUTH_FAILED = -1765328360
KDC_UNAVAILABLE = -1765328355  # KRB5KDC_ERR_SVC_UNAVAILABLE
NOT_YET_VALID = -1765328351  # KRB5KRB_AP_ERR_TKT_NYV
REPEAT = -1765328350
SKEW = -1765328347
CC_NOTFOUND = -1765328243
CC_END = -1765328242
KDC_UNREACHABLE = -1765328228
FCC_PERM = -1765328190
FCC_NOFILE = -1765328189
REALM_CANT_RESOLVE = -1765328164
NO_DEFAULT_REALM = -1765328160
OTHER_PRINCIPAL = 39756032  # KG_CCACHE_NOMATCH, of the GSSAPI library


def failure(code: int, *, expired: bool = False) -> KerberosFailure:
    return KerberosFailure(code, "text of the library", expired=expired)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (UNKNOWN_CLIENT, "kafka.sasl.jaas.config"),
        (UNKNOWN_SERVER, "kafka.sasl.kerberos.service.name"),
        (ETYPE_NOSUPP, "aes256-cts"),
        (CLIENT_REVOKED, "administrator of the realm"),
        (PREAUTH_FAILED, "Write the keytab anew"),
        (SKEW, "Set the clocks"),
        (KDC_UNREACHABLE, "reaches the KDC"),
        (REALM_CANT_RESOLVE, "reaches the KDC"),
        (FCC_PERM, "right to read the ticket cache"),
        (NO_DEFAULT_REALM, "Correct krb5.conf"),
        (OTHER_PRINCIPAL, "run kinit for this principal"),
    ],
)
def test_a_known_code_has_the_next_step_for_its_cause(code: int, advice: str) -> None:
    assert advice in remedy(failure(code)).next_step


@pytest.mark.parametrize("code", [0, -1765328384, 1, 2**31])
def test_an_unknown_code_asks_for_a_look_at_all_settings_and_names_the_trace_and_is_not_retried(code: int) -> None:
    found = remedy(failure(code))
    assert all(word in found.next_step for word in ("keytab", "kafka.sasl.kerberos.service.name", "KRB5_TRACE"))
    assert not found.retried


@pytest.mark.parametrize("code", [KDC_UNAVAILABLE, NOT_YET_VALID, REPEAT, KDC_UNREACHABLE, REALM_CANT_RESOLVE])
def test_a_failure_that_passes_by_itself_is_retried(code: int) -> None:
    assert remedy(failure(code)).retried


@pytest.mark.parametrize("code", [UNKNOWN_CLIENT, UNKNOWN_SERVER, PREAUTH_FAILED, SKEW, NO_DEFAULT_REALM, FCC_PERM])
def test_a_failure_that_a_person_must_correct_is_not_retried(code: int) -> None:
    assert not remedy(failure(code)).retried


@pytest.mark.parametrize("code", [CC_NOTFOUND, CC_END, FCC_NOFILE])
def test_an_empty_or_absent_ticket_cache_is_no_ticket(code: int) -> None:
    assert failure(code).no_ticket


def test_an_expired_ticket_is_no_ticket_whatever_the_code_and_other_failures_are_not_about_tickets() -> None:
    assert failure(0, expired=True).no_ticket
    assert not failure(0).no_ticket
    assert not failure(FCC_PERM).no_ticket, "there is a cache, which this process may not read"


def test_the_text_of_the_failure_is_the_text_of_the_library() -> None:
    found = failure(SKEW)
    assert (str(found), found.text, found.code) == ("text of the library", "text of the library", SKEW)
