"""Result addresses: where the lists of the commands under way go, in one memory."""

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import LIST_ALIGNMENT, Config, log2
from ...interfaces.records import WriteClient
from ...primitives.ram import Ram

LISTS = ("slots", "popular", "nonpopular", "misses")  # in the order of the operands
# The operands of a PLAN by the same numbers: the writers of a SPLIT's lists write these.
PLAN_LISTS = ("slots", "fill_slots", "victim_slots", "fills", "victims")
COMMANDS = 4  # that may be under way, a power of two


def lists_of(config: Config) -> tuple[str, ...]:
    """The lists of a card's commands; a planner's are one more."""
    return (*LISTS, "victims") if config.planner else LISTS


def opened_lists(config: Config) -> data.StructLayout:
    """Where the lists of a command go, by number in `lists_of(config)`, and which it has."""
    lists = len(lists_of(config))
    return data.StructLayout({
        "addresses": data.ArrayLayout(config.address_width, lists), "opened": lists})


class ResultAddresses(wiring.Component):
    """Give each list's writer the addresses of its lists in the order of commands.

    A writer that does not take its next address keeps no other from theirs.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(stream(opened_lists(config)))
    requests : Out(request of WriteClient).array(len(lists_of(config)))
        An address is offered to a writer that is ready, whose `ready` must not depend on `valid`.
    fault : In(stream)
        The number of a list of the oldest command.
    address : Out
        Where that list goes, in the cycle after `fault` was taken.
    ended : In(1)
        A pulse: the oldest command is over, its addresses have all been taken.

    Timing
    ------
    A command without lists is taken at once, another in as many cycles as there are lists. The
    first address is offered 2 cycles after, one every 2 cycles.
    """

    def __init__(self, config: Config):
        self.config, self.lists = config, lists_of(config)
        lists = self.lists
        request = WriteClient(config).members["request"].signature
        super().__init__({
            "start": In(stream.Signature(opened_lists(config))),
            "requests": Out(request).array(len(lists)),
            "fault": In(stream.Signature(range(len(lists)))),
            "address": Out(config.address_width),
            "ended": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        given, aligned, lists = self.start.p, log2(LIST_ALIGNMENT), len(self.lists)
        m.submodules.memory = memory = Ram(
            self.config.address_width - aligned, COMMANDS << (lists - 1).bit_length())
        # Commands by number; one bit more tells a full memory from an empty one.
        following, oldest = (Signal(log2(COMMANDS) + 1, name=name)
                             for name in ("following", "oldest"))
        opened = Array(Signal(lists, name=f"opened{number}") for number in range(COMMANDS))
        room, written = Signal(), Signal(range(lists))

        def row(command, number):
            return Cat(number, command[:-1])

        m.d.comb += [
            room.eq((following - oldest)[:len(oldest)] != COMMANDS),
            self.start.ready.eq(room & (~given.opened.any() | (written == lists - 1))),
            memory.write_enable.eq(self.start.valid & room),
            memory.write_address.eq(row(following, written)),
            memory.write_data.eq(Array(
                address[aligned:] for address in given.addresses)[written]),
        ]
        with m.If(self.start.valid & room & given.opened.any()):
            m.d.sync += written.eq(written + 1)
            if lists & (lists - 1):
                with m.If(written == lists - 1):
                    m.d.sync += written.eq(0)
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [opened[following[:-1]].eq(given.opened), following.eq(following + 1)]
        with m.If(self.ended):
            m.d.sync += oldest.eq(oldest + 1)

        # Every writer goes from command to command; who is offered an address, one at a time.
        offered, first, free = Signal(lists), Signal(lists), Signal()
        # Those that waited for one in the cycle before, and so still do: that they do comes late.
        wants, waits = Signal(lists), Signal(lists)
        m.d.comb += [
            free.eq(~offered.any()),
            first.eq(wants & -wants),
            self.fault.ready.eq(free),
            memory.read_enable.eq(free),
            self.address.eq(memory.read_data << aligned),
        ]
        for number, request in enumerate(self.requests):
            command, behind = Signal.like(following, name=f"command{number}"), Signal()
            has = opened[command[:-1]][number]
            m.d.comb += [
                behind.eq(command != following),
                wants[number].eq(behind & has & waits[number]),
                request.valid.eq(offered[number]),
                request.p.address.eq(self.address),
            ]
            m.d.sync += waits[number].eq(request.ready & ~offered[number])
            with m.If(offered[number] & request.ready):
                m.d.sync += offered.eq(0)
            with m.If(first[number]):
                m.d.comb += memory.read_address.eq(row(command, Const(number, len(written))))
            with m.If(behind & (~has | first[number] & free & ~self.fault.valid)):
                m.d.sync += command.eq(command + 1)
        with m.If(self.fault.valid):
            m.d.comb += memory.read_address.eq(row(oldest, self.fault.p))
        with m.If(free):
            m.d.sync += offered.eq(Mux(self.fault.valid, 0, first))
        return m
