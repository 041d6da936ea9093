"""The exceptions of streamgroup.

    StreamGroupError
    +-- ConfigError                 an option, a file or a combination that cannot work; never retried
    +-- TransportError              a connection failed or a deadline passed; the caller may retry
    +-- DecodeError                 bytes that do not mean what they should; never wrong rows instead
    |   +-- Truncated               the bytes end too early
    |   +-- ChecksumMismatch
    |   +-- TooLarge                a declared size is beyond its cap
    |   +-- UnsupportedCodec
    |   +-- UnsupportedMagic        a format of records that this version does not read
    +-- BrokerError                 an error code in a response
    +-- UnsupportedVersionError     the broker and we share no version of an API
    +-- FencedError                 another member has taken this one's place
    +-- DataLossError               records that should be there are gone
    +-- AuthError
    +-- OffsetStoreError

A leaf: imports nothing of ours.
"""

from __future__ import annotations


class StreamGroupError(Exception):
    """The root. The message says what happened, to which group, topic-partition and offset, and what to do next."""


class ConfigError(StreamGroupError):
    """An option, a file or a combination of them that cannot work."""


class TransportError(StreamGroupError):
    """A connection could not be made, was lost, or did not answer before its deadline."""


class DecodeError(StreamGroupError):
    """Bytes that do not mean what they should.

    Where the bytes are a record batch: `base_offset` is its first offset and `next_offset` the one that steps over it
    (None where even that cannot be told).
    """

    base_offset: int | None = None
    next_offset: int | None = None


class Truncated(DecodeError):
    """The bytes end before the value does."""


class ChecksumMismatch(DecodeError):
    """The bytes are not those that were written."""


class TooLarge(DecodeError):
    """A declared or reached size is beyond its cap."""


class UnsupportedCodec(DecodeError):
    """A compression codec that nobody knows."""


class UnsupportedMagic(DecodeError):
    """A format of records that this version does not read."""


class UnsupportedVersionError(StreamGroupError):
    """The broker and streamgroup share no version of an API."""


class FencedError(StreamGroupError):
    """Another member has taken this one's place."""


class DataLossError(StreamGroupError):
    """Records that should be there are gone."""


class AuthError(StreamGroupError):
    """The broker did not accept the credentials."""


class OffsetStoreError(StreamGroupError):
    """Offsets could not be stored or found."""
