"""Length buffer: the lengths of a jagged batch between their sum and their use."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.ram import Ram
from .length_sum import LENGTH_BYTES


def kept_words(config: Config) -> stream.Signature:
    """Bus words of lengths."""
    return stream.Signature(data.StructLayout({"data": config.bus_width}))


class LengthBuffer(wiring.Component):
    """FIFO of bus words with commit: words are output only after `keep`.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    i : In(stream)
        Words of `data`. Between two pulses of `keep` or `drop` there are at most as many as hold
        `config.stored_lengths`.
    keep, drop : In(1)
        A pulse commits, or drops, the words since the last pulse. `i.valid` is low in that cycle.
    o : Out(stream)
        The committed words, in order.

    Timing
    ------
    One word a cycle; the first is valid 3 cycles after `keep`. `i` stalls while the memory is full.
    """

    def __init__(self, config: Config):
        self.rows = config.stored_lengths * LENGTH_BYTES // config.bus_bytes
        self.config = config
        super().__init__({
            "i": In(kept_words(config)),
            "keep": In(1),
            "drop": In(1),
            "o": Out(kept_words(config)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Ram(self.config.bus_width, self.rows)
        write_at, read_at, begin = (
            Signal(range(self.rows), name=name) for name in ("write_at", "read_at", "begin"))
        free_count = Signal(range(self.rows + 1), init=self.rows)
        new_count, kept_count = (
            Signal(range(self.rows + 1), name=name) for name in ("new_count", "kept_count"))
        full, has_kept = Signal(), Signal()  # no row is free; words are committed
        store, load, read, output_ready = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            store.eq(self.i.valid & self.i.ready),
            output_ready.eq(~self.o.valid | self.o.ready),
            load.eq(has_kept & (~read | output_ready) & ~self.keep & ~self.drop),
            memory.write_enable.eq(store),
            memory.write_address.eq(write_at),
            memory.write_data.eq(self.i.p.data),
            memory.read_enable.eq(load),
            memory.read_address.eq(read_at),
        ]
        # Timing: the output of the memory is registered.
        with m.If(output_ready):
            m.d.sync += [self.o.valid.eq(read), self.o.p.data.eq(memory.read_data)]
        with m.If(load | output_ready):
            m.d.sync += read.eq(load)

        # Timing: `store` and `load` are late; they enable registers and do not enter carry chains.
        last_kept = Signal()
        m.d.comb += last_kept.eq(kept_count == 1)
        with m.If(load):
            m.d.sync += read_at.eq(read_at + 1)
        with m.If(store):
            m.d.sync += [write_at.eq(write_at + 1), new_count.eq(new_count + 1)]
        with m.If(store ^ load):
            m.d.sync += [free_count.eq(Mux(store, free_count - 1, free_count + 1)),
                         full.eq(store & (free_count == 1))]
        with m.If(load):
            m.d.sync += [kept_count.eq(kept_count - 1), has_kept.eq(~last_kept)]
        with m.If(self.drop):
            m.d.sync += [write_at.eq(begin), new_count.eq(0), free_count.eq(free_count + new_count),
                         full.eq(full & (new_count == 0))]
        with m.If(self.keep):
            m.d.sync += [begin.eq(write_at), new_count.eq(0), kept_count.eq(kept_count + new_count),
                         has_kept.eq(has_kept | (new_count != 0))]
        return m
