"""The reset of a design under cocotb, and the memory model on its AXI4 buses.

The responders sample inputs at the falling edge, after all logic has settled, and drive outputs
after the rising edge, as memory_model.hpp requires.
"""

from cocotb.triggers import FallingEdge, RisingEdge

READ_INPUTS = ("araddr", "arid", "arvalid", "arlen", "arsize", "arburst", "rready")
READ_OUTPUTS = ("arready", "rvalid", "rid", "rlast", "rresp")
WRITE_INPUTS = ("awaddr", "awid", "awvalid", "awlen", "awsize", "awburst", "wstrb", "wvalid",
                "wlast", "bready")
WRITE_OUTPUTS = ("awready", "wready", "bvalid", "bid", "bresp")


async def reset(dut, cycles=4):
    """Assert the reset input for some clock cycles."""
    dut.rst.value = 1
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


async def read_responder(dut, prefix, port):
    """Serve the read channels `prefix`araddr, ... from a `memory.ReadPort`, without end."""
    def drive():
        _drive(dut, prefix, port, READ_OUTPUTS)
        data = bytes(port.outputs.rdata[:port.bus_bytes])
        getattr(dut, f"{prefix}rdata").value = int.from_bytes(data, "little")

    await _serve(dut, prefix, port, READ_INPUTS, drive, lambda: None)


async def write_responder(dut, prefix, port):
    """Serve the write channels `prefix`awaddr, ... from a `memory.WritePort`, without end."""
    def sample_data():
        data = number(getattr(dut, f"{prefix}wdata"))
        port.inputs.wdata[:port.bus_bytes] = data.to_bytes(port.bus_bytes, "little")

    await _serve(dut, prefix, port, WRITE_INPUTS,
                 lambda: _drive(dut, prefix, port, WRITE_OUTPUTS), sample_data)


def number(signal):
    """Value of a signal, with undefined bits as zeros."""
    value = signal.value
    return int(value) if value.is_resolvable else int(str(value).translate(
        str.maketrans("xXzZuUwW-", "000000000")), 2)


def _drive(dut, prefix, port, names):
    for name in names:
        getattr(dut, f"{prefix}{name}").value = getattr(port.outputs, name)


async def _serve(dut, prefix, port, inputs, drive, sample_more):
    drive()
    while dut.rst.value != 0:
        await RisingEdge(dut.clk)
    while True:
        await FallingEdge(dut.clk)
        for name in inputs:
            setattr(port.inputs, name, number(getattr(dut, f"{prefix}{name}")))
        sample_more()
        await RisingEdge(dut.clk)
        port.tick()
        drive()
