"""Batch fetch: request the ids and lengths of a batch and return its unchecked lookups."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...contract.encoding import BatchFlag, Status
from ...interfaces.records import ReadClient, command
from ...primitives.skid_buffer import SkidBuffer
from .bag_sequencer import BagSequencer
from .batch_descriptor import bags_width, batch_order, chunk_bags, unchecked_word
from .length_buffer import LengthBuffer
from .length_sum import LENGTH_BYTES, LengthSum

verdict = data.StructLayout({"status": 8, "error_index": 64})


class BatchFetch(wiring.Component):
    """Request the lists of each batch, check the sum of its lengths, and sequence its bags.

    The ids of a jagged batch are requested once the sum of its lengths is known. The lengths are
    stored from the sum on; more than `config.stored_lengths` of them are fetched again.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    command, ids, lengths, verdict
        See `LookupReader`.
    lookups : Out(stream(unchecked_word(config)))

    Timing
    ------
    Requests are valid 1 cycle after the command, for lengths 2 cycles. `command.ready` rises 2
    cycles after `WordSplitter` has accepted the previous batch.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "ids": Out(ReadClient(config)),
            "lengths": Out(ReadClient(config)),
            "verdict": Out(stream.Signature(verdict)),
            "lookups": Out(stream.Signature(unchecked_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, given = self.config, self.command.p
        m.submodules.length_sum = length_sum = LengthSum(c)
        m.submodules.store = store = LengthBuffer(c)
        m.submodules.sequencer = sequencer = BagSequencer(c)
        connect(m, store=store.o, sequencer=sequencer.kept)
        connect(m, port=flipped(self.ids.words), sequencer=sequencer.ids)
        connect(m, sequencer=sequencer.lookups, lookups=flipped(self.lookups))

        order, bags = Signal(batch_order(c)), Signal(bags_width(c))
        source, lengths = Signal(c.address_width), Signal(c.address_width)
        count = Signal(c.count_width)
        columns, samples = Signal(c.table_width + 1), Signal(log2(c.batch_samples) + 1)
        m.d.comb += [
            self.ids.request.p.address.eq(source),
            self.ids.request.p.bytes.eq(count << Mux(order.wide, 3, 2)),
            self.lengths.request.p.address.eq(lengths),
            self.lengths.request.p.bytes.eq(bags * LENGTH_BYTES),
            length_sum.start.p.count.eq(bags),
        ]

        pending = {}  # by stream, whether its payload of this launch is still to be accepted

        def launch(*ports):
            m.d.sync += [pending[port].eq(1) for port in ports]

        orders = ("chunks", "owners", "words")
        for name, port in {
            "ids": self.ids.request, "lengths": self.lengths.request, "verdict": self.verdict,
            "sum": length_sum.start, **{name: getattr(sequencer, name) for name in orders},
        }.items():
            pending[name] = Signal(name=f"{name}_pending")
            m.d.comb += port.valid.eq(pending[name])
            if name in orders:
                m.d.comb += port.p.eq(order)
            with m.If(port.ready):
                m.d.sync += pending[name].eq(0)

        m.d.sync += [store.keep.eq(0), store.drop.eq(0)]
        total = length_sum.total
        found, matches, accepted = Signal.like(total.p), Signal(), Signal()
        m.d.comb += accepted.eq(matches & (found.fault == 0))
        idle = Signal()  # Timing: registered, as it enables the registers of the command
        with m.If(idle):
            m.d.sync += self.verdict.p.eq(0)
        with m.FSM() as fsm:
            m.d.sync += idle.eq(fsm.ongoing("IDLE") & ~Cat(pending.values()).any())
            with m.State("IDLE"):
                m.d.comb += self.command.ready.eq(idle)
                with m.If(self.command.valid & self.command.ready):
                    m.d.sync += [
                        count.eq(given.count),
                        bags.eq(given.count),
                        order.wide.eq(has(given.flags, BatchFlag.ID64)),
                        order.final_ids.eq(final_ids(c, given)),
                        order.jagged.eq(has(given.flags, BatchFlag.JAGGED)),
                        order.feature_major.eq(has(given.flags, BatchFlag.FEATURE_MAJOR)),
                        order.first_table.eq(given.first_table),
                        order.period.eq(Mux(has(given.flags, BatchFlag.FEATURE_MAJOR),
                                            given.samples, given.table_count)),
                        source.eq(given.source),
                        lengths.eq(given.lengths),
                        columns.eq(given.table_count),
                        samples.eq(given.samples),
                    ]
                    m.next = "COUNT"
                    with m.If(has(given.flags, BatchFlag.JAGGED)):
                        m.next = "MULTIPLY"
                    with m.Else():
                        launch("ids", "verdict")
            with m.State("MULTIPLY"):
                m.d.sync += bags.eq(samples * columns)
                launch("lengths", "sum")
                m.next = "COUNT"
            with m.State("COUNT"):
                per_word, above = c.word_lanes, log2(c.word_lanes)
                m.d.sync += [
                    order.chunks.eq((bags + (chunk_bags(c) - 1)) >> log2(chunk_bags(c))),
                    order.last_bag.eq(bags - 1),
                    order.words.eq(Mux(order.wide, (count + (per_word // 2 - 1)) >> (above - 1),
                                       (count + (per_word - 1)) >> above)),
                    order.kept.eq(order.jagged & (bags <= c.stored_lengths)),
                ]
                m.next = "SUM"
                with m.If(~order.jagged):
                    launch(*orders)
                    m.next = "IDLE"
            with m.State("SUM"):
                m.d.comb += total.ready.eq(1)
                m.d.sync += [found.eq(total.p), matches.eq(total.p.sum == count)]
                with m.If(total.valid):
                    m.next = "VERDICT"
            with m.State("VERDICT"):
                launch("verdict")
                m.d.sync += [store.keep.eq(order.kept & accepted), store.drop.eq(~accepted)]
                with m.If(accepted):
                    launch("ids", *orders)
                    with m.If(~order.kept):
                        launch("lengths")
                with m.Elif(found.fault != 0):
                    m.d.sync += self.verdict.p.status.eq(Status.SLVERR - 1 + found.fault)
                with m.Else():
                    m.d.sync += [
                        self.verdict.p.status.eq(Status.LOOKUPS),
                        self.verdict.p.error_index.eq(found.sum),
                    ]
                m.next = "IDLE"

        # A list of lengths is the sequencer's, or is summed and, if it fits, stored.
        # Timing: a buffer ends the path from the `ready` of all three to the read port.
        summed = length_sum.words
        m.submodules.skid = skid = SkidBuffer(self.lengths.words.p.shape())
        connect(m, flipped(self.lengths.words), skid.i)
        word = skid.o.p
        m.d.comb += [
            sequencer.fetched.p.eq(word),
            summed.p.eq(word),
            store.i.p.data.eq(word.data),
        ]
        with m.If(sequencer.fetches):
            m.d.comb += [
                sequencer.fetched.valid.eq(skid.o.valid),
                skid.o.ready.eq(sequencer.fetched.ready),
            ]
        with m.Else():
            m.d.comb += [
                summed.valid.eq(skid.o.valid & (store.i.ready | ~order.kept)),
                store.i.valid.eq(skid.o.valid & summed.ready & order.kept),
                skid.o.ready.eq(summed.ready & (store.i.ready | ~order.kept)),
            ]
        return m


def final_ids(config, command):
    """Return the number of ids in the final bus word of a batch."""
    before = (command.count - 1)[:log2(config.word_lanes)]
    return 1 + Mux(has(command.flags, BatchFlag.ID64), before[:-1], before)


def has(flags, flag):
    """Return whether a flag is set in the flags of a command."""
    return flags[log2(flag)]
