"""The bridge behind cocotbext-pcie's root complex, with cocotbext-axi's masters and registers.

The root complex enumerates a function whose configuration space is a model, as the hard block's is
outside the bridge; memory requests and completions pass through the bridge's stream.
"""

import json
import os
from collections import deque
from pathlib import Path
from random import Random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteRam,
    AxiMasterRead,
    AxiMasterWrite,
    AxiReadBus,
    AxiResp,
    AxiWriteBus,
)
from cocotbext.pcie.core import Device, Endpoint, RootComplex
from cocotbext.pcie.core.tlp import Tlp, TlpFmt, TlpType
from hotrow_rtl.units.bridge import REGISTER_BITS
from hotrow_sim.bench import timing

UNIT = json.loads(Path(os.environ["HOTROW_UNIT"]).read_text())
WIDTH = 32 * UNIT["parameters"]["lanes"]
REGISTER_BYTES = 1 << REGISTER_BITS
REGION, NOWHERE = 1 << 14, 0x7654_0000_0000  # bytes of host memory; an address without any
MEMORY_REQUESTS = (TlpType.MEM_READ, TlpType.MEM_READ_64, TlpType.MEM_WRITE, TlpType.MEM_WRITE_64)


class Function(Endpoint):
    """A function with a BAR, whose memory requests and completions go to the bridge."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.configure_bar(0, 1 << 16)
        self.packets, self.spoil = [], []
        for kind in MEMORY_REQUESTS:
            self.register_rx_tlp_handler(kind, self.forward)

    async def forward(self, tlp):
        self.packets.append(tlp)

    async def handle_tlp(self, tlp):
        if tlp.is_completion():
            tlp.release_fc()
            self.packets.append(tlp)
        else:
            await super().handle_tlp(tlp)


def changed(tlp, **fields):
    """A copy of a packet with other fields."""
    copy = Tlp(tlp)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def next_packets(function, rng):
    """The next packet for the bridge: requests in order, completions of any tag. One with a payload
    becomes what the next of `spoil` makes of it."""
    first = {}
    for idx, tlp in enumerate(function.packets):
        first.setdefault(tlp.tag if tlp.is_completion() else None, idx)
    tlp = function.packets.pop(rng.choice(sorted(first.values())))
    sent = function.spoil.pop(0)(tlp) if function.spoil and tlp.data else [tlp]
    return [each.pack() for each in sent]


async def feed(dut, function, rng, stalls):
    """Send packets to the bridge, a beat at a time."""
    beats = deque()
    while True:
        for packet in next_packets(function, rng) if not beats and function.packets else ():
            for at in range(0, len(packet), WIDTH // 8):
                piece = packet[at:at + WIDTH // 8]
                data = sum(int.from_bytes(piece[dword:dword + 4], "big") << 8 * dword
                           for dword in range(0, len(piece), 4))
                keep = (1 << len(piece) // 4) - 1
                beats.append(data | keep << WIDTH
                             | (at + WIDTH // 8 >= len(packet)) << WIDTH + WIDTH // 32)
        if not beats or rng.random() < stalls:
            dut.received_valid.value = 0
            await RisingEdge(dut.clk)
            continue
        dut.received_payload.value = beats.popleft()
        dut.received_valid.value = 1
        await RisingEdge(dut.clk)
        while not dut.received_ready.value:
            await RisingEdge(dut.clk)
        dut.received_valid.value = 0


async def collect(dut, function, rng, stalls):
    """Pass the bridge's packets to the root complex."""
    packet = b""
    while True:
        ready = rng.random() >= stalls
        dut.sent_ready.value = ready
        await RisingEdge(dut.clk)
        if not ready or not dut.sent_valid.value:
            continue
        value = dut.sent_payload.value.to_unsigned()
        keep, last = value >> WIDTH & (1 << WIDTH // 32) - 1, value >> WIDTH + WIDTH // 32
        for dword in range(keep.bit_length()):
            packet += (value >> 32 * dword & 0xFFFF_FFFF).to_bytes(4, "big")
        if last:
            tlp = Tlp.unpack(packet)
            check_request(dut, tlp)
            await function.upstream_tx_handler(tlp)
            packet = b""


def check_request(dut, tlp):
    """A request keeps the rules of PCI Express, the limits of the host and bus master enable."""
    assert tlp.check(), tlp
    if tlp.fmt_type not in MEMORY_REQUESTS:
        return
    limit = dut.max_payload_bytes if tlp.data else dut.max_read_bytes
    assert 0 < 4 * tlp.length <= int(limit.value), tlp
    assert tlp.first_be and bool(tlp.last_be) == (tlp.length > 1), tlp
    assert (tlp.address >= 1 << 32) == (tlp.fmt in (TlpFmt.FOUR_DW, TlpFmt.FOUR_DW_DATA)), tlp
    assert int(dut.master.value), f"without bus master enable: {tlp}"


@cocotb.test(timeout_time=4000, timeout_unit="us")
@cocotb.parametrize(stalls=[0.0, 0.3], limits=[(0, 0, 64), (1, 2, 128)])
async def a_host_and_a_card(dut, stalls, limits):
    payload, request, boundary = limits
    rng = Random(f"{stalls} {limits}")
    root, device = RootComplex(), Device()
    root.split_on_all_rcb = bool(payload)
    function = Function()
    device.append_function(function)
    root.make_port().connect(device)
    for name in ("master", "received_valid", "sent_ready"):
        getattr(dut, name).value = 0
    for name, value in (("timeout", 20_000), ("identity", 0),
                        ("max_payload_bytes", 128 << payload), ("max_read_bytes", 128 << request)):
        getattr(dut, name).value = value
    Clock(dut.clk, 8, unit="ns").start()
    timing.start(dut, UNIT)
    dut.rst.value = 1
    registers = AxiLiteRam(AxiLiteBus.from_prefix(dut, "registers"),
                           dut.clk, dut.rst, size=REGISTER_BYTES)
    readers = [AxiMasterRead(AxiReadBus.from_prefix(dut, f"read_{idx}"),
                             dut.clk, dut.rst, max_burst_len=256) for idx in range(2)]
    writers = [AxiMasterWrite(AxiWriteBus.from_prefix(dut, f"write_{idx}"),
                              dut.clk, dut.rst, max_burst_len=64) for idx in range(2)]
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    cocotb.start_soon(feed(dut, function, rng, stalls))
    cocotb.start_soon(collect(dut, function, rng, stalls))

    # Enumeration, and the settings that the hard block reports to the card.
    root.max_payload_size, root.read_completion_boundary = payload, boundary == 128
    await root.enumerate()
    card = root.find_device(function.pcie_id)
    await card.enable_device()
    dut.identity.value = int(function.pcie_id)
    await card.set_master()
    dut.master.value = int(function.bus_master_enable)

    # Registers.
    window, held = card.bar_window[0], bytearray(rng.randbytes(REGISTER_BYTES))
    registers.write(0, bytes(held))
    for size in (1, 2, 4, 8, 64):
        at, octets = rng.randrange(0, REGISTER_BYTES - 64, 4), rng.randbytes(size)
        at += rng.randrange(5 - size) if size < 4 else 0
        await window.write(at, octets)
        held[at:at + size] = octets
        assert await with_timeout(window.read(at, size), 20, "us") == octets
        assert registers.read(0, REGISTER_BYTES) == held

    # Memory of the host, both sides of 4 GiB if the pool has them.
    where, memory = root.alloc_region(REGION)
    memory[:] = rng.randbytes(REGION)
    page = REGION // 4
    for size in (8, 64, 100, 1000, page):
        at = rng.randrange(0, page - size + 1) & ~(WIDTH // 8 - 1)
        start = get_sim_time("ns")
        results = [await task for task in [
            cocotb.start_soon(reader.read(where + half * page + at, size))
            for half, reader in enumerate(readers)]]
        if size == page and not stalls:
            taken = (get_sim_time("ns") - start) / 8
            dut._log.info(f"cycles: {taken:.0f} for reads of {2 * page * 8 // WIDTH} words")
        for half, result in enumerate(results):
            assert result.data == memory[half * page + at:half * page + at + size]
        at = rng.randrange(0, page - size + 1)
        octets = [rng.randbytes(size) for _ in writers]
        for task in [cocotb.start_soon(writer.write(where + (2 + half) * page + at, octets[half]))
                     for half, writer in enumerate(writers)]:
            assert (await task).resp == AxiResp.OKAY
        await window.read(0, 4)  # its completion passes no write
        for half, written in enumerate(octets):
            start = (2 + half) * page + at
            assert memory[start:start + size] == written
    refused = await readers[0].read(NOWHERE, 64)
    assert refused.resp == AxiResp.DECERR

    # Damage on the way: wrong completions are dropped, a poisoned or lost one ends its read, and a
    # poisoned write changes nothing.
    for wrong in (lambda tlp: {"byte_count": tlp.byte_count + WIDTH // 8},
                  lambda tlp: {"lower_address": tlp.lower_address ^ 0x40},
                  lambda tlp: {"tag": tlp.tag ^ 1}):
        function.spoil.append(lambda tlp, wrong=wrong: [
            changed(tlp, data=bytes(len(tlp.data)), **wrong(tlp)), tlp])
        assert (await readers[0].read(where, 128)).data == memory[:128]
    function.spoil.append(lambda tlp: [changed(tlp, ep=True)])
    assert (await readers[1].read(where, 64)).resp == AxiResp.SLVERR
    dut.timeout.value = 400
    function.spoil.append(lambda tlp: [])
    assert (await readers[0].read(where, 64)).resp == AxiResp.DECERR
    dut.timeout.value = 20_000
    function.spoil.append(lambda tlp: [changed(tlp, ep=True)])
    await window.write(0, bytes(4))
    await with_timeout(window.read(0, 4), 20, "us")
    assert registers.read(0, REGISTER_BYTES) == held
    await card.clear_master()
    dut.master.value = int(function.bus_master_enable)
    octets = bytes(memory[:REGION])
    for access in (readers[0].read(where, 64), writers[0].write(where, bytes(64))):
        assert (await access).resp == AxiResp.DECERR
    assert await with_timeout(window.read(0, 4), 20, "us") and bytes(memory[:REGION]) == octets
