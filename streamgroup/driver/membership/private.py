"""`group.mode=off`: the offsets of a query that no group knows of, kept in memory for as long as it runs.

The ledger commits and fetches them as a member does, and is answered here instead of by a broker. So the rules about
positions are one code in all modes; a restart finds nothing here and goes by the checkpoint alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streamgroup.group.events import Answered, Send
from streamgroup.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_VERSIONS = {OffsetCommitRequest: 8, OffsetFetchRequest: 7}
"""The shapes of the requests: topics by name, one group."""


class PrivateOffsets:
    """Answers OffsetCommit and OffsetFetch at once. Used under the coordinator's lock."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, OffsetCommitRequestPartition]] = {}
        """By topic and partition. Bounded by the partitions that the query has ever held."""

    def answer(self, send: Send) -> Answered:
        """The answer to a request of the member's. Raises ValueError for one that only a broker could answer."""
        version = _VERSIONS.get(send.api)
        if version is None:
            raise ValueError(f"{send.api.NAME} has no place in a query without a group")
        request = send.build(version)
        response: Any = self._commit(request) if isinstance(request, OffsetCommitRequest) else self._fetch()
        return Answered(send.token, response, version)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        for topic in request.topics:
            self._offsets.setdefault(topic.name, {}).update((p.partition_index, p) for p in topic.partitions)
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetCommitResponsePartition(partition_index=p.partition_index) for p in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _fetch(self) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            topics=tuple(
                OffsetFetchResponseTopic(name=name, partitions=tuple(_rows(kept)))
                for name, kept in sorted(self._offsets.items())
            )
        )


def _rows(kept: Mapping[int, OffsetCommitRequestPartition]) -> Iterable[OffsetFetchResponsePartition]:
    return (
        OffsetFetchResponsePartition(
            partition_index=partition,
            committed_offset=row.committed_offset,
            committed_leader_epoch=row.committed_leader_epoch,
            metadata=row.committed_metadata,
        )
        for partition, row in sorted(kept.items())
    )
