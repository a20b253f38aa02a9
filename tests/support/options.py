"""Options of a collection, of tests that hold all arguments by name."""

from dataclasses import fields

from hotrow.torch import Options

_NAMES = {field.name for field in fields(Options)}


def grouped(**named):
    """Keyword arguments of a collection: those that are fields of `Options` become its `options`.
    """
    own = {name: value for name, value in named.items() if name in _NAMES}
    return {**{name: value for name, value in named.items() if name not in _NAMES},
            **({"options": Options(**own)} if own else {})}
