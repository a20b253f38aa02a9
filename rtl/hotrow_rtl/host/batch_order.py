"""Order of batches in flight by the memory that they read and write."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import LIST_ALIGNMENT, Config, log2
from ..interfaces.records import BATCHES_IN_FLIGHT, LIST_BYTES_WIDTH
from ..primitives.ram import Ram

RESULTS = 4  # lists that a SPLIT writes


def list_range(config: Config) -> data.StructLayout:
    """A list of `bytes` from byte address `first` * LIST_ALIGNMENT that a command reads or writes.
    """
    return data.StructLayout({
        "first": config.address_width - log2(LIST_ALIGNMENT), "bytes": LIST_BYTES_WIDTH,
        "write": 1})


class BatchOrder(wiring.Component):
    """Find whether a batch uses memory that an earlier batch in flight writes.

    Addresses are compared, not handles, as regions may share memory, in units of LIST_ALIGNMENT.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    accepted : In(1)
        The next command begins; its lists follow.
    ranges : In(stream(list_range(config)))
        The lists of the command accepted last.
    reported : In(1)
        The oldest command in flight has completed.
    depends : Out(1)
        One of the lists accepted so far overlaps a list that an earlier batch in flight writes.
        Valid from the cycle after the command's last list on, until the next command.

    Timing
    ------
    2 cycles per list, and `BATCHES_IN_FLIGHT` * 4 + 2 more while earlier batches write.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "accepted": In(1),
            "ranges": In(stream.Signature(list_range(config))),
            "reported": In(1),
            "depends": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        ranges, first = self.ranges, self.ranges.p.first
        end = Signal(len(first) + 1)
        # Numbers of commands, modulo the depth.
        newest, oldest = Signal(range(BATCHES_IN_FLIGHT)), Signal(range(BATCHES_IN_FLIGHT), init=1)
        writes = Signal(BATCHES_IN_FLIGHT)  # the command in flight writes lists
        written = Signal(range(RESULTS))  # lists of the newest command
        m.submodules.lists = lists = Ram(
            data.StructLayout({"first": len(first), "end": len(end)}), BATCHES_IN_FLIGHT * RESULTS)
        row = Signal(range(BATCHES_IN_FLIGHT * RESULTS))
        # Timing: registers between the memory, the comparisons and their result.
        read, is_read, compared = Signal.like(row), Signal(), Signal()
        before_end, after_first = Signal(), Signal()
        low = log2(LIST_ALIGNMENT)
        units = Signal(LIST_BYTES_WIDTH - low + 1)
        others = Signal(BATCHES_IN_FLIGHT)  # of `writes`, without the newest
        m.d.comb += [
            units.eq(ranges.p.bytes[low:] + ranges.p.bytes[:low].any()),
            others.eq(writes & ~(1 << newest)),
            lists.read_address.eq(row),
            lists.write_address.eq(newest * RESULTS + written),
            lists.write_data.first.eq(first),
            lists.write_data.end.eq(end),
        ]
        m.d.sync += [
            end.eq(first + units),
            is_read.eq(0),
            read.eq(row),
            compared.eq(is_read & others.bit_select(read // RESULTS, 1)),
            after_first.eq(lists.read_data.first < end),
            before_end.eq(first < lists.read_data.end),
        ]
        with m.If(compared & after_first & before_end):
            m.d.sync += self.depends.eq(1)

        with m.FSM():
            with m.State("IDLE"), m.If(ranges.valid):
                m.d.sync += row.eq(0)
                m.next = "COMPARE"
                with m.If(~others.any()):
                    m.next = "STORE"
            with m.State("COMPARE"):
                m.d.sync += [row.eq(row + 1), is_read.eq(1)]
                with m.If(row == BATCHES_IN_FLIGHT * RESULTS - 1):
                    m.next = "COMPARE LAST"
            # Until the last result is registered.
            with m.State("COMPARE LAST"), m.If(~is_read & ~compared):
                m.next = "STORE"
            with m.State("STORE"):
                m.d.comb += [ranges.ready.eq(1), lists.write_enable.eq(ranges.p.write)]
                with m.If(ranges.p.write):
                    m.d.sync += [
                        written.eq(written + 1),
                        writes.eq(writes | 1 << newest),
                    ]
                m.next = "IDLE"

        with m.If(self.accepted):
            m.d.sync += [newest.eq(newest + 1), written.eq(0), self.depends.eq(0)]
        with m.If(self.reported):
            m.d.sync += [oldest.eq(oldest + 1), writes.bit_select(oldest, 1).eq(0)]
        return m
