"""The accelerator under cocotb as a transport for ordinary host code.

Host code runs in its own thread (`cocotb.task.bridge`); each method resumes the simulation and
returns with its response.
"""

from cocotb.task import resume
from cocotb.triggers import ClockCycles
from hotrow_rtl.contract.encoding import QUEUES
from hotrow_rtl.contract.registers import REGISTERS
from hotrow_sim.address_space import AddressSpace

POLLS = 64  # reads of COMPLETED before `wait` returns; host code waits again
POLL_INTERVAL = 32  # cycles


class CosimTransport:
    """Transport to a device under cocotb.

    Parameters
    ----------
    dut : simulator handle
        Its clock input is `clk`.
    master : cocotbext.axi.AxiLiteMaster
        On the register bus.
    memory : memory.MemoryModel
        On the other buses.
    config : Config
    """

    name = "cosim"

    def __init__(self, dut, master, memory, config):
        self.dut, self.master, self.memory, self.config = dut, master, memory, config
        self._space = AddressSpace(config.address_width)

    @resume
    async def read_register(self, offset):
        return await self._read(offset)

    @resume
    async def write_register(self, offset, value):
        await self.master.write_dword(offset, value)

    def attach(self, array, writable):
        address = self._space.place(array.ctypes.data, array.size)
        self.memory.map(array, address, writable)
        return address

    def detach(self, address):
        self._space.release(address)
        self.memory.unmap(address)

    @resume
    async def wait(self, queue, completed, timeout):
        register = REGISTERS[f"{QUEUES[queue].upper()}_COMPLETED"].offset
        for _ in range(POLLS):
            if await self._read(register) != completed:
                return
            await ClockCycles(self.dut.clk, POLL_INTERVAL)

    def close(self):
        """Does nothing: the simulation owns the device."""

    async def _read(self, offset):
        return await self.master.read_dword(offset)
