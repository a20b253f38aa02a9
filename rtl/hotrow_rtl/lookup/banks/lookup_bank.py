"""Lookup bank: counters, directory and miss table of the rows of one bank, asked at once."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import DirectoryOp, bank_answer, bank_request
from ...primitives.bits import delay
from ..counters.bank import CounterBank
from ..counters.set_layout import ScanPort, scanned_entry
from ..directory.bank import DirectoryBank
from ..hashing.row_location import counter_place
from ..splitter.miss_table import MissTableBank
from .hazard_distance import near


class LookupBank(wiring.Component):
    """Count a row, find its slot, and if it has none its place among the misses.

    Parameters
    ----------
    config : Config

    Members
    -------
    requests : In(stream(bank_request(config)))
    answers : Out(stream(bank_answer(config), always_ready=True))
        One per request, in order.
    scan : In(ScanPort(config))
        Of the counters; only while nothing is inside.
    clear_counts, clear_slots, clear_misses : In(1)
        A pulse empties one of the three; only while nothing is inside.
    restart : In(1)
        A pulse forgets the requests in flight; what they have not written yet they never do.
    ready : Out(1)
        Low while a memory is being cleared; requests then wait.

    Timing
    ------
    One request a cycle. Two of the same set of the counters or of the miss table are at least
    `distance` cycles apart, and the next is `DirectoryBank.edit_cycles` behind an edit. The answer
    comes `latency` cycles after the request, or as much later as that had to wait.
    """

    latency = 1 + DirectoryBank.latency  # wait, and ask: the miss table answers in the same cycle
    distance = CounterBank.distance

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "requests": In(stream.Signature(bank_request(config))),
            "answers": Out(stream.Signature(bank_answer(config), always_ready=True)),
            "scan": In(ScanPort(config)),
            "clear_counts": In(1),
            "clear_slots": In(1),
            "clear_misses": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.counts = counts = CounterBank(c, spaced=True)
        m.submodules.directory = directory = DirectoryBank(c)
        m.submodules.misses = misses = MissTableBank(c)
        for unit, clear in ((counts, self.clear_counts), (directory, self.clear_slots),
                            (misses, self.clear_misses)):
            m.d.comb += [unit.restart.eq(self.restart), unit.clear.eq(clear)]

        # A request waits in a register. When it gets there it is known how many cycles it must, for
        # those of its sets that entered before: bit n is set if one did n cycles before, and those
        # shift out with time.
        waits = Signal()
        request = Signal(bank_request(c), reset_less=True)
        taken = Signal()
        m.d.comb += [
            self.ready.eq(counts.ready & directory.ready & misses.ready),
            self.requests.ready.eq(~waits | taken),
        ]
        recent = [
            near(m, "count", self.distance, counter_place(c, self.requests.p.bank_key)[0],
                 self.requests.p.amount != 0, counter_place(c, request.bank_key)[0],
                 taken & (request.amount != 0)),
            near(m, "miss", self.distance, self.requests.p.bank_key[:log2(c.miss_sets)],
                 self.requests.p.miss, request.bank_key[:log2(c.miss_sets)], taken & request.miss),
        ]
        # Decided a cycle ahead: no memory is being cleared, nothing holds the request.
        hold, awake, free = Signal(self.distance - 1), Signal(), Signal(init=1)
        clears = self.clear_counts | self.clear_slots | self.clear_misses
        m.d.comb += taken.eq(waits & free & awake & ~directory.busy)
        m.d.sync += [
            awake.eq(self.ready & ~clears),
            hold.eq(hold << 1),
            free.eq(~hold[:-1].any()),
        ]
        with m.If(self.requests.ready):
            m.d.sync += [
                waits.eq(self.requests.valid),
                request.eq(self.requests.p),
                hold.eq(recent[0] | recent[1]),
                free.eq(~(recent[0] | recent[1]).any()),
            ]

        # All three know when they answer; the two that are sooner wait for the directory. A row
        # with a slot does not enter the miss table, which is told with its answer.
        asked = self.latency - 1  # cycles from there to the answer
        valid = Signal(asked)
        m.d.sync += valid.eq(Cat(taken, valid))
        sooner = asked - MissTableBank.latency
        asks_misses = delay(m, request.miss & taken, sooner, "asks_misses")[-1]
        rest = delay(m, request.bank_key, sooner, "bank_key")[-1]
        epoch = delay(m, request.epoch, sooner, "epoch")[-1]
        counted = delay(
            m, counts.answers.p.counted, asked - CounterBank.latency, "counted")[-1]
        told, found = self.answers.p.as_value(), directory.answer.as_value()
        at = directory.answer.shape()["slot"].offset
        head, place = found[:at], found[at:]
        m.d.comb += [
            counts.requests.valid.eq(taken & (request.amount != 0)),
            counts.requests.p.bank_key.eq(request.bank_key),
            counts.requests.p.amount.eq(request.amount),
            directory.enter.eq(taken & (request.search | (request.op != DirectoryOp.FIND))),
            directory.request.eq(request),
            misses.enter.eq(asks_misses),
            misses.drop.eq(directory.answer.placed),
            misses.bank_key.eq(rest),
            misses.epoch.eq(epoch),
            self.answers.valid.eq(valid[-1] & ~self.restart),
            # As in `bank_answer`: a slot, or what the miss table says. Part by part, as a port
            # that is one `Cat` would be named otherwise in every bank.
            told[0].eq(counted),
            told[1:1 + len(head)].eq(head),
            told[1 + len(head):].eq(
                Mux(directory.answer.placed, place, misses.answer.as_value())),
        ]
        with m.If(self.restart):
            m.d.sync += [waits.eq(0), valid.eq(0)]
        for field in ("active", "enable", "halve", "set", "ways", "complement"):
            m.d.comb += getattr(counts.scan, field).eq(getattr(self.scan, field))
        for field, _ in scanned_entry(c):
            m.d.comb += self.scan.entry[field].eq(counts.scan.entry[field])
        return m
