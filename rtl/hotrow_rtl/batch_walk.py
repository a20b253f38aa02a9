"""Batch walk: fetch the ids and lengths of a batch and name every id."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from .batch_order import batch_order, number_width, unchecked_beat
from .config import Config, log2
from .contract import BatchFlag, Status
from .dense_walker import DenseWalker
from .jagged_walker import JaggedWalker
from .layouts import Fetch, command
from .length_sum import LENGTH_BYTES, LengthSum
from .streams import Unpacker

verdict = data.StructLayout({"status": 8, "error_index": 64})


class BatchWalk(wiring.Component):
    """Lead each batch through the dense or the jagged walker.

    Parameters
    ----------
    config : Config

    Members
    -------
    command, ids, lengths, verdict
        As of `LookupReader`.
    lookups : Out(stream(unchecked_beat(config)))

    Timing
    ------
    Requests leave a cycle after the command. The lengths of a jagged batch are read twice: their
    sum must be known before any id is delivered.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "ids": Out(Fetch(config)),
            "lengths": Out(Fetch(config)),
            "verdict": Out(stream.Signature(verdict)),
            "lookups": Out(stream.Signature(unchecked_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, given = self.config, self.command.p
        m.submodules.dense = dense = DenseWalker(c)
        m.submodules.jagged = jagged = JaggedWalker(c)
        m.submodules.length_sum = length_sum = LengthSum(c)
        m.submodules.unpacker = unpacker = Unpacker(c, 16, LENGTH_BYTES)
        connect(m, jagged=jagged.lengths, unpacker=unpacker.elements)

        order, is_jagged = Signal(batch_order(c)), Signal()
        source, lengths = Signal(c.address_width), Signal(c.address_width)
        count = Signal(32)
        columns, samples, bags = Signal(number_width(c)), Signal(number_width(c)), Signal(32)
        m.d.comb += [
            self.ids.request.p.address.eq(source),
            self.ids.request.p.bytes.eq(count << Mux(order.wide, 3, 2)),
            self.lengths.request.p.address.eq(lengths),
            self.lengths.request.p.bytes.eq(bags * LENGTH_BYTES),
            dense.start.p.eq(order),
            jagged.start.p.eq(order),
            length_sum.start.p.count.eq(bags),
            unpacker.start.p.count.eq(bags),
        ]

        pending = {}  # streams that take one payload per launch, and whether they still have to

        def launch(*ports):
            m.d.sync += [pending[port].eq(1) for port in ports]

        for name, port in {
            "ids": self.ids.request, "lengths": self.lengths.request, "verdict": self.verdict,
            "dense": dense.start, "jagged": jagged.start, "sum": length_sum.start,
            "unpacker": unpacker.start,
        }.items():
            pending[name] = Signal(name=f"{name}_pending")
            m.d.comb += port.valid.eq(pending[name])
            with m.If(port.ready):
                m.d.sync += pending[name].eq(0)

        total, summing = length_sum.total, Signal()
        with m.FSM() as fsm:
            m.d.comb += summing.eq(fsm.ongoing("SUM"))
            with m.State("IDLE"):
                walkers_idle = dense.start.ready & jagged.start.ready & unpacker.start.ready
                m.d.comb += self.command.ready.eq(
                    walkers_idle & ~Cat(pending.values()).any())
                with m.If(self.command.valid & self.command.ready):
                    m.d.sync += [
                        count.eq(given.count),
                        order.wide.eq(has(given.flags, BatchFlag.ID64)),
                        order.final_ids.eq(final_ids(c, given)),
                        order.feature_major.eq(has(given.flags, BatchFlag.FEATURE_MAJOR)),
                        order.first_table.eq(given.first_table),
                        order.period.eq(Mux(has(given.flags, BatchFlag.FEATURE_MAJOR),
                                            given.samples, given.table_count)),
                        is_jagged.eq(has(given.flags, BatchFlag.JAGGED)),
                        source.eq(given.source),
                        lengths.eq(given.lengths),
                        columns.eq(given.table_count),
                        samples.eq(given.samples),
                        self.verdict.p.eq(0),
                    ]
                    with m.If(has(given.flags, BatchFlag.JAGGED)):
                        m.next = "COUNT"
                    with m.Else():
                        launch("ids", "dense", "verdict")
            with m.State("COUNT"):
                m.d.sync += bags.eq(samples * columns)
                launch("lengths", "sum")
                m.next = "SUM"
            with m.State("SUM"):
                m.d.comb += total.ready.eq(1)
                with m.If(total.valid):
                    launch("verdict")
                    with m.If(total.p.fault != 0):
                        m.d.sync += self.verdict.p.status.eq(Status.SLVERR - 1 + total.p.fault)
                    with m.Elif(total.p.sum != count):
                        m.d.sync += [
                            self.verdict.p.status.eq(Status.LOOKUPS),
                            self.verdict.p.error_index.eq(total.p.sum),
                        ]
                    with m.Else():
                        launch("lengths", "unpacker", "ids", "jagged")
                    m.next = "IDLE"

        def route(words, chosen, client):
            m.d.comb += client.p.eq(words.p)
            with m.If(chosen):
                m.d.comb += [client.valid.eq(words.valid), words.ready.eq(client.ready)]

        route(self.ids.words, ~is_jagged, dense.words)
        route(self.ids.words, is_jagged, jagged.words)
        route(self.lengths.words, summing, length_sum.words)
        route(self.lengths.words, ~summing, unpacker.words)

        for walker, chosen in ((dense, ~is_jagged), (jagged, is_jagged)):
            with m.If(chosen):
                m.d.comb += [
                    self.lookups.p.eq(walker.lookups.p),
                    self.lookups.valid.eq(walker.lookups.valid),
                    walker.lookups.ready.eq(self.lookups.ready),
                ]
        return m


def final_ids(config, command):
    """Ids in the final bus word of a batch."""
    before = (command.count - 1)[:log2(config.lanes)]
    return 1 + Mux(has(command.flags, BatchFlag.ID64), before[:-1], before)


def has(flags, flag):
    """Whether a command's flags hold that one."""
    return flags[log2(flag)]
