"""Tables of a collection by name: their contents, digests, and what is saved and loaded."""

from ...errors import Error


class CollectionState:
    """Part of `HotEmbeddingBagCollection`."""

    def table(self, name):
        """One table: (weights [rows, dim], state or None), up to date only after `flush`."""
        for group in self._groups:
            for local, config in enumerate(group.configs):
                if config.name == name:
                    return group.tables.table(local)
        raise Error(f"there is no table {name!r}: expected one of "
                    f"{', '.join(config.name for config in self.tables)}")

    def _set(self, name, weights=None, state=None):
        """Give one table other contents, while no slot holds any."""
        for here, given in zip(self.table(name), (weights, state), strict=True):
            if given is not None:
                here.copy_(given)

    def sha256(self):
        """Digests of all rows, then of all state, group after group; after `flush`."""
        return "-".join(group.tables.sha256() for group in self._groups)

    def row_states(self):
        """State of each table that has any, by name, up to date."""
        self.flush()
        states = {config.name: self.table(config.name)[1] for config in self.tables}
        return {name: state for name, state in states.items() if state is not None}

    def load_row_states(self, states):
        """Set the state of every table."""
        self.reset_cache_states()
        own = {name for name in self.row_states()}
        if own != set(states):
            raise Error(f"expected the state of tables {sorted(own)}, got {sorted(states)}")
        for name, state in states.items():
            self._set(name, state=state)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        self.flush()
        for config in self.tables:
            destination[f"{prefix}embedding_bags.{config.name}.weight"] = self.table(config.name)[0]

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected,
                              errors):
        self.reset_cache_states()
        known = set()
        for config in self.tables:
            key = f"{prefix}embedding_bags.{config.name}.weight"
            known.add(key)
            if key not in state_dict:
                missing.append(key)
                continue
            given, shape = state_dict[key], [config.num_embeddings, config.embedding_dim]
            if list(given.shape) != shape:
                errors.append(f"{key} has shape {list(given.shape)}, and the table {shape}")
            else:
                self._set(config.name, weights=given)
        if strict:
            unexpected += [key for key in state_dict if key.startswith(prefix) and key not in known]
