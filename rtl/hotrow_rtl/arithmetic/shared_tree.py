"""SharedTree: one adder tree for the partial sums of POOL and the squares of UPDATE."""

from amaranth import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from ..config import LARGEST_ROW, ArithmeticUnits
from .payloads import MAX_PARTIALS, PARTIALS_BYTES
from .reorder import sum_tag
from .tree_sum import TreePort, TreeSum, completes_pair


def square_steps(config: ArithmeticUnits) -> range:
    """The steps in which Adagrad squares the elements of the longest row."""
    return range(2 * LARGEST_ROW // 4 // config.squares)


def tree_sizes(config: ArithmeticUnits) -> tuple:
    """Parameters of `TreePort` and `TreeSum`: bags have the wider rows, squares the longer sums."""
    return (config.lanes, len(square_steps(config)), PARTIALS_BYTES // config.bus_bytes,
            sum_tag(config))


class SharedTree(wiring.Component):
    """A `TreeSum` for two clients, one at a time.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    second : In(1)
        Serve client 1, else client 0. Stable while rows are inside.
    clients : In(TreePort(*tree_sizes(config))).array(2)

    Timing
    ------
    See `TreeSum`.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "second": In(1), "clients": In(TreePort(*tree_sizes(config))).array(2)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.tree = tree = TreeSum(*tree_sizes(self.config), wide=MAX_PARTIALS)
        first, second = self.clients
        m.d.comb += [
            tree.summands.valid.eq(Mux(self.second, second.summands.valid, first.summands.valid)),
            tree.summands.p.eq(Mux(self.second, second.summands.p, first.summands.p)),
        ]
        # Timing: a client's `ready` does not depend on the payload of the other one.
        for client, served in ((first, ~self.second), (second, self.second)):
            space = tree.space.bit_select(completes_pair(client.summands.p), 1)
            m.d.comb += [client.summands.ready.eq(served & space), client.sums.p.eq(tree.sums.p)]
        m.d.comb += [
            first.sums.valid.eq(tree.sums.valid & ~self.second),
            second.sums.valid.eq(tree.sums.valid & self.second),
        ]
        return m
