"""Move outcome: what the completion of a move command says."""

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import Status
from ..interfaces.records import engine_outcome
from .port.payloads import ended_copy, refusal
from .tally import MoveTally, subtotal


class MoveCompletion(wiring.Component):
    """Tell when all entries of a command are over, and what came of them.

    With several row ports, refused entries are tallied by lane and copies by port, as neither
    lanes nor ports wait for one another; in the end the tallies are added up one by one.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse before each command.
    count : In(32)
        Entries of the command, stable until its outcome is taken.
    counted : In(1)
        `count` holds: high from a cycle after `start` on, or with entries that are counted while
        they come, from then on.
    refusing : In(1).array(config.row_ports)
    refused : In(refusal()).array(config.row_ports)
        Of each lane an entry that is not moved, in order of entries.
    bags : In(1)
        As of `MoveTally`.
    dropping, dropped : In
        A bag that is not written, in order of bags.
    ended : In(ended_copy()).array(config.row_ports)
        Of each port a copy that has landed or failed, in order; an entry is over with its `last`.
    outcome : Out(stream(engine_outcome(config)))
        Once per command, when every entry is refused or over.

    Timing
    ------
    With one port latency 3 cycles after the last entry that ends, 2 after one that is refused;
    with several 3 + 2 * `row_ports` cycles more.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "count": In(32),
            "counted": In(1, init=1),
            "refusing": In(1).array(config.row_ports),
            "refused": In(refusal()).array(config.row_ports),
            **({"bags": In(1), "dropping": In(1), "dropped": In(refusal())}
               if config.arithmetic else {}),
            "ended": In(ended_copy()).array(config.row_ports),
            "outcome": Out(stream.Signature(engine_outcome(config))),
        })

    def elaborate(self, platform):
        m = Module()
        out = self.outcome
        over, running, complete = Signal(32), Signal(), Signal()
        m.d.comb += complete.eq(running & self.counted & (over == self.count))
        with m.If(complete):
            m.d.sync += running.eq(0)
        if self.config.row_ports == 1:
            m.submodules.tally = tally = MoveTally()
            self._feed(m, tally, lane=0, port=0)
            m.d.comb += self._tell(tally.told)
            m.d.sync += over.eq(over + tally.refusing + tally.done)
            told = complete
        else:
            told = self._add_up(m, over, complete)
        with m.If(told):
            m.d.sync += out.valid.eq(1)
        with m.If(out.valid & out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [over.eq(0), running.eq(1)]
        return m

    def _feed(self, m, tally, lane=None, port=None):
        """Connect a tally to the refusals of a lane and the copies of a port."""
        m.d.comb += tally.start.eq(self.start)
        if lane is not None:
            m.d.comb += [
                tally.refusing.eq(self.refusing[lane]), tally.refused.eq(self.refused[lane])]
        if port is not None:
            m.d.comb += tally.ended.eq(self.ended[port])
        if port == 0 and self.config.arithmetic:  # which writes what becomes of bags
            m.d.comb += tally.bags.eq(self.bags)
            with m.If(self.bags):
                m.d.comb += [tally.refusing.eq(self.dropping), tally.refused.eq(self.dropped)]

    def _tell(self, total):
        return [self.outcome.p[name].eq(total[name]) for name in subtotal().members]

    def _add_up(self, m, over, complete):
        """Tally lanes and ports apart, and add the tallies when all is over; return when that is
        done."""
        count = 2 * self.config.row_ports
        tallies, ends = [], Signal(range(count + 2))
        for kind in ("lane", "port"):
            for number in range(self.config.row_ports):
                m.submodules[f"{kind}_{number}"] = tally = MoveTally()
                self._feed(m, tally, **{kind: number})
                tallies.append(tally)
        m.d.sync += [
            ends.eq(sum(each for tally in tallies for each in (tally.refusing, tally.done))),
            over.eq(over + ends),
        ]

        step, adds = Signal(range(count + 1)), Signal()
        part, total = Signal(subtotal()), Signal(subtotal())
        m.d.comb += self._tell(total)
        m.d.sync += part.eq(Array(tally.told.as_value() for tally in tallies)[step])
        with m.If(complete):
            m.d.sync += adds.eq(1)
        with m.If(adds):
            m.d.sync += step.eq(Mux(step == count, 0, step + 1))
            with m.If(step == count):
                m.d.sync += adds.eq(0)
            with m.If(step != 0):  # `part` is that of the cycle before
                m.d.sync += [
                    total.entries.eq(total.entries + part.entries),
                    total.bytes.eq(total.bytes + part.bytes),
                ]
                with m.If((part.status != Status.OK) & (
                        (total.status == Status.OK) | (part.error_index < total.error_index))):
                    m.d.sync += [total[name].eq(part[name])
                                 for name in ("status", "error_index", "error_address")]
        with m.If(self.start):
            m.d.sync += [ends.eq(0), total.eq(0)]
        return adds & (step == count)
