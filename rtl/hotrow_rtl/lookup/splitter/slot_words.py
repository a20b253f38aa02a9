"""Slot words: the slot word of every lookup of a split batch, and the samples that are cold."""

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
    """Return each owner's slot or miss number, also for the lookups that joined the owner.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(crossbar_response(config, split_beat(config), config.slot_word_width)))
        Beats of batches that do not split are dropped.
    slots : Out(stream(lane_results(config, 32)))
        The contract's slot words.
    marks : Out(stream(marked_beat(config)))
        Samples that have a lookup without a slot, refused ones included.
    op : In(DirectoryOp)
        With a planner: the operation of a batch that splits, see `BankRequestStage`. A PLAN marks
        no samples, and the number of a missed lookup is its slot. A MARK is dropped.
    restart : In(1)
        A pulse drops the beats inside.

    Timing
    ------
    Latency `latency` cycles, one beat a cycle.
    """

    latency = 3  # store, read the beat joined, choose the lane

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
        ready, valid = Signal(), Signal(2)
        m.d.comb += [
            ready.eq((~slots.valid | slots.ready) & (~marks.valid | marks.ready)),
            self.beats.ready.eq(ready),
        ]
        for out in (slots, marks):
            with m.If(out.ready):
                m.d.sync += out.valid.eq(0)
        with m.If(ready):
            m.d.sync += [
                valid.eq(Cat(self.beats.valid & beat.carried.splits, valid)),
                slots.valid.eq(valid[1]),
                marks.valid.eq(valid[1]),
            ]
        flag = MISS_FLAG
        if c.planner:
            finds = self.op == DirectoryOp.FIND
            flag = Mux(finds, MISS_FLAG, 0)
            with m.If(ready):
                m.d.sync += [
                    valid[0].eq(self.beats.valid & beat.carried.splits
                                & (self.op != DirectoryOp.MARK)),
                    marks.valid.eq(valid[1] & finds),
                ]

        # A slot word without its upper bits: the miss flag, and the slot or number.
        word = data.StructLayout({"missed": 1, "value": c.slot_word_width})
        words = data.ArrayLayout(word, c.lanes)
        kept = data.StructLayout({
            "present": 1, "refused": 1, "back": range(c.window_beats + 1),
            "lane": range(c.lanes), "sample": marked_beat(c)["samples"].shape.elem_shape})
        beat_shape = data.StructLayout({"lanes": data.ArrayLayout(kept, c.lanes), "last": 1})
        own, chosen = (Signal(beat_shape, name=name, reset_less=True) for name in ("own", "chosen"))
        # Every lane has a copy of the words of the beats that it may join and of its own beat.
        entered = Signal(words)
        depth = 1 << (c.window_beats + 1).bit_length()  # one more, for the beat that enters
        at, own_at = (Signal(range(depth), name=name) for name in ("at", "own_at"))
        copies = [Ram(words.size, depth) for _ in lanes]
        # Timing: `beats.valid` is late and enables only these two addresses; a word that is stored
        # without a beat is overwritten.
        with m.If(ready & self.beats.valid):
            m.d.sync += [at.eq(at + 1), own_at.eq(at)]
        with m.If(ready):
            m.d.sync += own.last.eq(beat.carried.last)
        for number, (lane, to, into, answer) in enumerate(zip(
                beat.carried.lanes, own.lanes, entered, beat.answers, strict=True)):
            m.d.comb += [
                into.missed.eq(lane.missed),
                into.value.eq(Mux(lane.missed & ~lane.listed, answer, lane.number)),
            ]
            with m.If(ready):
                m.d.sync += [
                    *(to[name].eq(lane[name]) for name in ("present", "back", "sample")),
                    to.refused.eq(lane.present & (lane.status != Status.OK)),
                    to.lane.eq(Mux(lane.joins, lane.lane, number)),
                ]
        for lane, copy in enumerate(copies):
            m.submodules[f"words{lane}"] = copy
            m.d.comb += [
                copy.write_enable.eq(ready),
                copy.write_address.eq(at),
                copy.write_data.eq(entered.as_value()),
                copy.read_enable.eq(ready),
                copy.read_address.eq(own_at - own.lanes[lane].back),
            ]
        with m.If(ready):
            m.d.sync += chosen.eq(own)

        with m.If(ready):
            m.d.sync += [slots.p.last.eq(chosen.last), marks.p.last.eq(chosen.last)]
            for lane in lanes:
                kept, found = chosen.lanes[lane], Signal(word, name=f"found{lane}")
                m.d.comb += found.eq(data.View(words, copies[lane].read_data)[kept.lane])
                m.d.sync += [
                    slots.p.present[lane].eq(kept.present),
                    slots.p.values[lane].eq(Mux(
                        kept.refused, NO_SLOT,
                        Mux(found.missed, flag | found.value, found.value))),
                    marks.p.samples[lane].eq(kept.sample),
                    marks.p.marks[lane].eq(kept.present & (kept.refused | found.missed)),
                ]
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), slots.valid.eq(0), marks.valid.eq(0)]
        return m
