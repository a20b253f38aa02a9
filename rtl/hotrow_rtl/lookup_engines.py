"""The engines behind the lookup queue, wired together."""

from amaranth import Cat, Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bank_layouts import count_answer, count_request, counted_beat
from .bank_ring import BankRing
from .batch_route import BatchRoute
from .combiner import Combiner
from .config import Config
from .contract import HARVEST_ENTRY_BYTES, ROW_ENTRY_BYTES
from .count_bank import CountBank
from .count_tally import CountTally
from .counters import CounterScans
from .directory import Directory
from .directory_list import DirectoryList
from .layouts import Deposit, Engine, Fetch, harvest_entry, row_entry, table_update
from .lookup_control import DEPOSITS, LookupControl
from .lookup_query import LookupQuery
from .lookup_reader import LookupReader
from .placer import Placer
from .serializer import LaneSerializer
from .splitter import Splitter
from .streams import Packer


def merge(m, consumer, *choices):
    """Give `consumer` the one of the (condition, producer) streams whose condition holds."""
    for condition, producer in choices:
        with m.If(condition):
            m.d.comb += [
                consumer.valid.eq(producer.valid),
                consumer.p.eq(producer.p),
                producer.ready.eq(consumer.ready),
            ]


def route(m, producer, *choices):
    """Give `producer`'s stream to the one of the (condition, consumer) whose condition holds."""
    for condition, consumer in choices:
        m.d.comb += consumer.p.eq(producer.p)
        with m.If(condition):
            m.d.comb += [
                consumer.valid.eq(producer.valid),
                producer.ready.eq(consumer.ready),
            ]


class LookupEngines(wiring.Component):
    """OBSERVE, DECAY, HARVEST, INSTALL, REMOVE and SPLIT.

    Lookups to count flow reader -> combiner -> placer -> count banks -> tally, a bus word of ids a
    cycle, batches one behind the other; those to split, reader -> serializer -> directory ->
    splitter, one a cycle.

    Members
    -------
    engine : In(Engine())
        Taken one after the other; batches are under way together.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    source : Out(Fetch(config))
        Ids of a batch, or entries of a list.
    lengths : Out(Fetch(config))
        Of the bags of a jagged batch.
    slots, popular, nonpopular : Out(Deposit(config))
    misses : Out(Deposit(config))
        The miss list of a SPLIT, or the entries of a HARVEST.
    restart : In(1)
        A pulse drops the commands in progress; counters, directory and descriptors stay. The
        ports behind `source` to `misses` are restarted with it.
    ready : Out(1)
        Low while memories are being cleared; commands then wait.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "engine": In(Engine()),
            "table_update": In(table_update(config)),
            "source": Out(Fetch(config)),
            "lengths": Out(Fetch(config)),
            **{name: Out(Deposit(config)) for name in DEPOSITS},
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, restarted = self.config, ResetInserter(self.restart)
        m.submodules.reader = reader = LookupReader(config)
        m.submodules.route = route_batches = BatchRoute(config)
        m.submodules.combiner = combiner = Combiner(config)
        m.submodules.placer = placer = Placer(config)
        m.submodules.ring = ring = BankRing(
            config, counted_beat(config), count_request(config), count_answer())
        banks = [CountBank(config) for _ in range(config.banks)]
        m.submodules.tally = tally = CountTally(config)
        m.submodules.scans = scans = CounterScans(config)
        m.submodules.serializer = serializer = LaneSerializer(config)
        m.submodules.query = query = LookupQuery(config)
        m.submodules.directory = directory = Directory(config)
        m.submodules.entries = entries = DirectoryList(config)
        m.submodules.splitter = splitter = Splitter(config)
        control = LookupControl(config)
        packers = {"slots": Packer(config, 32, 4), "popular": Packer(config, 32, 4),
                   "nonpopular": Packer(config, 32, 4),
                   "misses": Packer(config, row_entry, ROW_ENTRY_BYTES),
                   "harvest": Packer(config, harvest_entry, HARVEST_ENTRY_BYTES)}
        m.submodules.control = restarted(control)
        for name, packer in packers.items():
            m.submodules[f"{name}_packer"] = restarted(packer)

        for unit in (reader, combiner, placer, ring, *banks, tally, scans, serializer, directory,
                     entries, splitter):
            m.d.comb += unit.restart.eq(self.restart)
        counts_ready = Cat(bank.ready for bank in banks).all()
        ready = Cat(unit.ready for unit in (reader, directory, entries, splitter)).all()
        m.d.comb += [
            scans.cleared.eq(counts_ready),
            self.ready.eq(ready & counts_ready),
            control.cleared.eq(self.ready),
            entries.cleared.eq(directory.ready),
            directory.clear.eq(entries.clear),
        ]
        for unit in (reader, entries):
            for field in ("enable", "index", "entry"):
                m.d.comb += getattr(unit.table_update, field).eq(getattr(self.table_update, field))

        # Commands.
        connect(m, engine=flipped(self.engine), control=control.engine)
        connect(m, control=control.reader, reader=reader.command)
        connect(m, reader=reader.verdict, control=control.verdict)
        connect(m, control=control.kinds, route=route_batches.kinds)
        connect(m, tally=tally.outcome, control=control.tallied)
        for start, unit, ended in ((control.scans, scans, control.scanned),
                                   (control.entries, entries, control.listed),
                                   (control.splitter, splitter, control.split)):
            connect(m, control=start, unit=unit.command)
            connect(m, unit=unit.outcome, control=ended)

        # Lists and batches.
        edits = control.edits
        connect(m, reader=reader.lengths, lengths=flipped(self.lengths))
        merge(m, self.source.request,
              (~edits, reader.ids.request), (edits, entries.source.request))
        route(m, self.source.words, (~edits, reader.ids.words), (edits, entries.source.words))
        connect(m, reader=reader.beats, route=route_batches.beats)

        # Counting.
        connect(m, route=route_batches.counted, combiner=combiner.beats)
        connect(m, combiner=combiner.combined, placer=placer.combined)
        connect(m, placer=placer.beats, ring=ring.beats)
        connect(m, ring=ring.answered, tally=tally.beats)
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = bank
            connect(m, ring=ring.requests[number], bank=bank.requests)
            connect(m, bank=bank.answers, ring=ring.answers[number])
            connect(m, scans=scans.banks[number], bank=bank.scan)
            m.d.comb += bank.clear.eq(scans.clear)

        # Splitting, and edits of the directory.
        connect(m, route=route_batches.split, serializer=serializer.beats)
        connect(m, serializer=serializer.lookups, query=query.lookups)
        merge(m, directory.queries, (~edits, query.queries), (edits, entries.queries))
        route(m, directory.answers, (~edits, splitter.answers), (edits, entries.answers))

        # Results.
        merge(m, packers["slots"].elements, (~edits, splitter.slots), (edits, entries.slots))
        connect(m, splitter=splitter.popular, packer=packers["popular"].elements)
        connect(m, splitter=splitter.nonpopular, packer=packers["nonpopular"].elements)
        connect(m, splitter=splitter.misses, packer=packers["misses"].elements)
        connect(m, scans=scans.harvested, packer=packers["harvest"].elements)
        for number, name in enumerate(DEPOSITS):
            deposit = getattr(self, name)
            connect(m, control=control.requests[number], port=flipped(deposit.request))
            connect(m, port=flipped(deposit.outcome), control=control.landed[number])
            if name != "misses":
                connect(m, packer=packers[name].words, port=flipped(deposit.words))
        harvested = packers["harvest"].words
        merge(m, self.misses.words, (~harvested.valid, packers["misses"].words),
              (harvested.valid, harvested))
        return m
