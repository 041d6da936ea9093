"""Names of librdkafka for the settings of a secured connection, which users of kcat and confluent-kafka know."""

from __future__ import annotations

from collections.abc import Mapping

_CREDENTIALS = (
    "it is librdkafka's name. Write the user and the password into 'kafka.sasl.jaas.config', as in Java: "
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
)
_TICKET = "it is librdkafka's name. Write useKeyTab=true, keyTab and principal into 'kafka.sasl.jaas.config'"
_CLIENT_FILE = (
    "it is librdkafka's name. Set 'kafka.ssl.keystore.type' to PEM, and 'kafka.ssl.keystore.location' to a file with "
    "the key and its certificates"
)
_CLIENT_PEM = (
    "it is librdkafka's name. Set 'kafka.ssl.keystore.type' to PEM, 'kafka.ssl.keystore.key' and "
    "'kafka.ssl.keystore.certificate.chain'"
)

LIBRDKAFKA_HINTS: Mapping[str, str] = {
    "kafka.sasl.username": _CREDENTIALS,
    "kafka.sasl.password": _CREDENTIALS,
    "kafka.sasl.kerberos.keytab": _TICKET,
    "kafka.sasl.kerberos.principal": _TICKET,
    "kafka.sasl.oauthbearer.method": "it is librdkafka's name. Leave it out: the token comes from where "
    "'kafka.sasl.oauthbearer.token.endpoint.url' leads",
    "kafka.ssl.ca.location": "it is librdkafka's name. Set 'kafka.ssl.truststore.type' to PEM, and "
    "'kafka.ssl.truststore.location' to the file",
    "kafka.ssl.ca.pem": "it is librdkafka's name. Set 'kafka.ssl.truststore.type' to PEM, and "
    "'kafka.ssl.truststore.certificates' to the text",
    "kafka.ssl.certificate.location": _CLIENT_FILE,
    "kafka.ssl.key.location": _CLIENT_FILE,
    "kafka.ssl.certificate.pem": _CLIENT_PEM,
    "kafka.ssl.key.pem": _CLIENT_PEM,
    "kafka.enable.ssl.certificate.verification": "it is librdkafka's name, and certificates of brokers are always "
    "verified. Add their authority to the file of 'kafka.ssl.truststore.location'",
}
"""The cause and the next step for these names, whose most similar names would mislead; keys in lower case."""
