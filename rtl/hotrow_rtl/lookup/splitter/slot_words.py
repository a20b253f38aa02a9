"""Slot words: the slot word of every lookup of a split batch, and its cold samples."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import MISS_FLAG, NO_SLOT, Status
from ...interfaces.lookup_payloads import DirectoryOp, crossbar_response, lane_results
from ...primitives.ram import Ram
from .bitmap_write_rounds import marked_beat
from .miss_numbering import split_beat


class SlotWords(wiring.Component):
    """Form the slot word of each owner, and copy it to the lookups that joined the owner.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(crossbar_response(config, split_beat(config), config.slot_word_width)))
        The unit drops beats of batches that do not split.
    slots : Out(stream(lane_results(config, 32)))
        Slot words as in the contract.
    marks : Out(stream(marked_beat(config)))
        Samples of lookups without a slot, refused lookups included.
    op : In(DirectoryOp)
        With a planner: the operation of a batch that splits, as in `BankRequestStage`. A planned
        batch marks no samples, and a miss has its number as slot. The unit drops a marked batch.
    restart : In(1)
        A pulse drops the beats inside.

    Timing
    ------
    Latency `latency` cycles, one beat a cycle.
    """

    latency = 3  # store, read the beat of the owner, select its lane

    def __init__(self, config: Config):
        self.config = config
        beats = crossbar_response(config, split_beat(config), config.slot_word_width)
        super().__init__({
            "beats": In(stream.Signature(beats)),
            "slots": Out(stream.Signature(lane_results(config, 32))),
            "marks": Out(stream.Signature(marked_beat(config))),
            **({"op": In(DirectoryOp)} if config.planner else {}),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, beat, slots, marks = self.config, self.beats.p, self.slots, self.marks
        lanes = range(c.lanes)
        enable, valid = Signal(), Signal(2)
        m.d.comb += [
            enable.eq((~slots.valid | slots.ready) & (~marks.valid | marks.ready)),
            self.beats.ready.eq(enable),
        ]
        for out in (slots, marks):
            with m.If(out.ready):
                m.d.sync += out.valid.eq(0)
        with m.If(enable):
            m.d.sync += [
                valid.eq(Cat(self.beats.valid & beat.carried.splits, valid)),
                slots.valid.eq(valid[1]),
                marks.valid.eq(valid[1]),
            ]
        miss_flag = MISS_FLAG
        if c.planner:
            finds = self.op == DirectoryOp.FIND
            miss_flag = Mux(finds, MISS_FLAG, 0)
            with m.If(enable):
                m.d.sync += [
                    valid[0].eq(self.beats.valid & beat.carried.splits
                                & (self.op != DirectoryOp.MARK)),
                    marks.valid.eq(valid[1] & finds),
                ]

        word = data.StructLayout({"miss": 1, "value": c.slot_word_width})  # without upper bits
        words = data.ArrayLayout(word, c.lanes)
        lookup = data.StructLayout({
            "present": 1, "refused": 1, "back": range(c.window_beats + 1),
            "lane": range(c.lanes), "sample": marked_beat(c)["samples"].shape.elem_shape})
        lookups = data.StructLayout({"lanes": data.ArrayLayout(lookup, c.lanes), "last": 1})
        stored, read = (Signal(lookups, name=name, reset_less=True) for name in ("stored", "read"))
        # Each lane has a copy of the words of all beats within the window, and of the newest beat.
        beat_words = Signal(words)
        depth = 1 << (c.window_beats + 1).bit_length()
        address, stored_address = (
            Signal(range(depth), name=name) for name in ("address", "stored_address"))
        copies = [Ram(words.size, depth) for _ in lanes]
        # Timing: the late `beats.valid` enables only the addresses; the next beat overwrites what
        # is stored without a beat.
        with m.If(enable & self.beats.valid):
            m.d.sync += [address.eq(address + 1), stored_address.eq(address)]
        with m.If(enable):
            m.d.sync += stored.last.eq(beat.carried.last)
        for number, (lane, store, into, answer) in enumerate(zip(
                beat.carried.lanes, stored.lanes, beat_words, beat.answers, strict=True)):
            m.d.comb += [
                into.miss.eq(lane.missed),
                into.value.eq(Mux(lane.missed & ~lane.listed, answer, lane.number)),
            ]
            with m.If(enable):
                m.d.sync += [
                    *(store[name].eq(lane[name]) for name in ("present", "back", "sample")),
                    store.refused.eq(lane.present & (lane.status != Status.OK)),
                    store.lane.eq(Mux(lane.joins, lane.lane, number)),
                ]
        for lane, copy in enumerate(copies):
            m.submodules[f"words{lane}"] = copy
            m.d.comb += [
                copy.write_enable.eq(enable),
                copy.write_address.eq(address),
                copy.write_data.eq(beat_words.as_value()),
                copy.read_enable.eq(enable),
                copy.read_address.eq(stored_address - stored.lanes[lane].back),
            ]
        with m.If(enable):
            m.d.sync += [read.eq(stored), slots.p.last.eq(read.last), marks.p.last.eq(read.last)]
            for lane in lanes:
                lookup, owner = read.lanes[lane], Signal(word, name=f"owner{lane}")
                m.d.comb += owner.eq(data.View(words, copies[lane].read_data)[lookup.lane])
                m.d.sync += [
                    slots.p.present[lane].eq(lookup.present),
                    slots.p.values[lane].eq(Mux(
                        lookup.refused, NO_SLOT,
                        Mux(owner.miss, miss_flag | owner.value, owner.value))),
                    marks.p.samples[lane].eq(lookup.sample),
                    marks.p.marks[lane].eq(lookup.present & (lookup.refused | owner.miss)),
                ]
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), slots.valid.eq(0), marks.valid.eq(0)]
        return m
