"""A session with a ZooKeeper that commands ask and change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from streamgroup.znodes import Create, Operation, Subtree, ZNode
from streamgroup.zookeeper.client import RefusedError
from tests.fakes.nodes import NodeTree, Refused


class FakeSession:
    """A session over a tree of nodes. `before` runs between the read and the first transaction."""

    where = "ZooKeeper zk1:2181"

    def __init__(self, values: Mapping[str, str], before: Callable[[NodeTree], object] = lambda _: None) -> None:
        self.tree = NodeTree.of({path.rstrip("/"): value for path, value in values.items()})
        self.before = before
        self.transactions = 0

    def read(self, subtrees: Collection[Subtree], deadline: float) -> dict[str, ZNode]:
        assert not any(subtree.watch for subtree in subtrees), "a command looks once"
        return self.tree.read(subtrees)

    def transact(self, operations: Sequence[Operation], ensured: Iterable[str], deadline: float) -> None:
        if not self.transactions:
            self.before(self.tree)
        self.transactions += 1
        for path in ensured:
            steps = path.split("/")
            for depth in range(2, len(steps) + 1):
                if (above := "/".join(steps[:depth])) not in self.tree:
                    self.tree.transact([Create(above)])
        try:
            self.tree.transact(operations)
        except Refused as refused:
            raise RefusedError(refused.path, refused.refusal, self.where, operations) from None

    def paths(self) -> set[str]:
        return set(self.tree.read([Subtree("/consumers", 9, watch=False)]))

    def data(self, path: str) -> bytes:
        node = self.tree.get(path)
        assert node is not None
        return node.data
