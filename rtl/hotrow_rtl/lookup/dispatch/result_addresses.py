"""Result addresses: where the result lists of the commands in flight are written."""

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import LIST_ALIGNMENT, Config, log2
from ...contract.encoding import Opcode
from ...interfaces.records import BATCHES_IN_FLIGHT, WriteClient
from ...primitives.ram import Ram

# The operand that is each result list of a command, by the number of the list.
LISTS_OF = {
    Opcode.SPLIT: ("slots", "popular", "nonpopular", "misses"),
    Opcode.PLAN: ("slots", "fill_slots", "victim_slots", "fills", "victims"),
    Opcode.HARVEST: (None, "destination"),
    Opcode.INSTALL: ("slots",),
    Opcode.REMOVE: ("slots",),
}
STRIPED_LIST = LISTS_OF[Opcode.SPLIT].index("misses")  # it has two writers, if any list has
# Writer `list_n` writes list n. The last one also writes blocks of the striped list.
RESULT_WRITERS = tuple(f"list_{number}" for number in range(len(LISTS_OF[Opcode.PLAN])))


def list_count(config: Config) -> int:
    """The result lists of a card's commands; a planner has one more."""
    return len(LISTS_OF[Opcode.PLAN if config.planner else Opcode.SPLIT])


def opened_lists(config: Config) -> data.StructLayout:
    """The lists that a command opens, by number, and their addresses."""
    lists = list_count(config)
    return data.StructLayout({
        "addresses": data.ArrayLayout(config.address_width, lists), "opened": lists})


class ResultAddresses(wiring.Component):
    """Give the writer of each list the addresses of its lists, in the order of commands.

    Writers are independent: one that does not accept its next address delays no other.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(stream(opened_lists(config)))
    requests : Out(request of WriteClient).array(list_count(config))
        The unit offers an address only to a writer that is ready: `ready` must not depend on
        `valid`.
    fault : In(stream)
        Number of a list of the oldest command.
    address : Out(config.address_width)
        The address of that list, in the cycle after `fault` was accepted.
    ended : In(1)
        A pulse: the oldest command has ended, and its writers accepted all its addresses.

    Timing
    ------
    A command without lists is accepted at once, any other in as many cycles as there are lists.
    The first address is offered 2 cycles later, then one every 2 cycles.
    """

    def __init__(self, config: Config):
        self.config, self.lists = config, list_count(config)
        lists = self.lists
        request = WriteClient(config).members["request"].signature
        super().__init__({
            "start": In(stream.Signature(opened_lists(config))),
            "requests": Out(request).array(lists),
            "fault": In(stream.Signature(range(lists))),
            "address": Out(config.address_width),
            "ended": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        p, align_bits, lists = self.start.p, log2(LIST_ALIGNMENT), self.lists
        m.submodules.memory = memory = Ram(
            self.config.address_width - align_bits, BATCHES_IN_FLIGHT << (lists - 1).bit_length())
        # The numbers of commands have a bit more than needed, to distinguish full and empty.
        newest, oldest = (Signal(log2(BATCHES_IN_FLIGHT) + 1, name=name)
                          for name in ("newest", "oldest"))
        opened = Array(Signal(lists, name=f"opened{number}")
                       for number in range(BATCHES_IN_FLIGHT))
        space, write_idx = Signal(), Signal(range(lists))

        def row(command, number):
            return Cat(number, command[:-1])

        m.d.comb += [
            space.eq((newest - oldest)[:len(oldest)] != BATCHES_IN_FLIGHT),
            self.start.ready.eq(space & (~p.opened.any() | (write_idx == lists - 1))),
            memory.write_enable.eq(self.start.valid & space),
            memory.write_address.eq(row(newest, write_idx)),
            memory.write_data.eq(Array(
                address[align_bits:] for address in p.addresses)[write_idx]),
        ]
        with m.If(self.start.valid & space & p.opened.any()):
            m.d.sync += write_idx.eq(write_idx + 1)
            if lists & (lists - 1):
                with m.If(write_idx == lists - 1):
                    m.d.sync += write_idx.eq(0)
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [opened[newest[:-1]].eq(p.opened), newest.eq(newest + 1)]
        with m.If(self.ended):
            m.d.sync += oldest.eq(oldest + 1)

        # Each writer walks through the commands; one writer at a time is offered an address.
        offered, granted, free = Signal(lists), Signal(lists), Signal()
        # Timing: `ready` of a writer is registered; a writer that is ready stays so.
        pending, ready_q = Signal(lists), Signal(lists)
        m.d.comb += [
            free.eq(~offered.any()),
            granted.eq(pending & -pending),
            self.fault.ready.eq(free),
            memory.read_enable.eq(free),
            self.address.eq(memory.read_data << align_bits),
        ]
        for number, request in enumerate(self.requests):
            command, has_command = Signal.like(newest, name=f"command{number}"), Signal()
            opens = opened[command[:-1]][number]
            m.d.comb += [
                has_command.eq(command != newest),
                pending[number].eq(has_command & opens & ready_q[number]),
                request.valid.eq(offered[number]),
                request.p.address.eq(self.address),
            ]
            m.d.sync += ready_q[number].eq(request.ready & ~offered[number])
            with m.If(offered[number] & request.ready):
                m.d.sync += offered.eq(0)
            with m.If(granted[number]):
                m.d.comb += memory.read_address.eq(row(command, Const(number, len(write_idx))))
            with m.If(has_command & (~opens | granted[number] & free & ~self.fault.valid)):
                m.d.sync += command.eq(command + 1)
        with m.If(self.fault.valid):
            m.d.comb += memory.read_address.eq(row(oldest, self.fault.p))
        with m.If(free):
            m.d.sync += offered.eq(Mux(self.fault.valid, 0, granted))
        return m
