"""The contents of a collection's tables, by name."""

from ...contract.errors import Error


class NamedTables(dict):
    """Contents of tables by name, also as attributes, as the keys of a state dict spell them."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(f"there is no table {name!r}")
        return self[name]


class TableContents:
    """Views of the tables of some groups; slots may hold later values."""

    def __init__(self, groups):
        self._groups = tuple(groups)

    def table(self, name):
        """One table: (weights [rows, dim], state or None)."""
        group, local = self.locate(name)
        return self._groups[group].tables.table(local)

    def contiguous(self, name, tensor):
        """A part of the table of that name as a contiguous tensor: itself or a copy."""
        return self._groups[self.locate(name)[0]].tables.contiguous(tensor)

    def exists(self, name):
        """Whether the table is in a file that existed."""
        group, local = self.locate(name)
        return self._groups[group].tables.has_contents(local)

    def assign(self, name, weights=None, state=None):
        """Write one table, or its first rows, while no slot holds a row of it."""
        for here, given in zip(self.table(name), (weights, state), strict=True):
            if given is not None:
                here[:len(given)].copy_(given)

    def sha256(self):
        """Digests of all rows, then of all state, group after group."""
        return "-".join(group.tables.sha256() for group in self._groups)

    def locate(self, name):
        """(group, place in the group) of the table of that name."""
        for index, group in enumerate(self._groups):
            for local, config in enumerate(group.configs):
                if config.name == name:
                    return index, local
        names = (config.name for group in self._groups for config in group.configs)
        raise Error(f"there is no table {name!r}: expected one of {', '.join(names)}")
