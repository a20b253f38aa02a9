"""Store frames until their CRC and length are checked."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out
from hotrow_rtl.contract.link_frames import CRC_BYTES, HEADER, HEADER_BYTES, WITH_PAYLOAD
from hotrow_rtl.primitives.ram import Ram

from .layouts import FRAME_BYTES, frame_byte

_OPERATION, _LENGTH = HEADER["operation"].offset, HEADER["length"].offset


class FrameBuffer(wiring.Component):
    """Pass on frames with the right CRC and length, without the CRC, and drop all others.

    Parameters
    ----------
    depth : int
        Bytes, a power of two.
    peer_bytes : int
        Bytes of a peer's address.

    Attributes
    ----------
    i : In(stream(frame_byte))
    peer : In(8 * peer_bytes)
        Sender of the frame in `i`, sampled before `i` accepts its first byte.
    o : Out(stream(8))
        Peer, header and payload of each frame.
    good, bad_crc, wrong_length, overrun : Out(1)
        Result of a frame, high for a cycle after its end; see `link_frames.COUNTERS`.

    Timing
    ------
    A byte a cycle, plus 2 cycles per frame and 1 per byte of the peer. `o` begins with a frame 4
    cycles after its last byte.
    """

    def __init__(self, depth, peer_bytes=0):
        if depth & (depth - 1) or depth <= FRAME_BYTES + CRC_BYTES:
            raise ValueError(f"depth must be a power of two above {FRAME_BYTES + CRC_BYTES}, not "
                             f"{depth}")
        self.depth, self.peer_bytes = depth, peer_bytes
        super().__init__({
            "i": In(stream.Signature(frame_byte)),
            "peer": In(8 * peer_bytes),
            "o": Out(stream.Signature(8)),
            "good": Out(1),
            "bad_crc": Out(1),
            "wrong_length": Out(1),
            "overrun": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(8, self.depth)
        m.submodules.crc = crc = CRC32_ETHERNET(data_width=8).create()
        # Bytes before `end` belong to checked frames; the frame in `i` is written from there.
        write_idx, end, read_idx = (
            Signal(range(self.depth), name=name) for name in ("write_idx", "end", "read_idx"))
        count = Signal(range(FRAME_BYTES + CRC_BYTES + 2))  # saturates
        full, too_long = Signal(), Signal()
        operation, length = Signal(8), Signal(16)
        overflow = Signal()  # of this frame: a byte was dropped because the buffer was full
        bad_size, damaged, bad_length, body_end = Signal(), Signal(), Signal(), Signal.like(end)
        m.d.comb += [
            full.eq((write_idx + 1)[:len(write_idx)] == read_idx),
            too_long.eq(count > FRAME_BYTES + CRC_BYTES),
            crc.data.eq(self.i.p.data),
            rows.write_address.eq(write_idx),
            rows.write_data.eq(self.i.p.data),
        ]

        def store():
            with m.If(full):
                m.d.sync += overflow.eq(1)
            with m.Elif(~too_long & ~overflow):
                m.d.comb += rows.write_enable.eq(1)
                m.d.sync += write_idx.eq(write_idx + 1)

        with m.FSM(init="PEER" if self.peer_bytes else "RECEIVE"):
            if self.peer_bytes:
                with m.State("PEER"):
                    peer_idx = Signal(range(self.peer_bytes))
                    m.d.comb += rows.write_data.eq(self.peer.word_select(peer_idx, 8))
                    with m.If(self.i.valid):
                        store()
                        m.d.sync += peer_idx.eq(peer_idx + 1)
                        with m.If(peer_idx == self.peer_bytes - 1):
                            m.d.sync += peer_idx.eq(0)
                            m.next = "RECEIVE"
            with m.State("RECEIVE"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.comb += crc.valid.eq(1)
                    m.d.sync += count.eq(Mux(too_long, count, count + 1))
                    store()
                    with m.If(count == _OPERATION):
                        m.d.sync += operation.eq(self.i.p.data)
                    for byte in range(2):
                        with m.If(count == _LENGTH + byte):
                            m.d.sync += length.word_select(byte, 8).eq(self.i.p.data)
                    with m.If(self.i.p.last):
                        m.next = "CHECK"
            with m.State("CHECK"):
                expected = Signal(17)
                writes = Cat(operation == each for each in WITH_PAYLOAD).any()
                m.d.comb += expected.eq(HEADER_BYTES + CRC_BYTES + Mux(writes, length, 0))
                m.d.sync += [
                    bad_size.eq((count < HEADER_BYTES + CRC_BYTES) | too_long),
                    damaged.eq(~crc.match_detected),
                    bad_length.eq(count != expected),
                    body_end.eq(write_idx - CRC_BYTES),
                ]
                m.next = "CLOSE"
            with m.State("CLOSE"):
                with m.If(bad_size):
                    m.d.comb += self.wrong_length.eq(1)
                with m.Elif(damaged):
                    m.d.comb += self.bad_crc.eq(1)
                with m.Elif(bad_length):
                    m.d.comb += self.wrong_length.eq(1)
                with m.Elif(overflow):
                    m.d.comb += self.overrun.eq(1)
                with m.Else():
                    m.d.comb += self.good.eq(1)
                new_end = Signal.like(end)
                m.d.comb += new_end.eq(Mux(self.good, body_end, end))
                m.d.comb += crc.start.eq(1)
                m.d.sync += [write_idx.eq(new_end), end.eq(new_end), count.eq(0), overflow.eq(0)]
                m.next = "PEER" if self.peer_bytes else "RECEIVE"

        load = Signal()
        m.d.comb += [
            load.eq((read_idx != end) & (~self.o.valid | self.o.ready)),
            rows.read_enable.eq(load),
            rows.read_address.eq(read_idx),
            self.o.p.eq(rows.read_data),
        ]
        m.d.sync += self.o.valid.eq(load | self.o.valid & ~self.o.ready)
        with m.If(load):
            m.d.sync += read_idx.eq(read_idx + 1)
        return m
