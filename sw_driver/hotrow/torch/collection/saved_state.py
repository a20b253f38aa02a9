"""The tables of a collection in state dicts: rows, optimizer state and steps."""

import torch

from ...contract.errors import Error
from .table_view import TableView


class SavedState:
    """Writes tables to state dicts and loads them, up to date after `flush` of the collection.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection

    Attributes
    ----------
    allow_fewer_rows : bool
        Whether loading takes tables of fewer rows, and leaves the others as they are.
    """

    def __init__(self, collection):
        self._collection, self.allow_fewer_rows = collection, False

    def step_count(self):
        """Steps of the optimizer: int64[], or None if it depends on none."""
        step = self._collection.optimizer.param_groups[0].get("step")
        return None if step is None else torch.tensor(step)

    def put(self, destination, prefix, name, rows=None):
        """Put a table into a state dict: `weight`, `state` and, if the optimizer depends on it,
        its `step`; with the RowsParameter of a module, `weight` is as the module's."""
        weights, state = self._collection.table(name)
        if rows is not None:
            weights = TableView.of(weights, rows)
        for part, each in (("weight", weights), ("state", state)):
            if each is not None:
                destination[prefix + part] = each
        step = self.step_count()
        if step is not None:
            destination[prefix + "step"] = step

    def load(self, prefixes, state_dict, prefix, strict, missing_keys, unexpected_keys, error_msgs):
        """Load tables, by name with the prefix of their keys, as `nn.Module` loads a module.

        The state and the step of an optimizer may be absent: they stay as they are.
        """
        self._collection.reset_cache_states()
        known = {prefix + "rows"}  # of no elements, where somebody adds all parameters
        for name, of_table in prefixes.items():
            known.update(self._load_table(name, state_dict, of_table, missing_keys, error_msgs))
        if strict:
            unexpected_keys += [key for key in state_dict
                                if key.startswith(prefix) and key not in known]

    def row_states(self):
        """State of each table that has any, by name."""
        states = {config.name: self._collection.table(config.name)[1]
                  for config in self._collection.tables}
        return {name: state for name, state in states.items() if state is not None}

    def load_row_states(self, states):
        """Set the state of every table, while no slot holds a row."""
        own = self.row_states()
        if set(own) != set(states):
            raise Error(f"expected the state of tables {sorted(own)}, got {sorted(states)}")
        for name, state in states.items():
            shape, expected = list(state.shape), list(own[name].shape)
            if not self._takes(shape, expected):
                raise Error(f"the state of table {name!r} has shape {shape}, and the table's has "
                            f"{expected}")
        for name, state in states.items():
            self._collection.contents.assign(name, state=state)

    def _load_table(self, name, state_dict, prefix, missing_keys, error_msgs):
        """Load one table; return the keys that a table has."""
        collection = self._collection
        config = next(each for each in collection.tables if each.name == name)
        rows, rule = config.num_embeddings, collection.optimizer.rule
        kind, columns = rule.state, rule.columns(config.embedding_dim)
        shapes = {"weight": [rows, config.embedding_dim],
                  "state": [rows, columns] if columns else [rows]}
        if kind is None:
            del shapes["state"]
        given = {part: state_dict.get(prefix + part) for part in shapes}
        if given["weight"] is None:
            missing_keys.append(prefix + "weight")
        wrong = {part: list(each.shape) for part, each in given.items()
                 if each is not None and not self._takes(list(each.shape), shapes[part])}
        fewer = "; allow_fewer_rows of the collection takes the first rows"
        error_msgs += [f"{prefix}{part} has shape {shape}, and the table {shapes[part]}"
                       + fewer * (shape[1:] == shapes[part][1:] and shape < shapes[part])
                       for part, shape in wrong.items()]
        if len({len(each) for each in given.values() if each is not None}) > 1 and not wrong:
            error_msgs.append(f"{prefix}weight and {prefix}state have different numbers of rows")
            wrong = given
        if not wrong:
            collection.contents.assign(name, given["weight"], given.get("state"))
        if rule.counts_steps:
            shapes["step"] = []
            group = collection.optimizer.param_groups[0]
            group["step"] = int(state_dict.get(prefix + "step", group["step"]))
        return [prefix + part for part in shapes]

    def _takes(self, shape, expected):
        """Whether loading takes a tensor of that shape."""
        return shape == expected or (
            self.allow_fewer_rows and shape[1:] == expected[1:] and shape < expected)
