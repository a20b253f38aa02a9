"""What `torch.distributed.checkpoint` sees of the optimizer of a collection's rows.

Its `get_state_dict` names the parameters of an optimizer by the model's. The dense optimizer has
the model's `rows`, too, and loading merges the options of all optimizers with one name: so those of
the rows are one value with a key of its own. The state of rows is in the model's state dict.
"""

from ...contract.errors import Error

_MODULE = "torch.distributed.checkpoint.state_dict"
_KEY = "collection"


def called_by_it(frame):
    """Whether a frame is one of its functions."""
    return frame.f_globals.get("__name__") == _MODULE


def group_of(shown, options):
    """A parameter group with the options of the rows as one value."""
    return {"params": shown, _KEY: options}


def check_call(frame, optimizer, shown):
    """Check the other optimizers of the call that a frame belongs to.

    Raises
    ------
    Error
        One that has the rows of this one comes later, or the dict is to be a full one, which has
        one set of options for all optimizers of a parameter.
    """
    optimizers, info = list(frame.f_locals.get("optimizers", ())), frame.f_locals.get("info")
    if getattr(info, "full_state_dict", False):
        raise Error("with full_state_dict=True torch.distributed.checkpoint mixes the options of "
                    "optimizers: give it the others, and save collection.optimizer.state_dict()")
    if optimizer not in optimizers:
        return
    rows = {id(each) for each in shown}
    for each in optimizers[optimizers.index(optimizer) + 1:]:
        if any(id(parameter) in rows for group in each.param_groups
               for parameter in group["params"]):
            raise Error("give torch.distributed.checkpoint collection.optimizer after the other "
                        f"optimizers: {type(each).__name__} would replace its options")


def options_of(state_dict):
    """The options in the optimizer's part of a saved state dict."""
    groups = state_dict.get("param_groups") or [{}]
    if _KEY not in groups[-1]:
        raise Error("this state dict of torch.distributed.checkpoint has no options of the "
                    "collection's optimizer: give get_state_dict and set_state_dict both the "
                    "dense optimizers and, after them, collection.optimizer")
    return groups[-1][_KEY]
