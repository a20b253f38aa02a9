"""Store the last replies of a card, to send them and to send them again."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out
from hotrow_rtl.contract.link_frames import CRC_BYTES
from hotrow_rtl.primitives.ram import Ram

from .layouts import FRAME_BYTES, frame_byte

SLOT_BYTES = 1 << (FRAME_BYTES - 1).bit_length()


class ReplyStore(wiring.Component):
    """Slots of one frame each; a frame is sent with its CRC.

    Parameters
    ----------
    slots : int
        A power of two of at least 2.

    Attributes
    ----------
    write_enable : In(1)
    write_slot, write_offset, write_data : In
        A byte of a frame and its address.
    length : In(range)
        Bytes of the frame in `write_slot`, stored while `write_length` is high.
    write_length : In(1)
    send : In(stream(range(slots)))
        Slot of the frame to send; accepted with the frame's last byte.
    o : Out(stream(frame_byte))

    Timing
    ------
    A byte every 2 cycles, one of the CRC every cycle; the first comes 2 cycles after `send`.
    """

    def __init__(self, slots):
        if slots < 2 or slots & (slots - 1):
            raise ValueError(f"slots must be a power of two of at least 2, not {slots}")
        self.slots = slots
        slot = range(slots)
        super().__init__({
            "write_enable": In(1),
            "write_slot": In(slot),
            "write_offset": In(range(SLOT_BYTES)),
            "write_data": In(8),
            "length": In(range(FRAME_BYTES + 1)),
            "write_length": In(1),
            "send": In(stream.Signature(slot)),
            "o": Out(stream.Signature(frame_byte)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(8, self.slots * SLOT_BYTES)
        m.submodules.crc = crc = CRC32_ETHERNET(data_width=8).create()
        lengths = Signal(data.ArrayLayout(len(self.length), self.slots))
        address = data.StructLayout({"offset": range(SLOT_BYTES), "slot": range(self.slots)})
        write_address, read_address = Signal(address), Signal(address)
        offset, crc_idx = Signal(range(SLOT_BYTES)), Signal(range(CRC_BYTES))
        m.d.comb += [
            rows.write_enable.eq(self.write_enable),
            rows.write_address.eq(write_address),
            rows.write_data.eq(self.write_data),
            write_address.slot.eq(self.write_slot),
            write_address.offset.eq(self.write_offset),
            read_address.slot.eq(self.send.p), read_address.offset.eq(offset),
            rows.read_address.eq(read_address),
            crc.data.eq(rows.read_data),
        ]
        with m.If(self.write_length):
            m.d.sync += lengths[self.write_slot].eq(self.length)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += [offset.eq(0), crc_idx.eq(0)]
                with m.If(self.send.valid):
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.sync += offset.eq(offset + 1)
                m.next = "BYTE"
            with m.State("BYTE"):
                m.d.comb += [
                    rows.read_enable.eq(0),
                    self.o.valid.eq(1),
                    self.o.p.data.eq(rows.read_data),
                    crc.valid.eq(self.o.ready),
                ]
                with m.If(self.o.ready):
                    m.next = "FETCH"
                    with m.If(offset == lengths[self.send.p]):
                        m.next = "CRC"
            with m.State("CRC"):
                crc_value = Signal(8 * CRC_BYTES)
                m.d.comb += [
                    crc_value.eq(crc.crc),
                    self.o.valid.eq(1),
                    self.o.p.data.eq(crc_value.word_select(crc_idx, 8)),
                    self.o.p.last.eq(crc_idx == CRC_BYTES - 1),
                ]
                with m.If(self.o.ready):
                    m.d.sync += crc_idx.eq(crc_idx + 1)
                    with m.If(self.o.p.last):
                        m.d.comb += self.send.ready.eq(1)
                        m.next = "IDLE"
        return m
