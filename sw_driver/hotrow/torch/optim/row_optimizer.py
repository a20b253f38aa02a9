"""`collection.optimizer`: the `torch.optim.Optimizer` of a collection's rows."""

import torch

from ...errors import Error


class RowOptimizer(torch.optim.Optimizer):
    """Applies staged gradients.

    Learning-rate schedules set `param_groups[0]["lr"]` as usual. Clip with
    `torch.nn.utils.clip_grad_norm_([*model.parameters(), *collection.gradients()], norm)`.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection
    rule : SGD, RowwiseAdagrad or Adagrad
    """

    def __init__(self, collection, rule):
        self._collection, self.rule = collection, rule
        super().__init__(list(collection.gradients()), {"lr": rule.lr})

    @torch.no_grad()
    def step(self, closure=None):
        """Apply the staged gradients and clear them.

        Raises
        ------
        Error
            A gradient is not a finite number; nothing is applied.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.rule.lr = self.param_groups[0]["lr"]
        self._collection.apply_gradients()
        return loss

    def set_learning_rate(self, lr):
        """Set the rate, by the name of FBGEMM's embeddings."""
        self.param_groups[0]["lr"] = lr

    def state_dict(self):
        """The rate, and every table's state by name."""
        return {"optimizer": self.rule.name, "lr": self.param_groups[0]["lr"],
                "state": self._collection.row_states()}

    def load_state_dict(self, state_dict):
        if state_dict["optimizer"] != self.rule.name:
            raise Error(f"this is the state of {state_dict['optimizer']!r}, and the tables train "
                        f"with {self.rule.name!r}")
        self.param_groups[0]["lr"] = state_dict["lr"]
        self._collection.load_row_states(state_dict["state"])
