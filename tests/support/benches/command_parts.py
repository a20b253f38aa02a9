"""Registers tables and transfers commands in Amaranth's simulator."""

from amaranth import Const
from hotrow_rtl.interfaces.records import COMMAND_PART, COMMAND_PARTS, command


async def submit(ctx, port, operands):
    """Send `operands` to a stream of `command_part`."""
    bits = Const.cast(command.const({name: int(value) for name, value in operands.items()})).value
    for number in range(COMMAND_PARTS):
        ctx.set(port.p, {"number": number, "last": number == COMMAND_PARTS - 1,
                         "data": bits >> number * COMMAND_PART & (1 << COMMAND_PART) - 1})
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
    ctx.set(port.valid, 0)


async def drop(ctx, dut, memory, operands, cycles):
    """Send a command to a lookup engine, and restart it so many cycles after it was taken.

    `memory`, a `ListMemory`, restarts in the next cycle, as the ports do.
    """
    await submit(ctx, dut.engine.command, operands)
    for _ in range(cycles):
        _, _, valid = await ctx.tick().sample(dut.engine.outcome.valid)
        assert not valid, f"the command ended before the restart at {cycles} cycles"
    ctx.set(dut.restart, 1)
    await ctx.tick()
    ctx.set(dut.restart, 0)
    memory.restart()
    await ctx.tick()


async def register(ctx, port, entries):
    """Write the entries of tables or regions, by number, one per cycle."""
    for number, entry in entries.items():
        ctx.set(port.index, number)
        ctx.set(port.entry, entry)
        ctx.set(port.enable, 1)
        await ctx.tick()
    ctx.set(port.enable, 0)


async def receive(ctx, port):
    """Receive the operands of a command from a stream of `command_part`."""
    bits, last = 0, False
    ctx.set(port.ready, 1)
    while not last:
        part, = await ctx.tick().sample(port.p).until(port.valid)
        bits |= part.data << part.number * COMMAND_PART
        last = part.last
    ctx.set(port.ready, 0)
    return command.from_bits(bits)
