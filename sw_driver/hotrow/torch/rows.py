"""Embedding rows with their optimizer state."""


class Rows:
    """An array of rows and, beside it, their state.

    Parameters
    ----------
    weights : float32[R, D]
    state : float32[R] or None
    """

    def __init__(self, weights, state=None):
        self.weights, self.state = weights, state

    def read(self, at):
        """(weights float32[u, D], state float32[u] or None) of rows int64[u]."""
        return self.weights[at], None if self.state is None else self.state[at]

    def write(self, at, weights, state=None):
        """Set rows int64[u], and their state where there is any."""
        self.weights[at] = weights
        if self.state is not None:
            self.state[at] = state

    def copy(self):
        return Rows(self.weights.clone(), None if self.state is None else self.state.clone())
