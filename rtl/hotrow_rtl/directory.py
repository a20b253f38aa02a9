"""The directory: which row has which slot of the trainer's cache, and where a row may enter.

Rows are hashed into one set per hash choice; a set's ways lie side by side in one memory word. A
slot number is the place of the entry itself, (choice * sets + set) * ways + way, so that the
directory grows with slots and never with rows.

Source: two-choice hashing as in Azar et al., "Balanced Allocations", SIAM J. Computing 29 (1999);
the set of slots that a partition of tables owns is a range of set numbers.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .contract import Status
from .layouts import row_key
from .mixing_gates import mixed
from .ram import ClearedRam


class Edit(enum.Enum, shape=2):
    """What a query does to the directory besides asking."""

    NONE = 0
    INSTALL = 1
    REMOVE = 2


STATUS_WIDTH = max(Status).bit_length()


def directory_query(config: Config) -> data.StructLayout:
    """A row to look up. One that is not `present` or has an error `status` is passed through.

    `sample` and `last` travel along; the final query of a command may be absent.
    """
    return data.StructLayout({
        "present": 1,
        "status": STATUS_WIDTH,
        "key": row_key(config),
        "parts_log2": 3,
        "part": 6,
        "edit": Edit,
        "sample": log2(config.batch_samples),
        "last": 1,
    })


def directory_answer(config: Config) -> data.StructLayout:
    """`hit`: the row had a slot before; `placed`: `slot` is the one it has, got or gave up."""
    return data.StructLayout({
        "query": directory_query(config),
        "hit": 1,
        "placed": 1,
        "slot": log2(config.slots),
    })


def directory_set(config: Config) -> data.ArrayLayout:
    """One memory word: the ways of a set."""
    way = data.StructLayout({"valid": 1, "tag": config.directory_tag_width})
    return data.ArrayLayout(way, config.directory_ways)


class Directory(wiring.Component):
    """Answer one query a cycle; install or remove one row at a time.

    A row enters the set with more free ways, the first among equals, at the lowest free way.

    Members
    -------
    queries : In(stream(directory_query(config)))
    answers : Out(stream(directory_answer(config)))
        One per query, in order.
    clear : In(1)
        A pulse frees every slot; only while no query is in flight.
    restart : In(1)
        A pulse forgets the queries in flight and keeps the entries.
    ready : Out(1)
        Low while the memories are being cleared; queries then wait.

    Timing
    ------
    Latency 5 cycles (mix, place, read, compare, encode). One lookup a cycle; a query that edits
    has the pipeline to itself, so edits follow each other at every sixth cycle. Clearing takes
    `directory_sets` cycles.
    """

    latency = 5
    edit_cycles = latency + 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "queries": In(stream.Signature(directory_query(config))),
            "answers": Out(stream.Signature(directory_answer(config))),
            "clear": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.answers
        sets = []
        for choice in range(c.directory_choices):
            ram = ClearedRam(directory_set(c), c.directory_sets)
            m.submodules[f"choice{choice}"] = ram
            sets.append(ram)

        valid = Signal(self.latency)  # bit n: stage n holds a query; the last is the answer
        editing = Signal()
        advance = ~out.valid | out.ready
        edits = self.queries.p.edit != Edit.NONE
        taken = self.queries.valid & self.queries.ready
        m.d.comb += [
            out.valid.eq(valid[-1]),
            self.ready.eq(Cat(ram.ready for ram in sets).all()),
            self.queries.ready.eq(advance & self.ready & ~editing & (~edits | ~valid.any())),
        ]
        with m.If(advance):
            m.d.sync += valid.eq(Cat(taken, valid[:-1]))
        with m.If(taken & edits):
            m.d.sync += editing.eq(1)
        with m.Elif(out.valid & out.ready):
            m.d.sync += editing.eq(0)
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), editing.eq(0)]

        query = [self.queries.p]
        for stage in ("mixed", "placed", "read", "compared", "encoded"):
            query.append(Signal(directory_query(c), name=f"{stage}_query"))
            with m.If(advance):
                m.d.sync += query[-1].eq(query[-2])
        m.d.comb += out.p.query.eq(query[5])

        matches, free, vacancies, places = [], [], [], []
        for choice, ram in enumerate(sets):
            m.d.comb += [ram.clear.eq(self.clear), ram.read_enable.eq(advance & valid[1])]
            hashed = Signal(c.key_width, name=f"hashed{choice}")
            place = [Signal(data.StructLayout({
                "set": log2(c.directory_sets), "tag": c.directory_tag_width}),
                name=f"{stage}_place{choice}") for stage in ("placed", "read", "compared")]
            match = Signal(c.directory_ways, name=f"match{choice}")
            vacant = Signal(c.directory_ways, name=f"vacant{choice}")
            vacancy = Signal(range(c.directory_ways + 1), name=f"vacancies{choice}")
            is_free = Cat(~way.valid for way in ram.read_data)
            m.d.comb += ram.read_address.eq(place[0].set)
            with m.If(advance):
                m.d.sync += [
                    hashed.eq(mixed(query[0].key.as_value(), choice, c.key_width)),
                    place[0].set.eq(self._set(m, choice, hashed, query[1])),
                    place[0].tag.eq(hashed[-c.directory_tag_width:]),
                    place[1].eq(place[0]),
                    place[2].eq(place[1]),
                    match.eq(Cat(way.valid & (way.tag == place[1].tag) for way in ram.read_data)),
                    vacant.eq(is_free),
                    vacancy.eq(sum(is_free)),
                ]
            matches.append(match)
            free.append(vacant)
            vacancies.append(vacancy)
            places.append(place[2])

        # Encode: the first choice that holds the row, else the one with more room.
        hit, here, room = Signal(), Signal(), Signal()
        touched = Signal(c.directory_ways)
        place = Signal.like(places[0])
        m.d.comb += hit.eq(Cat(matches).any())
        if c.directory_choices == 2:
            m.d.comb += here.eq(Mux(hit, ~matches[0].any(), vacancies[1] > vacancies[0]))
        with m.Switch(here):
            for choice in range(c.directory_choices):
                with m.Case(choice):
                    lowest = free[choice] & -free[choice]
                    m.d.comb += [
                        touched.eq(Mux(hit, matches[choice], lowest)),
                        room.eq(free[choice].any()),
                        place.eq(places[choice]),
                    ]
        query, served = query[4], Signal()
        installs, removes = query.edit == Edit.INSTALL, query.edit == Edit.REMOVE
        way = Cat(Cat(touched[w] for w in range(c.directory_ways) if w >> bit & 1).any()
                  for bit in range(log2(c.directory_ways)))
        written = Signal(data.StructLayout({
            "enable": c.directory_choices, "set": len(place.set), "valid": 1,
            "tag": len(place.tag), "ways": c.directory_ways}))
        m.d.comb += served.eq(query.present & (query.status == Status.OK))
        with m.If(advance):
            m.d.sync += [
                out.p.hit.eq(served & hit),
                out.p.placed.eq(served & (hit | installs & room)),
                out.p.slot.eq(Cat(way, place.set, here)),
                written.enable.eq(Mux(
                    valid[3] & served & (installs & ~hit & room | removes & hit), 1 << here, 0)),
                written.set.eq(place.set),
                written.valid.eq(installs),
                written.tag.eq(place.tag),
                written.ways.eq(touched),
            ]

        # An edit is alone in the pipeline: the memory still shows the set that it read, and
        # writing it again while the answer waits changes nothing.
        for choice, ram in enumerate(sets):
            m.d.comb += [
                ram.write_enable.eq(out.valid & written.enable[choice]),
                ram.write_address.eq(written.set),
            ]
            for number in range(c.directory_ways):
                new, old = ram.write_data[number], ram.read_data[number]
                with m.If(written.ways[number]):
                    m.d.comb += [new.valid.eq(written.valid), new.tag.eq(written.tag)]
                with m.Else():
                    m.d.comb += new.eq(old)
        return m

    def _set(self, m, choice, hashed, query):
        """Number of the set: the partition above, the hash below, as the table divides them."""
        width = log2(self.config.directory_sets)
        chosen = Signal(width, name=f"set{choice}")
        with m.Switch(query.parts_log2):
            for parts in range(1, log2(self.config.directory_partitions) + 1):
                with m.Case(parts):
                    m.d.comb += chosen.eq(Cat(hashed[:width - parts], query.part[:parts]))
            with m.Default():
                m.d.comb += chosen.eq(hashed[:width])
        return chosen
