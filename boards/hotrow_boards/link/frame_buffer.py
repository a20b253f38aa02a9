"""Frames that wait until they are known to be whole."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out
from hotrow_rtl.contract.link_frames import CRC_BYTES, HEADER, HEADER_BYTES, WITH_PAYLOAD
from hotrow_rtl.primitives.ram import Ram

from .layouts import FRAME_BYTES, frame_byte

_OPERATION, _LENGTH = HEADER["operation"].offset, HEADER["length"].offset


class FrameBuffer(wiring.Component):
    """Let frames through whose CRC and length are right, without their CRC; drop the others.

    Parameters
    ----------
    depth : int
        Bytes, a power of two.
    peer_bytes : int
        That name the peer which a frame comes from.

    Members
    -------
    i : In(stream(frame_byte))
    peer : In(8 * peer_bytes)
        Of the frame that comes; looked at before its first byte is taken.
    o : Out(stream(8))
        Peer, header and payload of one frame after the other.
    good, bad_crc, wrong_length, overrun : Out(1)
        High for a cycle when a frame has ended, the last three as of `contract_link.COUNTERS`.

    Timing
    ------
    A byte a cycle, and for each frame two cycles and one for each byte of the peer; a frame leaves
    from 3 cycles after its end on.
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
        # Frames up to `end` are whole; the one that comes is written from there to `at`.
        at, end, read_at = (Signal(range(self.depth), name=name) for name in ("at", "end", "read"))
        count = Signal(range(FRAME_BYTES + CRC_BYTES + 2))  # stays at its largest
        full, too_long = Signal(), Signal()
        operation, length = Signal(8), Signal(16)
        lost = Signal()  # a byte found no room
        impossible, damaged, unexpected, body = Signal(), Signal(), Signal(), Signal.like(at)
        m.d.comb += [
            full.eq((at + 1)[:len(at)] == read_at),
            too_long.eq(count > FRAME_BYTES + CRC_BYTES),
            crc.data.eq(self.i.p.data),
            rows.write_address.eq(at),
            rows.write_data.eq(self.i.p.data),
        ]

        def store():
            with m.If(full):
                m.d.sync += lost.eq(1)
            with m.Elif(~too_long & ~lost):
                m.d.comb += rows.write_enable.eq(1)
                m.d.sync += at.eq(at + 1)

        with m.FSM(init="PEER" if self.peer_bytes else "TAKE"):
            if self.peer_bytes:
                with m.State("PEER"):
                    named = Signal(range(self.peer_bytes))
                    m.d.comb += rows.write_data.eq(self.peer.word_select(named, 8))
                    with m.If(self.i.valid):
                        store()
                        m.d.sync += named.eq(named + 1)
                        with m.If(named == self.peer_bytes - 1):
                            m.d.sync += named.eq(0)
                            m.next = "TAKE"
            with m.State("TAKE"):
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
                        m.next = "JUDGE"
            with m.State("JUDGE"):
                expected = Signal(17)
                writes = Cat(operation == each for each in WITH_PAYLOAD).any()
                m.d.comb += expected.eq(HEADER_BYTES + CRC_BYTES + Mux(writes, length, 0))
                m.d.sync += [
                    impossible.eq((count < HEADER_BYTES + CRC_BYTES) | too_long),
                    damaged.eq(~crc.match_detected),
                    unexpected.eq(count != expected),
                    body.eq(at - CRC_BYTES),
                ]
                m.next = "CLOSE"
            with m.State("CLOSE"):
                with m.If(impossible):
                    m.d.comb += self.wrong_length.eq(1)
                with m.Elif(damaged):
                    m.d.comb += self.bad_crc.eq(1)
                with m.Elif(unexpected):
                    m.d.comb += self.wrong_length.eq(1)
                with m.Elif(lost):
                    m.d.comb += self.overrun.eq(1)
                with m.Else():
                    m.d.comb += self.good.eq(1)
                whole = Signal.like(end)
                m.d.comb += whole.eq(Mux(self.good, body, end))
                m.d.comb += crc.start.eq(1)
                m.d.sync += [at.eq(whole), end.eq(whole), count.eq(0), lost.eq(0)]
                m.next = "PEER" if self.peer_bytes else "TAKE"

        load = Signal()
        m.d.comb += [
            load.eq((read_at != end) & (~self.o.valid | self.o.ready)),
            rows.read_enable.eq(load),
            rows.read_address.eq(read_at),
            self.o.p.eq(rows.read_data),
        ]
        m.d.sync += self.o.valid.eq(load | self.o.valid & ~self.o.ready)
        with m.If(load):
            m.d.sync += read_at.eq(read_at + 1)
        return m
