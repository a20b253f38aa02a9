"""The contents of tables whose rows several processes own."""

from ..collection.contents import TableContents
from ..memory.tables import digest_of


class ShardedContents(TableContents):
    """Whole tables, gathered from all ranks; every call but `assign` and `locate` is collective."""

    def __init__(self, sharding, ranks):
        super().__init__(sharding.spans)
        self._sharding, self._ranks = sharding, ranks

    def table(self, name):
        """Copies of one table: (weights [rows, dim], state or None), as large at every rank."""
        group, local = self.locate(name)
        rows = self._groups[group].tables.cardinalities[local]
        weights, state = self._sharding.shards[group].tables.table(local)
        return (self._gathered(weights, local, rows),
                None if state is None else self._gathered(state, local, rows))

    def assign(self, name, weights=None, state=None):
        group, local = self.locate(name)
        owned, _ = self._sharding.own(group, local)
        for here, given in zip(self._sharding.shards[group].tables.table(local), (weights, state),
                               strict=True):
            if given is not None:
                mine = given[owned]
                here[:len(mine)] = mine

    def sha256(self):
        return "-".join(
            digest_of(self.table(config.name)[part] for part in range(2)
                      for config in group.configs)
            for group in self._groups)

    def _gathered(self, part, local, rows):
        whole = part.new_empty(rows, *part.shape[1:])
        for rank, owned in enumerate(self._ranks.gather(part)):
            begin = (rank - local) % self._ranks.world
            whole[begin::self._ranks.world] = owned[:len(range(begin, rows, self._ranks.world))]
        return whole
