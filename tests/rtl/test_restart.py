"""Every unit with a restart: after one in any cycle it equals a unit that never ran."""

import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import hotrow_boards
import hotrow_rtl
import numpy as np
import pytest
from amaranth.lib import wiring
from hotrow_rtl.config import preset
from hotrow_rtl.host.event_counters import EventCounters
from hotrow_rtl.host.region_arbiter import RegionArbiter
from hotrow_rtl.host.ring_address import RingAddress
from hotrow_rtl.host.table_range_check import TableRangeCheck
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp, bank_request, count_request
from hotrow_rtl.interfaces.records import element, row_entry
from hotrow_rtl.lookup.banks.bypass_table import BypassTable
from hotrow_rtl.lookup.banks.crossbar import BankCrossbar
from hotrow_rtl.lookup.banks.lookup_bank import LookupBank
from hotrow_rtl.lookup.combiner.bank_request import BankRequestStage
from hotrow_rtl.lookup.combiner.combiner import Combiner
from hotrow_rtl.lookup.counters.bank import CounterBank
from hotrow_rtl.lookup.counters.scan_engine import ScanEngine
from hotrow_rtl.lookup.directory.entry_check import EntryCheck
from hotrow_rtl.lookup.directory.install_remove import InstallRemove
from hotrow_rtl.lookup.directory.list_request import ListRequestStage
from hotrow_rtl.lookup.directory.payloads import slot_request
from hotrow_rtl.lookup.directory.slot_table import SlotTable
from hotrow_rtl.lookup.planner.plan_lists import PlanLists, PlanTally, Victims
from hotrow_rtl.lookup.planner.window import PlanWindow
from hotrow_rtl.lookup.reader.range_check import RangeCheck, unchecked_beat
from hotrow_rtl.lookup.reader.reader import LookupReader
from hotrow_rtl.lookup.splitter.batch_statistics import BatchStatistics
from hotrow_rtl.lookup.splitter.bitmap_write_rounds import BitmapWriteScheduler
from hotrow_rtl.lookup.splitter.cold_sample_bitmap import ColdSampleBitmap, WordMarker
from hotrow_rtl.lookup.splitter.miss_number_bank import MissNumberBank, number_request
from hotrow_rtl.lookup.splitter.miss_numbering import MissNumbering
from hotrow_rtl.lookup.splitter.miss_table import MissTableBank
from hotrow_rtl.lookup.splitter.sample_partition import SamplePartition
from hotrow_rtl.lookup.splitter.slot_words import SlotWords
from hotrow_rtl.memory.burst_scheduler import BurstScheduler
from hotrow_rtl.memory.read_client import ReadClientBuffer
from hotrow_rtl.memory.read_port import DmaReadPort
from hotrow_rtl.memory.request_scheduler import RequestScheduler
from hotrow_rtl.memory.watchdog import Watchdog
from hotrow_rtl.memory.write_arbiter import WriteArbiter
from hotrow_rtl.memory.write_client import WriteClientBuffer
from hotrow_rtl.memory.write_port import DmaWritePort
from hotrow_rtl.mover.addressing.lane import AddressLane
from hotrow_rtl.mover.engine import MIN_CYCLES, FlushTimer, LaneMerger
from hotrow_rtl.mover.port.payloads import row_transfer, transfer_setting
from hotrow_rtl.mover.port.port import RowPort
from hotrow_rtl.primitives.fifo import RamFifo
from hotrow_rtl.primitives.ram import ClearedRam

from tests.support.on_memory import OnMemory
from tests.support.restart_harness import Case, below, check_restart, constant, payload

TINY = preset("tiny")
TABLES = {"reset": False, "mirror": ("table_update.enable", "table_update.index",
                                     "table_update.entry"), "ready": "ready"}
SCAN = "scan.active", "scan.enable", "scan.halve", "scan.complement"


def low(*names):
    """Inputs that are always 0."""
    return {name: constant(0) for name in names}


def transfer(rng):
    """A random transfer of a row port."""
    layout, size = row_transfer(TINY), 4 + 4 * int(rng.integers(20))
    source, destination = (4 * int(rng.integers(1 << 12)) for _ in range(2))
    return layout.const({
        "source": source, "two_reads": source % 4096 + size > 4096,
        "destination": destination, "two_writes": destination % 4096 + size > 4096,
        "info": {"index": int(rng.integers(1 << 32)), "bytes": size, "last": 1}}).as_bits()


def on_memory(make, timeout, settle, flush=False, undefined=(), **inputs):
    """A unit with buses, until its memory has answered what it asked before; data of a word with a
    fault is `undefined`."""
    late = 0.8 if timeout else 0.3  # share of cycles in which a channel stalls
    ignored = undefined if timeout else ()
    return Case(lambda: OnMemory(make(), flush), settle=settle, ignore=ignored, inputs={
        "timeout": constant(timeout), "late": lambda rng: int((rng.random(5) < late)
                                                              @ (1 << np.arange(5))), **inputs})


PORTS = {
    f"{name}{' that stops' * (timeout != 0)}": on_memory(make, timeout, settle, **options)
    for timeout in (0, 6) for name, make, settle, options in (
        ("DmaReadPort", lambda: DmaReadPort(TINY, 1, depth=16), 40, {
            "undefined": ("clients.0.words.payload",), "request.payload": payload(
                DmaReadPort(TINY, 1).clients[0].request.p.shape(),
                bytes=lambda rng: 1 + rng.integers(6 * TINY.bus_bytes))}),
        ("DmaWritePort", lambda: DmaWritePort(TINY, 1, depth=16), 40, {}),
        ("RowPort", lambda: RowPort(TINY), 60, {
            "flush": True, "transfers.payload": transfer, **{name: constant(0) for name in (
                "bags", "start", "fills", "pattern", "computed_rows.valid",
                "computed_words.valid")}}))}


def lane_setting(spans):
    return constant(payload(transfer_setting(), bags=0, spans=spans)(np.random.default_rng(1)))


LANES = {f"AddressLane, {name}": Case(
    lambda: AddressLane(TINY), restart="clear", reset=False, ready="ready",
    hold=MIN_CYCLES, qualified={"refused": "refused_valid"}, inputs={
        "table_update.enable": constant(0), "region_update.enable": constant(0),
        "setting": lane_setting(before)}, after={"setting": lane_setting(after)})
    for name, before, after in (("a list", 0, 0), ("a span", 1, 1), ("a list after a span", 1, 0))}
CASES = PORTS | LANES | {
    "EventCounters": Case(
        lambda: EventCounters(TINY, 2), reset=False, ready="ready",
        inputs={"clients.1.request.valid": constant(0), "request.payload": payload(
            EventCounters(TINY, 2).clients[0].request.p.shape(), write=0)}),
    "RegionArbiter": Case(lambda: RegionArbiter(TINY, 2),
                          silent=("accesses.valid", "accesses.ready")),
    "RingAddress": Case(lambda: RingAddress(TINY, writes=(True, False)),
                        replies={"region.verdicts": "region.accesses"}),
    "TableRangeCheck": Case(lambda: TableRangeCheck(TINY), **TABLES, silent=("spans.ready",)),
    "LaneMerger": Case(lambda: LaneMerger(8, 4), restart="clear"),
    "BankCrossbar": Case(
        lambda: BankCrossbar(TINY, 4, 4, 4, 4), inputs={"beats.payload": payload(
            BankCrossbar(TINY, 4, 4, 4, 4).beats.p.shape(), lanes__all__valid=1)},
        settle=1,  # `beats.ready` is registered
        replies={f"answers.{bank}": f"requests.{bank}" for bank in range(TINY.banks)}),
    "BypassTable": Case(lambda: BypassTable(TINY), restart="clear", reset=False),
    "LookupBank": Case(
        lambda: LookupBank(TINY), reset=False, ready="ready",
        inputs=low(*SCAN, "sweep", "clear_counts", "clear_slots", "clear_misses", "begin") | {
            "requests.payload": payload(
                bank_request(TINY), op=DirectoryOp.FIND.value, amount=0, miss=0)},
        ignore=("scan.entry",),
        silent=("answers.valid",)),
    "BankRequestStage": Case(lambda: BankRequestStage(TINY)),
    "Combiner": Case(lambda: Combiner(TINY), inputs={
        "beats.valid": lambda rng: rng.random() < 0.4, "beats.payload": payload(
        Combiner(TINY).beats.p.shape(), beat__lanes__all__key__row=below(2),
        beat__lanes__all__key__table=0, beat__lanes__all__fault=0, beat__lanes__all__present=1,
        beat__lanes__all__out_of_range=0, beat__last=lambda rng: rng.random() < 0.1)}),
    "CounterBank": Case(
        lambda: CounterBank(TINY), reset=False, ready="ready", ignore=("scan.entry",),
        inputs=low(*SCAN, "clear") | {
            "requests.payload": payload(count_request(TINY), amount=0)}),
    "ScanEngine": Case(lambda: ScanEngine(TINY)),
    "EntryCheck": Case(lambda: EntryCheck(TINY), **TABLES, inputs={
        "entries.payload": payload(element(row_entry), value__table=below(TINY.tables + 2))}),
    "ListRequestStage": Case(lambda: ListRequestStage(TINY)),
    "InstallRemove": Case(lambda: InstallRemove(TINY), **TABLES, inputs={
        "cleared": constant(1), "command.payload": payload(
            InstallRemove(TINY).command.p.shape(), count=below(6))},
        replies={"answered": "beats"}),
    "SlotTable": Case(
        lambda: SlotTable(TINY), reset=False, ready="ready", settle=SlotTable(TINY).latency,
        inputs=low("clear", "sweep") | {"request": payload(
            slot_request(TINY), op=DirectoryOp.FIND.value)}),
    "Victims": Case(lambda: Victims(TINY)),
    "PlanTally": Case(lambda: PlanTally(TINY)),
    "PlanLists": Case(lambda: PlanLists(TINY)),
    "PlanWindow": Case(lambda: PlanWindow(TINY), restart="clear", settle=2,
                       inputs={"batch": below(8), "host.number": below(8)}),
    "RangeCheck": Case(lambda: RangeCheck(TINY), **TABLES, inputs={
        "unchecked.payload": payload(unchecked_beat(TINY))}),
    "LookupReader": Case(lambda: LookupReader(TINY), **TABLES),
    "BatchStatistics": Case(lambda: BatchStatistics(TINY)),
    "BitmapWriteScheduler": Case(lambda: BitmapWriteScheduler(TINY)),
    "WordMarker": Case(lambda: WordMarker(TINY), qualified={
        "read_half": "read", "read_row": "read", "write_half": "write", "write_row": "write",
        "write_data": "write"}),
    "ColdSampleBitmap": Case(lambda: ColdSampleBitmap(TINY), reset=False, ready="ready"),
    "MissNumberBank": Case(
        lambda: MissNumberBank(TINY), reset=False,
        inputs={"requests.payload": payload(number_request(TINY), write=0)}),
    "MissNumbering": Case(lambda: MissNumbering(TINY)),
    "MissTableBank": Case(lambda: MissTableBank(TINY), reset=False, ready="ready",
                          settle=MissTableBank.latency,
                          inputs=low("clear") | {"drop": constant(1)}),
    "SamplePartition": Case(lambda: SamplePartition(TINY), qualified={
        "read_half": "read", "read_word": "read", "clear_half": "clear", "clear_word": "clear"}),
    "SlotWords": Case(lambda: SlotWords(TINY), inputs={"beats.payload": payload(
        SlotWords(TINY).beats.p.shape(), carried__lanes__all__back=0)}),
    "BurstScheduler": Case(lambda: BurstScheduler(TINY, [4, 4]), restart="clear",
                           inputs={"requests.1.valid": constant(0)}, ignore=("len_minus_1",)),
    "ReadClientBuffer": Case(lambda: ReadClientBuffer(TINY, 16, 4), inputs={
        "draining": constant(0), "len_minus_1": below(9), "reserve_len_minus_1": below(4)}),
    "RequestScheduler": Case(
        lambda: RequestScheduler(TINY, 2), restart="clear",
        inputs={"requests.1.valid": constant(0)},
        qualified=dict.fromkeys(("word", "last", "len_minus_1", "client_idx"), "valid")),
    "WriteArbiter": Case(lambda: WriteArbiter(TINY)),
    "WriteClientBuffer": Case(lambda: WriteClientBuffer(TINY, 16)),
    "Watchdog": Case(Watchdog, inputs={"timeout": constant(7)}),
    "RamFifo": Case(lambda: RamFifo(8, 4), restart="clear"),
    "ClearedRam": Case(lambda: ClearedRam(8, 4), restart="clear", reset=False, ready="ready",
                       settle=6, inputs={"read_enable": constant(1)}),
    "FlushTimer": Case(FlushTimer, settle=MIN_CYCLES + 2, inputs={"drained": constant(1)}),
    # By its name: a card with a planted fault is not one of every unit's restart.
    "IdleTimer": Case(lambda: import_module("hotrow_boards.card").IdleTimer(5), settle=6),
}
# Further cases of units whose other cases `make test` runs.
ALIKE = ("RowPort that stops", "DmaWritePort that stops", "AddressLane, a list",
         "AddressLane, a span")
PARTS = {"BankQueue": "BankCrossbar", **dict.fromkeys(
    ("RowReader", "RowReadPort", "RowWriter", "RowWritePort"), "RowPort")}
# Units whose restart keeps something, or takes more than inputs at random, and what restarts them.
ELSEWHERE = {
    "AccessCounters": "cocotb/units/tb_counters.py",
    **dict.fromkeys(("CommandParts", "LookupEngine", "LookupUnit"),
                    "cocotb/units/tb_splitter.py"),
    "RowMoverUnit": "cocotb/units/tb_row_mover.py",
    "ListWriter": "cocotb/units/tb_list_writer.py",
    **dict.fromkeys(("BagLists", "BagUnit", "BagUnits", "SummandQueues"),
                    "rtl/mover/bags/test_bag_units.py"),
    "BankPipe": "rtl/lookup/banks/test_crossbar.py", "RowMover": "rtl/mover/test_engine_faults.py",
    "CommandQueue": "rtl/host/test_command_queue_faults.py",
    "WidestWindow": "boards/test_dram_bring_up.py"}


def units():
    """Names of the components of card and boards that have an input `restart` or `clear`."""
    for package in (hotrow_rtl, hotrow_boards):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name == "hotrow_rtl.export.pcie_phy":  # a program for LitePCIe's Python
                continue
            for each in vars(import_module(module.name)).values():
                if (inspect.isclass(each) and issubclass(each, wiring.Component)
                        and each.__module__ == module.name
                        and re.search(r'\b(restart|clear)"?: In\(|\*\*CONTROL\b',
                                      inspect.getsource(each))):
                    yield each.__name__


@pytest.mark.slow
def test_every_unit_with_a_restart_is_restarted():
    made = [case.make() for case in CASES.values()]
    tested = {type(getattr(unit, "unit", unit)).__name__ for unit in made}
    assert set(units()) == tested | PARTS.keys() | ELSEWHERE.keys()
    assert not tested & (PARTS.keys() | ELSEWHERE.keys()) and set(PARTS.values()) <= tested
    for file in ELSEWHERE.values():
        assert re.search("restart|clear", (Path(__file__).parents[1] / file).read_text()), file


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.long if name in ALIKE else ()) for name in CASES])
def test_restart(name):
    check_restart(CASES[name], busy=range(2, 24, 5), compare=40)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_restart_in_every_cycle(name, seed):
    check_restart(CASES[name], seed=seed, busy=range(48), in_a_row=3)


@pytest.mark.slow
def test_what_has_no_answer_is_not_performed():
    """INSTALL and REMOVE under way at a restart write nothing, then or after a clear."""
    table, count = SlotTable(TINY), iter(range(1 << 30))
    requests = payload(slot_request(TINY), choices__all__set=below(2), choices__all__tag=below(3),
                       op=lambda rng: int(rng.choice([DirectoryOp.INSTALL.value,
                                                      DirectoryOp.REMOVE.value])))
    check_restart(Case(
        lambda: SlotTable(TINY), reset=False, ready="ready", settle=table.latency + 1,
        inputs=low("clear", "sweep", "setting", "count") | {
            "request": requests, "valid": lambda rng: next(count) % table.distance == 0},
    ), busy=[table.latency - 1, table.latency] * 30, in_a_row=1, compare=23)
