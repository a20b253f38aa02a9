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
