"""Access counters: which rows of which tables are used most, counted exactly as they pass."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from ..config import Config
from ..contract.encoding import AllFlag, Opcode
from ..interfaces.lookup_payloads import amount_width, count_answer, count_request
from ..lookup.banks.bank_pipe import bank_crossbar
from ..lookup.combiner.bank_request import BankRequestStage
from ..lookup.combiner.combiner import Combiner
from ..lookup.counters.bank import CounterBank
from ..lookup.counters.scan_engine import ScanEngine
from ..primitives.bits import add_up
from ..primitives.shared_module import shared_instance

BATCHES = 255  # inside at the same time, at most


class ScanOp(enum.Enum, shape=2):
    """What a command does with all counts."""

    HARVEST = 0  # send the rows with the highest counts
    DECAY = 1  # shift every count right
    CLEAR = 2  # set every count to zero


def row_beat(config: Config) -> data.StructLayout:
    """The lookups of one cycle, in order of lanes; `last` on the final beat of a batch."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(data.StructLayout({
            "row": config.row_width, "table": config.table_width, "present": 1}), config.lanes),
        "last": 1,
    })


# How many lookups a batch had, and how many of them were of a row with a count before.
batch_report = data.StructLayout({"lookups": 32, "hits": 32})

# HARVEST: at most `count` entries (0 acts as 1) of at least `threshold` (likewise). DECAY: `shift`
# binary places.
scan_command = data.StructLayout({"op": ScanOp, "count": 32, "threshold": 32, "shift": 6})


def counted_row(config: Config) -> data.StructLayout:
    """An entry of a harvest; the `last` one is absent (`present` low) if there is none."""
    return data.StructLayout({
        "row": config.row_width, "table": config.table_width, "count": config.counter_bits,
        "present": 1, "last": 1})


# The command has ended; a harvest has sent `entries`.
scan_report = data.StructLayout({"entries": 32})


class AccessCounters(wiring.Component):
    """Count the rows of a stream of lookups, and list those with the highest counts.

    Lookups of a row that are close together are combined; each row is hashed to a bank, and the
    banks count in parallel. See `CounterBank` for which rows keep a counter.

    Batches and commands do not overlap: a command waits until the batches inside are counted, and
    the next batch waits for its end. A command goes before a batch that has not begun.

    Parameters
    ----------
    config : Config
        Without a planner. `counter_sets`, `counter_ways`, `counter_bits`, `lanes`, `lane_banks`,
        `tables` and `window_beats` matter.

    Attributes
    ----------
    lookups : In(stream(row_beat(config)))
        Beats of the same batch may have gaps, in which lookups wait inside.
    reports : Out(stream(batch_report))
        One per batch, in order.
    commands : In(stream(scan_command))
    harvested : Out(stream(counted_row(config)))
        The entries of a HARVEST, in the order of sets and ways, through the `last` one.
    ended : Out(stream(scan_report))
        One per command.
    restart : In(1)
        A pulse drops batches and commands inside; counts that are written stay.
    ready : Out(1)
        Low while the counts are cleared, `counter_sets` / banks cycles after reset; lookups and
        commands then wait.

    Timing
    ------
    One beat a cycle while no two beats within the distance of `CounterBank` use the same set, and
    no bank has more than one request of a beat. Commands as in `ScanEngine`.
    """

    def __init__(self, config: Config):
        if config.planner:
            raise ValueError("the access counters stand alone: planner must be False")
        self.config = config
        super().__init__({
            "lookups": In(stream.Signature(row_beat(config))),
            "reports": Out(stream.Signature(batch_report)),
            "commands": In(stream.Signature(scan_command)),
            "harvested": Out(stream.Signature(counted_row(config))),
            "ended": Out(stream.Signature(scan_report)),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        lane = data.StructLayout({"owner": 1, "amount": amount_width(c)})
        kept = data.StructLayout({"lanes": data.ArrayLayout(lane, c.lanes), "last": 1})
        m.submodules.combiner = combiner = Combiner(c)
        m.submodules.requests = requests = BankRequestStage(c)
        m.submodules.crossbar = crossbar = bank_crossbar(
            c, kept, count_request(c), 1, count_answer(c))  # no field that all lanes share
        m.submodules.scan = scan = ScanEngine(c)
        banks = [CounterBank(c) for _ in range(c.banks)]
        for unit in (combiner, requests, crossbar, scan, *banks):
            m.d.comb += unit.restart.eq(self.restart)

        # Lookups to banks.
        beat, tagged = self.lookups, combiner.beats
        accept = self._take_turns(m, scan)
        m.d.comb += [
            tagged.valid.eq(beat.valid & accept),
            beat.ready.eq(tagged.ready & accept),
            tagged.p.counts.eq(1),
            tagged.p.beat.last.eq(beat.p.last),
        ]
        for lookup, into in zip(beat.p.lanes, tagged.p.beat.lanes, strict=True):
            m.d.comb += [into.present.eq(lookup.present), into.key.row.eq(lookup.row),
                         into.key.table.eq(lookup.table)]
        connect(m, combiner=combiner.combined, requests=requests.combined)
        asked, into = requests.beats, crossbar.beats
        m.d.comb += [into.valid.eq(asked.valid), asked.ready.eq(into.ready),
                     into.p.carried.last.eq(asked.p.carried.last)]
        for request, waiting, lane, kept in zip(
                asked.p.lanes, asked.p.carried.lanes, into.p.lanes, into.p.carried.lanes,
                strict=True):
            m.d.comb += [
                lane.valid.eq(request.valid), lane.bank.eq(request.bank),
                lane.request.bank_key.eq(request.request.bank_key),
                lane.request.amount.eq(request.request.amount),
                kept.owner.eq(waiting.owner), kept.amount.eq(waiting.amount)]
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = shared_instance(platform, bank)
            port = crossbar.requests[number]
            m.d.comb += [
                bank.requests.valid.eq(port.valid),
                port.ready.eq(bank.requests.ready),
                bank.requests.p.eq(port.p),
                bank.clear.eq(scan.clear),
            ]
            connect(m, bank=bank.answers, crossbar=crossbar.answers[number])
            connect(m, scan=scan.banks[number], bank=bank.scan)
        m.d.comb += [self.ready.eq(banks[0].ready), scan.cleared.eq(self.ready)]  # as all banks
        self._report(m, crossbar.answered)

        # Harvests.
        entry, out = scan.harvested, self.harvested
        m.d.comb += [
            out.valid.eq(entry.valid), entry.ready.eq(out.ready),
            out.p.present.eq(entry.p.present), out.p.last.eq(entry.p.last),
            *(out.p[name].eq(entry.p.value[name]) for name in ("row", "table", "count"))]
        return m

    def _take_turns(self, m, scan):
        """Let batches or a command pass, never both; return whether lookups are accepted."""
        command, into = self.commands, scan.command
        m.d.comb += [
            into.p.opcode.eq(Mux(command.p.op == ScanOp.HARVEST, Opcode.HARVEST, Opcode.DECAY)),
            into.p.flags.eq(Mux(command.p.op == ScanOp.CLEAR, AllFlag.ALL, 0)),
            into.p.count.eq(Mux(command.p.count == 0, 1, command.p.count)),
            into.p.threshold.eq(command.p.threshold),
            into.p.shift.eq(command.p.shift),
            self.ended.p.entries.eq(scan.outcome.p.entries),
        ]
        fire, ends = Signal(), Signal()
        within, within_next = Signal(), Signal()  # a batch has begun and not ended
        inside = Signal(range(BATCHES + 1))  # batches that have ended, without a report
        reported = Signal()
        m.d.comb += [
            fire.eq(self.lookups.valid & self.lookups.ready),
            ends.eq(fire & self.lookups.p.last),
            within_next.eq(Mux(fire, ~self.lookups.p.last, within)),
            reported.eq(self.reports.valid & self.reports.ready),
        ]
        m.d.sync += [within.eq(within_next), inside.eq(inside + ends - reported)]
        counting = Signal()
        with m.FSM():
            with m.State("COUNT"):
                m.d.comb += counting.eq(1)
                with m.If(command.valid & ~within_next):
                    m.next = "DRAIN"
                with m.If(self.restart):
                    m.next = "COUNT"
            with m.State("DRAIN"):
                with m.If(inside == 0):
                    m.next = "SCAN"
                with m.If(self.restart):
                    m.next = "COUNT"
            with m.State("SCAN"):
                m.d.comb += [
                    into.valid.eq(command.valid), command.ready.eq(into.ready),
                    self.ended.valid.eq(scan.outcome.valid),
                    scan.outcome.ready.eq(self.ended.ready)]
                with m.If(self.restart
                          | self.ended.valid & self.ended.ready & ~command.valid):
                    m.next = "COUNT"
        with m.If(self.restart):
            m.d.sync += [within.eq(0), inside.eq(0)]
        return counting & (within | ~command.valid) & self.ready & (inside != BATCHES)

    def _report(self, m, answered):
        """Add up the lookups and hits of each batch."""
        c, report = self.config, self.reports
        width = (c.lanes * (c.window_beats + 1)).bit_length()
        stall, take = Signal(), Signal()
        m.d.comb += [
            stall.eq(report.valid & ~report.ready),
            answered.ready.eq(~stall),
            take.eq(answered.valid & ~stall),
        ]
        served, hits = ([Signal(width, name=f"{name}{number}") for number in range(c.lanes)]
                        for name in ("served", "hit"))
        for number, lane in enumerate(answered.p.carried.lanes):
            m.d.comb += [
                served[number].eq(Mux(lane.owner, lane.amount, 0)),
                hits[number].eq(served[number]
                                - (lane.owner & ~answered.p.answers[number].counted)),
            ]
        total = Signal(batch_report)
        next_total = Signal.like(total)
        m.d.comb += [next_total.lookups.eq(total.lookups + add_up(served)),
                     next_total.hits.eq(total.hits + add_up(hits))]
        with m.If(report.ready):
            m.d.sync += report.valid.eq(0)
        with m.If(take):
            m.d.sync += total.eq(next_total)
            with m.If(answered.p.carried.last):
                m.d.sync += [total.eq(0), report.valid.eq(1), report.p.eq(next_total)]
        with m.If(self.restart):
            m.d.sync += [total.eq(0), report.valid.eq(0)]
