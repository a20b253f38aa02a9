"""Row steering: which row port carries a row of a table, by its address.

Ports take turns every `PORT_INTERLEAVE` bytes, as channels of a memory do. Higher bits of the
address are folded onto the lowest of the interleave, so that rows at a power of two from one
another still spread over all ports. The folds lie at unequal distances: with equal ones, as in the
parity of all bits, a stride such as 5 * 256 bytes repeats itself in them. Of 100,000 rows at any
stride up to 4 KiB no port gets 2 % more than its share.
"""

from functools import reduce
from operator import xor

from ...config import PORT_INTERLEAVE, Config, log2

FOLDS = (0, 4, 9, 15, 22)


def row_port(config: Config, address):
    """Number of the port that carries a row.

    Parameters
    ----------
    config : Config
    address : int, integer array or Value
        Byte address of the row's first byte in its table.

    Returns
    -------
    As `address`; as a Value it is at least `log2(row_ports)` wide, and zero above.
    """
    low = log2(PORT_INTERLEAVE)
    return reduce(xor, (address >> low + fold for fold in FOLDS)) & config.row_ports - 1
