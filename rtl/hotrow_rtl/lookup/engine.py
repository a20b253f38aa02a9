"""Lookup engine: the units of the lookup queue, wired together."""

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
from ..interfaces.records import (
    BATCHES_IN_FLIGHT,
    Engine,
    ReadClient,
    WriteClient,
    harvest_entry,
    table_update,
)
from ..interfaces.retirement import Retirement
from ..lists.lane_packer import LanePacker
from ..lists.striped_writer import Element, StripedWriter
from ..lists.wide_packer import list_packer
from ..primitives.fifo import RamFifo
from ..primitives.replicated_register import replicated
from ..primitives.shared_module import shared_instance
from ..primitives.skid_buffer import SkidBuffer
from ..primitives.stream_routing import fork, stream_demux, stream_mux, stream_resize
from .banks.bank_pipe import bank_crossbar
from .banks.lookup_bank import LookupBank
from .combiner.bank_request import BankRequestStage
from .combiner.batch_tagger import BatchTagger, batch_kind
from .combiner.combiner import Combiner
from .counters.scan_engine import ScanEngine
from .directory.install_remove import InstallRemove
from .dispatch.control import LookupControl
from .dispatch.result_addresses import RESULT_WRITERS, STRIPED_LIST
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
    """OBSERVE, DECAY, HARVEST, INSTALL, REMOVE and SPLIT; with a planner also PLAN and MARK.

    Lookups pass, one bus word of ids a cycle and without a gap between batches: reader, tagger,
    combiner, bank requests, crossbar with lookup banks, miss numbering, crossbar with number banks,
    and then slot words, cold-sample bitmap and statistics. Rows to install or remove use the first
    crossbar. The rows of a planned batch leave miss numbering for the plan lists.

    Attributes
    ----------
    engine : In(Engine(config))
        Commands are accepted one by one; several batches are in flight.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    source : Out(ReadClient(config))
        Ids of a batch, or entries of a list.
    lengths : Out(ReadClient(config))
        Lengths of the bags of a jagged batch.
    list_0, ..., list_4 : Out(WriteClient(config))
        The result lists of a command by number, see `LISTS_OF`. For a SPLIT `list_3` and `list_4`
        write alternate blocks of the misses, with one lane `list_3` all of them; `DmaWritePort`
        interleaves them.
    bypass_striping : Out(1)
        With a planner: a PLAN is in progress, so the misses are not interleaved; see
        `DmaWritePort`.
    retirement : In(Retirement())
        With a planner.
    restart : In(1)
        A pulse drops all commands in the next cycle; counters, directory and descriptors stay. The
        ports of the read and write clients must restart in that next cycle.
    ready : Out(1)
        Low while a memory is cleared; the engine then starts no command.
    """

    def __init__(self, config: Config):
        self.config = config
        planner = {"bypass_striping": Out(1), "retirement": In(Retirement())}
        super().__init__({
            "engine": In(Engine(config)),
            "table_update": In(table_update(config)),
            "source": Out(ReadClient(config)),
            "lengths": Out(ReadClient(config)),
            **{name: Out(WriteClient(config)) for name in RESULT_WRITERS},
            **(planner if config.planner else {}),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.reader = reader = LookupReader(config)
        m.submodules.tagger = tagger = BatchTagger(config)
        m.submodules.combiner = combiner = Combiner(config)
        m.submodules.requests = requests = BankRequestStage(config)
        m.submodules.crossbar = crossbar = bank_crossbar(
            config, waiting_beat(config), row_request(config), beat_request(config),
            bank_answer(config))
        banks = [LookupBank(config) for _ in range(config.banks)]
        m.submodules.numbering = numbering = MissNumbering(config)
        m.submodules.number_crossbar = number_crossbar = bank_crossbar(
            config, split_beat(config), number_lane(config), number_shared(config),
            config.slot_word_width, beats=NUMBER_BEATS)
        number_banks = [MissNumberBank(config) for _ in range(config.banks)]
        m.submodules.slot_words = slot_words = SlotWords(config)
        m.submodules.bitmap = bitmap = ColdSampleBitmap(config)
        m.submodules.statistics = statistics = BatchStatistics(config)
        m.submodules.scan = scan = ScanEngine(config)
        m.submodules.row_list = row_list = InstallRemove(config)
        control = LookupControl(config)
        m.submodules.control = self._restarted(m, "control", control)

        # Timing: one registered copy of the clear request per bank.
        clears = Cat(scan.clear, row_list.clear, control.clear_misses)
        bank_clears = [replicated(m, f"bank{number}_clears", clears)
                       for number in range(config.banks)]
        banks_ready = Signal()
        m.d.sync += banks_ready.eq(Cat(bank.ready for bank in banks).all() & ~clears.any()
                                   & ~bank_clears[0].any())
        m.d.sync += control.corrupt.eq(Cat(bank.corrupt for bank in banks).any())
        plan_lists = None
        if config.planner:
            m.submodules.plan_lists = plan_lists = PlanLists(config)
            self._plan(m, control, requests, banks, banks_ready, numbering, slot_words, plan_lists,
                       row_list)
        units = {"reader": reader, "combiner": combiner, "requests": requests,
                 "crossbar": crossbar, "numbering": numbering, "number_crossbar": number_crossbar,
                 "slot_words": slot_words, "bitmap": bitmap, "statistics": statistics,
                 "scan": scan, "row_list": row_list,
                 **{f"bank{number}": bank for number, bank in enumerate(banks)},
                 **{f"number_bank{number}": bank for number, bank in enumerate(number_banks)},
                 **({"plan_lists": plan_lists} if config.planner else {})}
        for name, unit in units.items():
            m.d.comb += unit.restart.eq(replicated(m, f"{name}_restart", self.restart))
        m.d.comb += [
            scan.cleared.eq(banks_ready),
            row_list.cleared.eq(banks_ready),
            self.ready.eq(reader.ready & banks_ready & bitmap.ready & row_list.ready),
            control.cleared.eq(self.ready),
        ]
        for unit in (reader, row_list):
            for field in ("enable", "index", "entry"):
                m.d.comb += getattr(unit.table_update, field).eq(getattr(self.table_update, field))

        # Commands.
        connect(m, engine=flipped(self.engine), control=control.engine)
        connect(m, control=control.reader, reader=reader.command)
        connect(m, reader=reader.verdict, control=control.verdict)
        connect(m, control=control.sizes, bitmap=bitmap.batches)
        connect(m, bitmap=bitmap.counted, control=control.sample_counts)
        connect(m, statistics=statistics.outcome, control=control.batch_outcome)
        connect(m, control=control.scan, scan=scan.command)
        connect(m, scan=scan.outcome, control=control.scan_outcome)
        connect(m, control=control.row_list, row_list=row_list.command)
        connect(m, row_list=row_list.outcome, control=control.list_outcome)
        # As deep as there are batches in flight, so that the issue of a batch never waits for it.
        m.submodules.kinds = kinds = RamFifo(batch_kind(), BATCHES_IN_FLIGHT)
        m.d.comb += kinds.clear.eq(replicated(m, "kinds_restart", self.restart))
        connect(m, control=control.kinds, queue=kinds.i)
        connect(m, queue=kinds.o, tagger=tagger.kinds)

        # Timing: each mux and demux between list and batch traffic has its own registered select.
        source_list, request_list, response_list, slots_list = (
            replicated(m, f"{name}_list", control.list_mode)
            for name in ("source", "request", "response", "slots"))
        connect(m, reader=reader.lengths, lengths=flipped(self.lengths))
        stream_mux(m, self.source.request, (~source_list, reader.ids.request),
                   (source_list, row_list.source.request))
        # Timing: ends the path of `ready` from the units to the list port.
        source_words = SkidBuffer(self.source.words.p.shape())
        m.submodules.source_words = self._restarted(m, "source_words", source_words)
        connect(m, source=flipped(self.source.words), buffer=source_words.i)
        stream_demux(m, source_words.o, (~source_list, reader.ids.words),
                     (source_list, row_list.source.words))
        connect(m, reader=reader.beats, tagger=tagger.beats)
        connect(m, tagger=tagger.tagged, combiner=combiner.beats)
        connect(m, combiner=combiner.combined, requests=requests.combined)

        # Banks.
        self._bank_beats(m, request_list, requests.beats, row_list.beats, crossbar.beats)
        stream_demux(m, crossbar.answered, (~response_list, numbering.answered),
                     (response_list, row_list.answered))
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = shared_instance(platform, bank)
            connect(m, crossbar=crossbar.requests[number], bank=bank.requests)
            connect(m, bank=bank.answers, crossbar=crossbar.answers[number])
            connect(m, scan=scan.banks[number], bank=bank.scan)
            m.d.comb += Cat(bank.clear_counts, bank.clear_slots, bank.clear_misses).eq(
                bank_clears[number])
        connect(m, numbering=numbering.beats, crossbar=number_crossbar.beats)
        for number, bank in enumerate(number_banks):
            m.submodules[f"number_bank{number}"] = shared_instance(platform, bank)
            connect(m, crossbar=number_crossbar.requests[number], bank=bank.requests)
            connect(m, bank=bank.answers, crossbar=number_crossbar.answers[number])
        fork(m, number_crossbar.answered, slot_words.beats, statistics.beats)
        for unit in (slot_words, statistics):
            m.d.comb += unit.beats.p.eq(number_crossbar.answered.p)
        connect(m, slot_words=slot_words.marks, bitmap=bitmap.beats)

        self._results(m, control, {
            "list_0": (slots_list, slot_words.slots, row_list.slots),
            "list_1": bitmap.popular, "list_2": bitmap.nonpopular,
            "list_3": numbering.listed, "harvest": scan.harvested}, plan_lists)
        return m

    def _restarted(self, m, name, unit):
        """The unit, reset by a restart."""
        return ResetInserter(replicated(m, f"{name}_restart", self.restart))(unit)

    def _plan(self, m, control, requests, banks, banks_ready, numbering, slot_words, plan_lists,
              row_list):
        """Wire the planner's own units."""
        m.submodules.window = window = PlanWindow(self.config)
        sequencer = PlanSequencer(self.config)
        m.submodules.sequencer = self._restarted(m, "sequencer", sequencer)
        connect(m, control=control.planner, sequencer=sequencer.control)
        connect(m, lists=plan_lists.counted, control=control.plan_counts)
        connect(m, numbering=numbering.planned, lists=plan_lists.beats)
        connect(m, host=flipped(self.retirement), window=window.host)
        m.d.comb += [
            *(getattr(sequencer, name).eq(getattr(window, name))
              for name in ("status", "index", "planned")),
            sequencer.retired.eq(window.host.retired),
            sequencer.cleared.eq(banks_ready),
            window.batch.eq(control.planner.command.value),
            window.plans.eq(sequencer.plans),
            window.accept.eq(sequencer.accept),
            window.clear.eq(row_list.clear),
            self.bypass_striping.eq(sequencer.op == DirectoryOp.PLAN),
            numbering.begin.eq(sequencer.begin),
            *(unit.op.eq(sequencer.op) for unit in (requests, numbering, slot_words)),
            plan_lists.batch.eq(sequencer.batch),
        ]
        for bank, newest in zip(banks, plan_lists.newest, strict=True):
            m.d.comb += [getattr(bank, name).eq(getattr(sequencer, name))
                         for name in ("setting", "batch", "begin", "sweep")]
            m.d.comb += newest.eq(bank.newest)

    def _bank_beats(self, m, is_list, batch, row_list, beats):
        """Select the beats of a batch or of a list.

        Of a list only the fields that it drives; see `ListRequestStage`.
        """
        stream_mux(m, beats, (~is_list, batch))
        with m.If(is_list):
            m.d.comb += [
                beats.valid.eq(row_list.valid),
                row_list.ready.eq(beats.ready),
                beats.p.shared.eq(row_list.p.shared),
                [into.valid.eq(lane.valid)
                 for into, lane in zip(beats.p.lanes, row_list.p.lanes, strict=True)],
                beats.p.lanes[0].eq(row_list.p.lanes[0]),
                beats.p.carried.last.eq(row_list.p.carried.last),
                beats.p.carried.lanes[0].present.eq(row_list.p.carried.lanes[0].present),
                beats.p.carried.lanes[0].status.eq(row_list.p.carried.lanes[0].status),
            ]

    def _results(self, m, control, lists, plan_lists):
        """Pack the result lists into bus words and connect them to their write clients."""
        config = self.config
        packers = self._packers(m)
        self._slots(m, *lists["list_0"], packers["list_0"].elements)
        for name in ("list_1", "list_2", "list_3"):
            stream_resize(m, lists[name], packers[name].elements)
        if config.planner:
            stream_resize(m, plan_lists.victims, packers["list_4"].elements)
            with m.If(self.bypass_striping):
                stream_resize(m, plan_lists.fill_slots, packers["list_1"].elements)
                stream_resize(m, plan_lists.victim_slots, packers["list_2"].elements)
        connect(m, scan=lists["harvest"], packer=packers["harvest"].elements)

        words = {name: packer.words for name, packer in packers.items()}
        requests = dict(zip(RESULT_WRITERS, control.requests, strict=False))
        last, striped_list = RESULT_WRITERS[-1], RESULT_WRITERS[STRIPED_LIST]
        planned = requests.get(last), words.get(last)  # of the last list of a PLAN
        if config.striped_misses:
            striped = StripedWriter(config, Element(config.entry_width, ROW_ENTRY_BYTES))
            m.submodules.striped = self._restarted(m, "striped", striped)
            connect(m, queue=requests[striped_list], striped=striped.start)
            connect(m, packer=words[striped_list], striped=striped.words)
            for number, name in enumerate((striped_list, last)):
                requests[name], words[name] = striped.requests[number], striped.sides[number]
            if config.planner:
                m.d.comb += striped.bypass_striping.eq(self.bypass_striping)
        is_harvest = words["harvest"].valid
        for number, name in enumerate(RESULT_WRITERS):
            client = getattr(self, name)
            connect(m, port=flipped(client.outcome), control=control.written[number])
            if name not in words:  # one lane, no planner
                continue
            if config.planner and config.striped_misses and name == last:
                for striped_one, planned_one, port in zip(
                        (requests[name], words[name]), planned, (client.request, client.words),
                        strict=True):
                    stream_mux(m, port, (~self.bypass_striping, striped_one),
                               (self.bypass_striping, planned_one))
                continue
            connect(m, queue=requests[name], port=flipped(client.request))
            if name == "list_1":
                stream_mux(m, client.words, (~is_harvest, words["list_1"]),
                           (is_harvest, words["harvest"]))
            else:
                connect(m, packer=words[name], port=flipped(client.words))

    def _packers(self, m):
        """The packer of each result list, and of HARVEST's entries, by name."""
        config = self.config
        sample_width = log2(config.batch_samples)
        widths = {"list_0": 32, "list_1": sample_width, "list_2": sample_width}
        if config.planner:  # these two also pack slots; equal packers share one module
            widths["list_1"] = widths["list_0"]
            widths["list_2"] = max(sample_width, log2(config.slots))
        packers = {name: LanePacker(config, width, 4) for name, width in widths.items()}
        packers["list_3"] = LanePacker(
            config, config.entry_width, ROW_ENTRY_BYTES,
            2 * config.bus_bytes if config.striped_misses else None)
        if config.planner:
            packers["list_4"] = LanePacker(config, config.entry_width, ROW_ENTRY_BYTES)
        packers["harvest"] = list_packer(config, harvest_entry, HARVEST_ENTRY_BYTES)
        for name, packer in packers.items():
            m.submodules[f"{name}_packer"] = self._restarted(m, f"{name}_packer", packer)
        return packers

    def _slots(self, m, is_list, batch, row_list, packed):
        """Select the slot words of all lanes of a batch, or those of a list, one at a time."""
        stream_mux(m, packed, (~is_list, batch))
        with m.If(is_list):
            m.d.comb += [
                packed.valid.eq(row_list.valid),
                packed.p.values[0].eq(row_list.p.value),
                packed.p.present.eq(row_list.p.present),
                packed.p.last.eq(row_list.p.last),
                row_list.ready.eq(packed.ready),
            ]
