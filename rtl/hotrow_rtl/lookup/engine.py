"""The engines behind the lookup queue, wired together."""

from amaranth import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import NUMBER_BEATS, Config, log2
from ..contract.encoding import HARVEST_ENTRY_BYTES, ROW_ENTRY_BYTES
from ..interfaces.lookup_payloads import (
    DirectoryOp,
    bank_answer,
    beat_request,
    row_request,
    waiting_beat,
)
from ..interfaces.records import Engine, ReadClient, WriteClient, harvest_entry, table_update
from ..interfaces.retirement import Retirement
from ..lists.lane_packer import LanePacker
from ..lists.striped_writer import Element, StripedWriter
from ..lists.wide_packer import list_packer
from ..primitives.fifo import RamFifo
from ..primitives.replicated_register import replicated
from ..primitives.shared_module import shared_instance
from ..primitives.skid_buffer import SkidBuffer
from ..primitives.stream_routing import (
    fork,
    stream_connect,
    stream_demux,
    stream_mux,
    stream_resize,
)
from .banks.crossbar import BankCrossbar
from .banks.lookup_bank import LookupBank
from .combiner.bank_request import BankRequestStage
from .combiner.batch_tagger import BatchTagger, batch_kind
from .combiner.combiner import Combiner
from .counters.scan_engine import ScanEngine
from .directory.install_remove import InstallRemove
from .dispatch.control import LookupControl
from .dispatch.in_flight import DEPOSITS, UNDER_WAY
from .dispatch.result_addresses import lists_of
from .planner.plan_lists import PlanLists
from .planner.sequencer import PlanSequencer
from .planner.window import PlanWindow
from .reader.reader import LookupReader
from .splitter.batch_statistics import BatchStatistics
from .splitter.cold_sample_bitmap import ColdSampleBitmap
from .splitter.miss_number_bank import MissNumberBank, number_lane, number_shared
from .splitter.miss_numbering import MissNumbering, split_beat
from .splitter.slot_words import SlotWords


class LookupEngine(wiring.Component):
    """OBSERVE, DECAY, HARVEST, INSTALL, REMOVE and SPLIT; with a planner PLAN and MARK.

    Lookups flow, a bus word of ids a cycle and batch behind batch: reader -> tag -> combiner ->
    placer -> ring of lookup banks -> miss numbers -> ring of number banks -> slot words, sample
    marks and tally. Rows to install or remove enter the first ring, and leave behind it. Those that
    a batch to be planned brings are listed from its numbers on.

    Members
    -------
    engine : In(Engine(config))
        Taken one after the other; batches are under way together.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    source : Out(ReadClient(config))
        Ids of a batch, or entries of a list.
    lengths : Out(ReadClient(config))
        Of the bags of a jagged batch.
    slots, popular, nonpopular : Out(WriteClient(config))
        The entries of a HARVEST go to `popular`.
    even_misses, odd_misses : Out(WriteClient(config))
        The miss list of a SPLIT, by turns of a block: clients that a `DmaWritePort` stripes. Of a
        PLAN, the rows to be fetched, and those to be written back.
    bypass_striping : Out(1)
        Of a card with a planner, as the next one: these two do not take turns; see `DmaWritePort`.
    retirement : In(Retirement())
    restart : In(1)
        A pulse drops the commands in progress in the next cycle; counters, directory and
        descriptors stay. The ports behind `source` to `odd_misses` are restarted in that cycle.
    ready : Out(1)
        Low while memories are being cleared; commands then wait.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "engine": In(Engine(config)),
            "table_update": In(table_update(config)),
            "source": Out(ReadClient(config)),
            "lengths": Out(ReadClient(config)),
            **{name: Out(WriteClient(config)) for name in DEPOSITS},
            **({"bypass_striping": Out(1), "retirement": In(Retirement())} if config.planner else {}),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.reader = reader = LookupReader(config)
        m.submodules.tag = tag = BatchTagger(config)
        m.submodules.combiner = combiner = Combiner(config)
        m.submodules.placer = placer = BankRequestStage(config)
        m.submodules.ring = ring = BankCrossbar(
            config, waiting_beat(config), row_request(config), beat_request(config),
            bank_answer(config))
        banks = [LookupBank(config) for _ in range(config.banks)]
        m.submodules.numbers = numbers = MissNumbering(config)
        m.submodules.number_ring = number_ring = BankCrossbar(
            config, split_beat(config), number_lane(config), number_shared(config),
            config.slot_word_width, beats=NUMBER_BEATS)
        number_banks = [MissNumberBank(config) for _ in range(config.banks)]
        m.submodules.slot_lanes = slot_lanes = SlotWords(config)
        m.submodules.marks = marks = ColdSampleBitmap(config)
        m.submodules.tally = tally = BatchStatistics(config)
        m.submodules.scans = scans = ScanEngine(config)
        m.submodules.entries = entries = InstallRemove(config)
        control = LookupControl(config)
        m.submodules.control = self._restarted(m, "control", control)

        # The banks are far from what clears them and from what waits for that: told in registers.
        clears = Cat(scans.clear, entries.clear, control.clear_misses)
        told = [replicated(m, f"bank{number}_clears", clears) for number, _ in enumerate(banks)]
        banks_ready = Signal()
        m.d.sync += banks_ready.eq(
            Cat(bank.ready for bank in banks).all() & ~clears.any() & ~told[0].any())
        planner = []
        if config.planner:
            m.submodules.plan_lists = plan_lists = PlanLists(config)
            planner = [plan_lists]
            self._plan(
                m, control, placer, banks, banks_ready, numbers, slot_lanes, plan_lists, entries)
        units = {"reader": reader, "combiner": combiner, "placer": placer, "ring": ring,
                 "numbers": numbers, "number_ring": number_ring, "slot_lanes": slot_lanes,
                 "marks": marks, "tally": tally, "scans": scans, "entries": entries,
                 **{f"bank{number}": bank for number, bank in enumerate(banks)},
                 **{f"number_bank{number}": bank for number, bank in enumerate(number_banks)},
                 **{f"planner{number}": unit for number, unit in enumerate(planner)}}
        for name, unit in units.items():
            m.d.comb += unit.restart.eq(replicated(m, f"{name}_restart", self.restart))
        m.d.comb += [
            scans.cleared.eq(banks_ready),
            entries.cleared.eq(banks_ready),
            self.ready.eq(reader.ready & banks_ready & marks.ready & entries.ready),
            control.cleared.eq(self.ready),
        ]
        for unit in (reader, entries):
            for field in ("enable", "index", "entry"):
                m.d.comb += getattr(unit.table_update, field).eq(getattr(self.table_update, field))

        # Commands.
        connect(m, engine=flipped(self.engine), control=control.engine)
        connect(m, control=control.reader, reader=reader.command)
        connect(m, reader=reader.verdict, control=control.verdict)
        connect(m, control=control.sizes, marks=marks.batches)
        connect(m, marks=marks.counted, control=control.parted)
        connect(m, tally=tally.outcome, control=control.tallied)
        for start, unit, ended in ((control.scans, scans, control.scanned),
                                   (control.entries, entries, control.listed)):
            connect(m, control=start, unit=unit.command)
            connect(m, unit=unit.outcome, control=ended)
        # Room for the batches under way, so that a start waits for none of them.
        m.submodules.kinds_queue = kinds = RamFifo(batch_kind(), UNDER_WAY)
        m.d.comb += kinds.clear.eq(replicated(m, "kinds_restart", self.restart))
        connect(m, control=control.kinds, queue=kinds.i)
        connect(m, queue=kinds.o, tag=tag.kinds)

        # Lists and batches: which of them is told to each place where their ways part or join.
        edits, asked_edits, answered_edits, slots_edits = (
            replicated(m, f"{name}_edits", control.edits)
            for name in ("source", "asked", "answered", "slots"))
        connect(m, reader=reader.lengths, lengths=flipped(self.lengths))
        stream_mux(m, self.source.request,
              (~edits, reader.ids.request), (edits, entries.source.request))
        # What takes words is not near what they wait in, and whether it does is known late.
        arrived = SkidBuffer(self.source.words.p.shape())
        m.submodules.arrived = self._restarted(m, "arrived", arrived)
        stream_connect(m, self.source.words, arrived.i)
        stream_demux(m, arrived.o, (~edits, reader.ids.words), (edits, entries.source.words))
        connect(m, reader=reader.beats, tag=tag.beats)
        connect(m, tag=tag.tagged, combiner=combiner.beats)
        connect(m, combiner=combiner.combined, placer=placer.combined)

        # Banks.
        self._beats(m, asked_edits, placer.beats, entries.beats, ring.beats)
        stream_demux(m, ring.answered, (~answered_edits, numbers.answered),
              (answered_edits, entries.answered))
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = shared_instance(platform, bank)
            connect(m, ring=ring.requests[number], bank=bank.requests)
            connect(m, bank=bank.answers, ring=ring.answers[number])
            connect(m, scans=scans.banks[number], bank=bank.scan)
            m.d.comb += Cat(bank.clear_counts, bank.clear_slots, bank.clear_misses).eq(told[number])
        connect(m, numbers=numbers.beats, ring=number_ring.beats)
        for number, bank in enumerate(number_banks):
            m.submodules[f"number_bank{number}"] = shared_instance(platform, bank)
            connect(m, ring=number_ring.requests[number], bank=bank.requests)
            connect(m, bank=bank.answers, ring=number_ring.answers[number])
        fork(m, number_ring.answered, slot_lanes.beats, tally.beats)
        for unit in (slot_lanes, tally):
            m.d.comb += unit.beats.p.eq(number_ring.answered.p)
        connect(m, slot_lanes=slot_lanes.marks, marks=marks.beats)

        # Results.
        widths = {"slots": 32, "popular": log2(config.batch_samples),
                  "nonpopular": log2(config.batch_samples)}
        if config.planner:
            widths["popular"] = widths["slots"]  # numbers fit; equal packers are one text
            widths["nonpopular"] = max(widths["nonpopular"], log2(config.slots))
        packers = {name: LanePacker(config, width, 4) for name, width in widths.items()}
        packers["misses"] = LanePacker(
            config, config.entry_width, ROW_ENTRY_BYTES, 2 * config.bus_bytes)
        if config.planner:
            packers["victims"] = LanePacker(config, config.entry_width, ROW_ENTRY_BYTES)
        packers["harvest"] = list_packer(config, harvest_entry, HARVEST_ENTRY_BYTES)
        for name, packer in packers.items():
            m.submodules[f"{name}_packer"] = self._restarted(m, f"{name}_packer", packer)
        self._slots(
            m, slots_edits, slot_lanes.slots, entries.slots, packers["slots"].elements)
        for producer, name in ((marks.popular, "popular"), (marks.nonpopular, "nonpopular"),
                               (numbers.listed, "misses")):
            stream_resize(m, producer, packers[name].elements)
        if config.planner:
            stream_resize(m, plan_lists.victims, packers["victims"].elements)
            with m.If(self.bypass_striping):
                stream_resize(m, plan_lists.fills, packers["popular"].elements)
                stream_resize(m, plan_lists.victim_slots, packers["nonpopular"].elements)
        connect(m, scans=scans.harvested, packer=packers["harvest"].elements)
        requests, words = {}, {name: packer.words for name, packer in packers.items()}
        for number, name in enumerate(lists_of(config)):
            requests[name] = control.requests[number]
        stripe = StripedWriter(config, Element(config.entry_width, ROW_ENTRY_BYTES))
        m.submodules.stripe = self._restarted(m, "stripe", stripe)
        connect(m, queue=requests["misses"], stripe=stripe.start)
        connect(m, packer=words["misses"], stripe=stripe.words)
        for number, name in enumerate(("even_misses", "odd_misses")):
            requests[name], words[name] = stripe.requests[number], stripe.sides[number]
        if config.planner:
            m.d.comb += stripe.bypass_striping.eq(self.bypass_striping)
        for number, name in enumerate(DEPOSITS):
            deposit = getattr(self, name)
            if config.planner and name == "odd_misses":
                for given, port in ((requests, deposit.request), (words, deposit.words)):
                    stream_mux(m, port, (~self.bypass_striping, given[name]), (self.bypass_striping, given["victims"]))
            else:
                connect(m, queue=requests[name], port=flipped(deposit.request))
            connect(m, port=flipped(deposit.outcome), control=control.landed[number])
            if name != "popular" and not (config.planner and name == "odd_misses"):
                connect(m, packer=words[name], port=flipped(deposit.words))
        harvests = words["harvest"].valid
        stream_mux(m, self.popular.words, (~harvests, words["popular"]), (harvests, words["harvest"]))
        return m

    def _restarted(self, m, name, unit):
        """The unit, reset by a restart."""
        return ResetInserter(replicated(m, f"{name}_restart", self.restart))(unit)

    def _plan(self, m, control, placer, banks, banks_ready, numbers, slot_lanes, lists, entries):
        """What the planner's units are told, and what they tell."""
        config = self.config
        m.submodules.window = window = PlanWindow(config)
        sequence = PlanSequencer(config)
        m.submodules.sequence = self._restarted(m, "sequence", sequence)
        connect(m, control=control.planner, sequence=sequence.control)
        connect(m, lists=lists.counted, control=control.counted)
        connect(m, numbers=numbers.planned, lists=lists.beats)
        connect(m, host=flipped(self.retirement), window=window.host)
        m.d.comb += [
            *(getattr(sequence, name).eq(getattr(window, name))
              for name in ("status", "index", "planned")),
            sequence.retired.eq(window.host.retired),
            sequence.cleared.eq(banks_ready),
            window.batch.eq(control.planner.order.value),
            window.plans.eq(sequence.plans),
            window.accept.eq(sequence.accept),
            window.clear.eq(entries.clear),
            self.bypass_striping.eq(sequence.op == DirectoryOp.PLAN),
            numbers.begin.eq(sequence.begin),
            *(unit.op.eq(sequence.op) for unit in (placer, numbers, slot_lanes)),
            lists.batch.eq(sequence.batch),
        ]
        for bank, newest in zip(banks, lists.newest):
            m.d.comb += [getattr(bank, name).eq(getattr(sequence, name))
                         for name in ("setting", "batch", "begin", "sweep")]
            m.d.comb += newest.eq(bank.newest)

    def _beats(self, m, edits, lanes, single, beats):
        """Beats come from a batch, or from a list with one row in each: of that, only what it tells
        (see `EditRequest`) takes gates."""
        stream_mux(m, beats, (~edits, lanes))
        with m.If(edits):
            m.d.comb += [
                beats.valid.eq(single.valid),
                single.ready.eq(beats.ready),
                beats.p.shared.eq(single.p.shared),
                [into.valid.eq(lane.valid) for into, lane in zip(beats.p.lanes, single.p.lanes)],
                beats.p.lanes[0].eq(single.p.lanes[0]),
                beats.p.carried.last.eq(single.p.carried.last),
                beats.p.carried.lanes[0].present.eq(single.p.carried.lanes[0].present),
                beats.p.carried.lanes[0].status.eq(single.p.carried.lanes[0].status),
            ]

    def _slots(self, m, edits, lanes, single, packed):
        """Slot words come from all lanes of a batch, or one at a time from a list."""
        stream_mux(m, packed, (~edits, lanes))
        with m.If(edits):
            m.d.comb += [
                packed.valid.eq(single.valid),
                packed.p.values[0].eq(single.p.value),
                packed.p.present.eq(single.p.present),
                packed.p.last.eq(single.p.last),
                single.ready.eq(packed.ready),
            ]
