"""TagPool: which tags are free, which requests are late, and which completions are dropped."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitives.bits import onehot_to_index
from .layouts import TAG_BITS, TAGS


class TagPool(wiring.Component):
    """Give out tags, and take them back.

    A tag has two owners. The link owns it from the request to the last completion; the reader owns
    it until all data is returned. The tag is free when neither owns it. The reader gives up after a
    time-out: it gets an error, and the link keeps the tag, so that a late completion never belongs
    to a later request. The link gives up after the same time again; PCI Express has no bound.

    Parameters
    ----------
    count : int, optional
        Number of tags.

    Attributes
    ----------
    tags : Out(stream(TAG_BITS))
        A free tag. Its transfer starts a request.
    completed : In(1), completed_tag : In(TAG_BITS)
        The last completion of a tag has come, or an error that ends its request.
    released : In(1), released_tag : In(TAG_BITS)
        The reader has taken the data of a tag.
    in_flight : Out(TAGS)
        Tags of the link: others have no completion to come.
    done : Out(TAGS)
        Tags whose data has come, or whose time is over.
    late : Out(TAGS)
        Tags whose time is over.
    timeout : In(32)
        Cycles until a request is late: at least so many, at most twice as many. 0 waits for ever.

    Timing
    ------
    A tag can be given out two cycles after it became free; one tag every second cycle.
    """

    def __init__(self, count=TAGS):
        self.count = count
        super().__init__({
            "tags": Out(stream.Signature(TAG_BITS)),
            "completed": In(1),
            "completed_tag": In(TAG_BITS),
            "released": In(1),
            "released_tag": In(TAG_BITS),
            "in_flight": Out(count),
            "done": Out(count),
            "late": Out(count),
            "timeout": In(32),
        })

    def elaborate(self, platform):
        m = Module()
        held = Signal(self.count)  # by the reader
        free, lowest, taken = Signal(self.count), Signal(self.count), Signal()
        m.d.comb += [
            free.eq(~self.in_flight & ~held),
            lowest.eq(free & (~free + 1)),
            taken.eq(self.tags.valid & self.tags.ready),
        ]
        with m.If(self.tags.valid):  # the tag offered is still free: look again after its transfer
            m.d.sync += self.tags.valid.eq(~self.tags.ready)
        with m.Else():
            m.d.sync += [self.tags.valid.eq(free.any()),
                         self.tags.p.eq(onehot_to_index(lowest))]

        cycles, tick = Signal(32), Signal()
        m.d.comb += tick.eq((cycles >= self.timeout) & self.timeout.any())
        m.d.sync += cycles.eq(cycles + 1)
        with m.If(tick | ~self.timeout.any()):
            m.d.sync += cycles.eq(1)
        ages = [Signal(2, name=f"age_{tag}") for tag in range(self.count)]  # periods begun
        for tag, age in enumerate(ages):
            with m.If(tick & self.in_flight[tag]):
                m.d.sync += age.eq(age + 1)
                with m.If(age == 1):
                    m.d.sync += [self.late[tag].eq(1), self.done[tag].eq(1)]
                with m.If(age == 3):
                    m.d.sync += self.in_flight[tag].eq(0)
            with m.If(self.completed & (self.completed_tag == tag)):
                m.d.sync += [self.in_flight[tag].eq(0), self.done[tag].eq(held[tag])]
            with m.If(self.released & (self.released_tag == tag)):
                m.d.sync += [held[tag].eq(0), self.done[tag].eq(0)]
            with m.If(taken & (self.tags.p == tag)):
                m.d.sync += [age.eq(0), held[tag].eq(1), self.in_flight[tag].eq(1),
                             self.done[tag].eq(0), self.late[tag].eq(0)]
        return m
