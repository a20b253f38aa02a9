"""Sources and sinks for streams of a design under cocotb, with gaps and back-pressure."""

from itertools import cycle

from cocotb.triggers import FallingEdge, RisingEdge

from .memory_ports import number

STEADY = (0,)
RAGGED = (0, 0, 3, 1)


async def reset(dut, cycles=4):
    """Assert the reset input for some clock cycles."""
    dut.rst.value = 1
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


async def offer(dut, name, payloads, gaps=STEADY):
    """Send payloads (integers), with `gaps` idle cycles before each."""
    valid, ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
    for payload, gap in zip(payloads, cycle(gaps)):
        valid.value = 0
        for _ in range(gap):
            await RisingEdge(dut.clk)
        getattr(dut, f"{name}__payload").value = payload
        valid.value = 1
        fired = False
        while not fired:
            await FallingEdge(dut.clk)
            fired = ready.value == 1
            await RisingEdge(dut.clk)
    valid.value = 0


async def take(dut, name, count, pauses=STEADY):
    """Accept `count` payloads, with `pauses` cycles without `ready` before each; check that each
    one holds while it is stalled."""
    valid, ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
    received, held = [], None
    for pause in cycle(pauses):
        if len(received) == count:
            return received
        for step in range(pause + 1):
            ready.value = int(step == pause)
            await FallingEdge(dut.clk)
            offered = valid.value == 1
            payload = number(getattr(dut, f"{name}__payload")) if offered else None
            assert held is None or payload == held, (
                f"{name}: payload {len(received)} changed or vanished before it was accepted")
            await RisingEdge(dut.clk)
            held = payload if step < pause else None
            if offered and step == pause:
                received.append(payload)
        ready.value = 0
