"""MoveCompletion: the outcome of a move command."""

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import Status
from ..interfaces.records import engine_outcome
from .outcome_accumulator import OutcomeAccumulator, partial_outcome
from .port.payloads import finished_transfer, refusal


class MoveCompletion(wiring.Component):
    """Return the outcome of a command when all its entries have ended.

    With several row ports every lane and every port has an accumulator of its own, because lanes
    and ports run independently; the accumulators are summed when the command has ended.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    count : In(32)
        Entries of the command, valid with `counted` and stable until the outcome's handshake.
    counted : In(1)
        High from the cycle after `start`; for bags, which are counted while they come, from the
        last bag.
    refused, refused_valid : In, array of config.row_ports
        A pulse per entry that a lane does not move, in order of entries.
    bags : In(1)
        See `OutcomeAccumulator`.
    dropped, dropped_valid : In, array of config.bag_units
        A pulse per bag of each unit that is not written, in order of bags.
    finished : In(finished_transfer()).array(config.row_ports)
        A transfer of each port that has landed or failed, in order; an entry ends with its `last`.
    outcome : Out(stream(engine_outcome(config)))
        One per command.

    Timing
    ------
    With one port latency 3 cycles from the last finished transfer, 2 from the last refusal; with
    several ports 2 + 2 * `row_ports` cycles more.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "count": In(32),
            "counted": In(1, init=1),
            "refused_valid": In(1).array(config.row_ports),
            "refused": In(refusal()).array(config.row_ports),
            **({"bags": In(1), **self._dropped(config)} if config.arithmetic else {}),
            "finished": In(finished_transfer()).array(config.row_ports),
            "outcome": Out(stream.Signature(engine_outcome(config))),
        })

    @staticmethod
    def _dropped(config):
        valid, dropped = In(1), In(refusal())
        if config.bag_units > 1:
            valid, dropped = valid.array(config.bag_units), dropped.array(config.bag_units)
        return {"dropped_valid": valid, "dropped": dropped}

    def elaborate(self, platform):
        m = Module()
        out = self.outcome
        ended_count, running, complete = Signal(32), Signal(), Signal()
        m.d.comb += complete.eq(running & self.counted & (ended_count == self.count))
        with m.If(complete):
            m.d.sync += running.eq(0)
        if self.config.row_ports == 1:
            m.submodules.accumulator = accumulator = OutcomeAccumulator()
            self._connect(m, accumulator, lane=0, port=0)
            m.d.comb += self._output(accumulator.total)
            m.d.sync += ended_count.eq(
                ended_count + accumulator.refused_valid + accumulator.entry_done)
            out_valid = complete
        else:
            out_valid = self._sum(m, ended_count, complete)
        with m.If(out_valid):
            m.d.sync += out.valid.eq(1)
        with m.If(out.valid & out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [ended_count.eq(0), running.eq(1)]
        return m

    def _connect(self, m, accumulator, lane=None, port=None):
        """Connect an accumulator to the refusals of a lane and the transfers of a port."""
        m.d.comb += accumulator.start.eq(self.start)
        if lane is not None:
            m.d.comb += [accumulator.refused_valid.eq(self.refused_valid[lane]),
                         accumulator.refused.eq(self.refused[lane])]
        if port is not None:
            m.d.comb += accumulator.finished.eq(self.finished[port])
        if self.config.bag_units > 1:  # any port writes a bag
            m.d.comb += accumulator.bags.eq(self.bags)
            if lane is not None and lane < self.config.bag_units:
                with m.If(self.bags):
                    m.d.comb += [accumulator.refused_valid.eq(self.dropped_valid[lane]),
                                 accumulator.refused.eq(self.dropped[lane])]
        elif port == 0 and self.config.arithmetic:  # port 0 writes the bags
            m.d.comb += accumulator.bags.eq(self.bags)
            with m.If(self.bags):
                m.d.comb += [accumulator.refused_valid.eq(self.dropped_valid),
                             accumulator.refused.eq(self.dropped)]

    def _output(self, total):
        return [self.outcome.p[name].eq(total[name]) for name in partial_outcome().members]

    def _sum(self, m, ended_count, complete):
        """One accumulator per lane and port, summed after `complete`. Return a signal that is high
        when the sum is ready."""
        count, ordered = 2 * self.config.row_ports, self.config.bag_units > 1
        accumulators, ended = [], Signal(range(count + 2))
        for kind in ("lane", "port"):
            for number in range(self.config.row_ports):
                m.submodules[f"{kind}_{number}"] = accumulator = OutcomeAccumulator(ordered)
                self._connect(m, accumulator, **{kind: number})
                accumulators.append(accumulator)
        m.d.sync += [
            ended.eq(sum(each for accumulator in accumulators
                         for each in (accumulator.refused_valid, accumulator.entry_done))),
            ended_count.eq(ended_count + ended),
        ]

        step, summing = Signal(range(count + 1)), Signal()
        part, total = Signal(partial_outcome()), Signal(partial_outcome())
        m.d.comb += self._output(total)
        m.d.sync += part.eq(
            Array(accumulator.total.as_value() for accumulator in accumulators)[step])
        # Bags without rows share their list position with the next bag: the bags are compared.
        position, earliest = part.error_index, total.error_index
        if ordered:
            position, earliest = Signal(32), Signal(32)
            m.d.sync += position.eq(Array(each.index for each in accumulators)[step])
        with m.If(complete):
            m.d.sync += summing.eq(1)
        with m.If(summing):
            m.d.sync += step.eq(Mux(step == count, 0, step + 1))
            with m.If(step == count):
                m.d.sync += summing.eq(0)
            with m.If(step != 0):  # `part` is the accumulator of the previous step
                m.d.sync += [
                    total.entries.eq(total.entries + part.entries),
                    total.bytes.eq(total.bytes + part.bytes),
                ]
                with m.If((part.status != Status.OK) & (
                        (total.status == Status.OK) | (position < earliest))):
                    m.d.sync += [total[name].eq(part[name])
                                 for name in ("status", "error_index", "error_address")]
                    if ordered:
                        m.d.sync += earliest.eq(position)
        with m.If(self.start):
            m.d.sync += [ended.eq(0), total.eq(0)]
        return summing & (step == count)
