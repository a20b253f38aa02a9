"""Register block under cocotb, accessed by cocotbext-axi's AXI4-Lite master."""

from itertools import cycle

import cocotb
from cocotb.clock import Clock
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import IDENTITY, VERSION
from hotrow_rtl.contract.registers import GEOMETRY, REGISTERS, Access, registers_of

from tests.support.cosim.pins import number, reset

CONFIG = preset("tiny")
INPUTS = ("queues__{}__tail", "queues__{}__head", "queues__{}__completed", "queues__{}__state",
          "queues__{}__refused", "queues__{}__completed_pulse")
PAUSES = (0, 1, 0, 0, 1, 1, 1, 0)


async def start(dut, pauses=None):
    """Reset; return a master whose channels stall by the pattern `pauses`, if given."""
    for queue in range(2):
        for name in INPUTS:
            getattr(dut, name.format(queue)).value = 0
    dut.ready.value, dut.stopped.value = 1, 0
    dut.retirement__retired.value = dut.retirement__refused.value = 0
    dut.events__request__ready.value = dut.events__reply__valid.value = 0
    dut.events__reply__payload.value = 0
    Clock(dut.clk, 10, unit="ns").start()
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "bus", bus_separator="__"), dut.clk, dut.rst)
    if pauses:
        write, read = master.write_if, master.read_if
        for shift, channel in enumerate((write.aw_channel, write.w_channel, write.b_channel,
                                         read.ar_channel, read.r_channel)):
            channel.set_pause_generator(cycle(pauses[shift:] + pauses[:shift]))
    await reset(dut)
    return master


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(pauses=[None, PAUSES])
async def registers_have_the_values_of_the_contract(dut, pauses):
    master = await start(dut, pauses)
    constants = {"IDENTITY": IDENTITY, "VERSION": VERSION, "STATUS": 1,
                 "PLAN_WINDOW": CONFIG.sweep_batches, **{
        name: getattr(CONFIG, parameter) for name, _, parameter in GEOMETRY}}
    for name, register in registers_of(CONFIG).items():
        if name.startswith(("CYCLE", "EVENT_VALUE")):
            continue
        data = await master.read(register.offset, 4)
        assert data.resp == AxiResp.OKAY, name
        assert int.from_bytes(data.data, "little") == constants.get(name, 0), name


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(pauses=[None, PAUSES])
async def strobes_select_the_bytes_written(dut, pauses):
    master = await start(dut, pauses)
    staging = [register for name, register in REGISTERS.items()
               if register.access is Access.READ_WRITE and name.startswith(("REGION_", "TABLE_"))]
    for place, register in enumerate(staging):
        await master.write_dword(register.offset, 0x0101_0101 * (place + 1))
        await master.write(register.offset + 1, b"\xAB\xCD")  # two of four strobes
    for place, register in enumerate(staging):
        expected = (0x0101_0101 * (place + 1) & 0xFF00_00FF) | 0x00CD_AB00
        assert await master.read_dword(register.offset) == expected, register.name


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(pauses=[None, PAUSES])
async def unknown_registers_answer_slverr(dut, pauses):
    master = await start(dut, pauses)
    fault = REGISTERS["FAULT"].offset
    for offset in (0x00C, 0x200, 0xFFC):
        assert (await master.read(offset, 4)).resp == AxiResp.SLVERR
        assert await master.read_dword(fault) == 4
        await master.write_dword(fault, 4)
        assert await master.read_dword(fault) == 0
        assert (await master.write(offset, bytes(4))).resp == AxiResp.SLVERR
        assert await master.read_dword(fault) == 4
        await master.write_dword(fault, 4)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_commit_sends_one_update(dut):
    master = await start(dut)
    pulses = []

    async def watch():
        from cocotb.triggers import FallingEdge
        while True:
            await FallingEdge(dut.clk)
            if number(dut.region_update__enable):
                pulses.append((number(dut.region_update__index), number(dut.region_update__entry)))

    cocotb.start_soon(watch())
    await master.write_dword(REGISTERS["REGION_HANDLE"].offset, 9)
    await master.write_dword(REGISTERS["REGION_BASE_LOW"].offset, 0x1230)
    await master.write_dword(REGISTERS["REGION_SIZE_LOW"].offset, 0x77)
    await master.write_dword(REGISTERS["REGION_COMMIT"].offset, 3)
    assert pulses == [(9, 3 | 0x123 << 2 | 0x77 << (2 + CONFIG.address_width - 4))]
    await master.write_dword(REGISTERS["REGION_HANDLE"].offset, CONFIG.handles)
    assert (await master.write(REGISTERS["REGION_COMMIT"].offset, bytes(4))).resp == AxiResp.SLVERR
    assert len(pulses) == 1, "an unknown handle changes nothing"
