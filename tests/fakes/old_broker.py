"""A scripted broker of a release before 0.10: it hangs up on all that this release does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamgroup.kafka.net.handshake import RELEASES, BrokerRelease
from streamgroup.kafka.wire.messages.admin import ListGroupsRequest, ListGroupsResponse
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from streamgroup.kafka.wire.messages.offsets import OffsetFetchRequest, OffsetFetchResponse
from streamgroup.kafka.wire.schema import Request
from tests.fakes.answers import METADATA
from tests.fakes.broker import CLOSE, FakeBroker, Handler, OtherId

BY_NAME = {release.name: release for release in RELEASES}
COORDINATOR_NOT_AVAILABLE = 15

_PROBED: dict[type[Request[Any]], Handler] = {
    ListGroupsRequest: lambda *_: ListGroupsResponse(),
    # 0.8.2 answers for a group without a name under correlation id 0, whatever was sent.
    FindCoordinatorRequest: lambda *_: OtherId(
        FindCoordinatorResponse(error_code=COORDINATOR_NOT_AVAILABLE, port=-1), 0
    ),
    OffsetFetchRequest: lambda *_: OffsetFetchResponse(),
    MetadataRequest: lambda *_: METADATA,
}


def old_broker(start: Callable[..., FakeBroker], name: str, **handlers: Handler) -> FakeBroker:
    """A broker of the release `name` (`0.9`); `handlers` by the names of requests: `Metadata=...`."""
    release = BY_NAME[name]
    own: dict[type[Request[Any]], Handler] = {}
    for api in release.newest:
        handler = handlers.pop(api.NAME, None) or _PROBED.get(api)
        if handler is not None:
            own[api] = _within(release, api, handler)
    assert not handlers, f"Kafka {name} does not know {', '.join(handlers)}"
    return start(own)


def _within(release: BrokerRelease, api: type[Request[Any]], handler: Handler) -> Handler:
    def answer(request: Any, version: int) -> Any:
        if version > release.newest[api]:
            return CLOSE
        if request is None:  # the probe without a group's name
            return _PROBED[api](request, version)
        return handler(request, version)

    return answer
