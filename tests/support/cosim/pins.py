"""The reset of a design under cocotb, and the values of its pins."""

from cocotb.triggers import RisingEdge


async def reset(dut, cycles=4):
    """Assert the reset input for some clock cycles."""
    dut.rst.value = 1
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


def number(signal):
    """Value of a signal, with undefined bits as zeros."""
    value = signal.value
    return int(value) if value.is_resolvable else int(str(value).translate(
        str.maketrans("xXzZuUwW-", "000000000")), 2)
