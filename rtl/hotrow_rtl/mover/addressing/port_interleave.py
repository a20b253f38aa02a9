"""The row port that carries a row, by the row's address.

Consecutive blocks of `PORT_INTERLEAVE` bytes go to consecutive ports, as with the channels of a
memory. Higher address bits are folded onto the lowest bits of the block number, so that rows at a
power-of-two stride spread over all ports, too. The folds have unequal distances: equal distances,
as in the parity of all bits, repeat themselves at strides such as 5 * 256 bytes. Of 100,000 rows at
any stride up to 4 KiB no port gets 2 % more than its share.
"""

from functools import reduce
from operator import xor

from ...config import PORT_INTERLEAVE, Config, log2

FOLDS = (0, 4, 9, 15, 22)


def row_port(config: Config, address):
    """Return the number of the port that carries a row.

    Parameters
    ----------
    config : Config
    address : int, integer array or Value
        Byte address of the row in its table.

    Returns
    -------
    Same type as `address`. A Value has at least `log2(row_ports)` bits; the upper bits are zero.
    """
    low = log2(PORT_INTERLEAVE)
    return reduce(xor, (address >> low + fold for fold in FOLDS)) & config.row_ports - 1
