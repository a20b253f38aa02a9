"""The engines behind the lookup queue, wired together."""

from amaranth import Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config
from .contract import HARVEST_ENTRY_BYTES, ROW_ENTRY_BYTES
from .counters import AccessCounters
from .directory import Directory
from .directory_list import DirectoryList
from .layouts import Deposit, Engine, Fetch, harvest_entry, row_entry, table_update
from .lookup_control import DEPOSITS, LookupControl, Unit
from .lookup_query import LookupQuery
from .lookup_reader import LookupReader
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
    """OBSERVE, DECAY, HARVEST, INSTALL, REMOVE and SPLIT, one command at a time.

    Members
    -------
    engine : In(Engine())
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
        A pulse drops the command in progress; counters, directory and descriptors stay. The
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
        m.submodules.serializer = serializer = LaneSerializer(config)
        m.submodules.counters = counters = AccessCounters(config)
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

        ready = True
        for unit in (reader, counters, directory, entries, splitter):
            m.d.comb += unit.restart.eq(self.restart)
            ready &= unit.ready
        m.d.comb += [
            serializer.restart.eq(self.restart),
            self.ready.eq(ready),
            control.cleared.eq(ready),
            entries.cleared.eq(directory.ready),
            directory.clear.eq(entries.clear),
        ]
        for unit in (reader, entries):
            for field in ("enable", "index", "entry"):
                m.d.comb += getattr(unit.table_update, field).eq(getattr(self.table_update, field))

        connect(m, engine=flipped(self.engine), control=control.engine)
        for start, unit, ended in ((control.counters, counters, control.counted),
                                   (control.entries, entries, control.listed),
                                   (control.splitter, splitter, control.split)):
            connect(m, control=start, unit=unit.command)
            connect(m, unit=unit.outcome, control=ended)
        connect(m, control=control.reader, reader=reader.command)
        connect(m, reader=reader.verdict, control=control.verdict)
        connect(m, reader=reader.lengths, lengths=flipped(self.lengths))
        connect(m, reader=reader.beats, serializer=serializer.beats)

        counts = control.unit == Unit.COUNTERS
        lists = control.unit == Unit.ENTRIES
        splits = control.unit == Unit.SPLITTER
        merge(m, self.source.request,
              (control.batch, reader.ids.request), (lists, entries.source.request))
        route(m, self.source.words,
              (control.batch, reader.ids.words), (lists, entries.source.words))
        route(m, serializer.lookups, (counts, counters.lookups), (splits, query.lookups))
        merge(m, directory.queries, (splits, query.queries), (lists, entries.queries))
        route(m, directory.answers, (splits, splitter.answers), (lists, entries.answers))

        merge(m, packers["slots"].elements, (splits, splitter.slots), (lists, entries.slots))
        connect(m, splitter=splitter.popular, packer=packers["popular"].elements)
        connect(m, splitter=splitter.nonpopular, packer=packers["nonpopular"].elements)
        connect(m, splitter=splitter.misses, packer=packers["misses"].elements)
        connect(m, counters=counters.harvested, packer=packers["harvest"].elements)
        for number, name in enumerate(DEPOSITS):
            deposit = getattr(self, name)
            connect(m, control=control.requests[number], port=flipped(deposit.request))
            connect(m, port=flipped(deposit.outcome), control=control.landed[number])
            if name != "misses":
                connect(m, packer=packers[name].words, port=flipped(deposit.words))
        merge(m, self.misses.words,
              (splits, packers["misses"].words), (counts, packers["harvest"].words))
        return m
