"""The row mover by itself: it gathers and scatters rows between tables and slots in memory."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..interfaces.records import command, engine_outcome
from ..memory.axi import AXI4, AXI4Read, AXI4Write
from ..memory.read_port import DmaReadPort
from ..mover.engine import RowMover
from ..mover.port.payloads import id_width
from .engine_commands import CONTROL, CommandParts, control, memory_region, register, row_table

LISTS = ("rows", "targets")  # clients of the list port


class RowMoverUnit(wiring.Component):
    """Gather listed rows of tables to slots, scatter slots to rows, copy and fill bytes.

    Commands are those of the contract: GATHER, SCATTER, COPY and FILL. The lists (`source` and
    `targets`) are byte addresses, each a multiple of 64; slots and bytes are packed addresses of
    registered regions. Each row of a GATHER or SCATTER is checked. The unit checks neither opcodes
    and sizes nor the bytes of COPY and FILL, multiples of 4, as `CommandValidator` does on a card.

    Parameters
    ----------
    config : Config
        Without arithmetic.

    Attributes
    ----------
    commands : In(stream(command))
        One by one.
    outcomes : Out(stream(engine_outcome(config)))
        One per command, once its last write is in memory.
    tables : In(stream(row_table(config)))
    regions : In(stream(memory_region(config)))
        Tables and regions before the first command that names them.
    m_axi_list : Out(AXI4Read)
        Reads the lists.
    m_axi_row0, ... : Out(AXI4)
        Read and write rows; `row_ports` of them.
    timeout : In(32)
        Cycles without progress, after which a command ends with TIMEOUT; 0 waits without limit.
    restart : In(1)
        A pulse drops the command inside; tables and regions stay.
    stopped : Out(1)
        A port has stopped for a time-out, until a restart.
    ready : Out(1)
        Low while tables and regions are cleared after reset, and while the ports drain after a
        restart.

    Timing
    ------
    See ``hotrow_sim.cycles.mover``.
    """

    def __init__(self, config: Config):
        if config.arithmetic:
            raise ValueError("the row mover stands alone with arithmetic=0")
        self.config = config
        bus = {"address_width": config.address_width, "bus_bytes": config.bus_bytes}
        rows = AXI4(AXI4Read(**bus, id_width=id_width(config)), AXI4Write(**bus, id_width=1))
        super().__init__({
            "commands": In(stream.Signature(command)),
            "outcomes": Out(stream.Signature(engine_outcome(config))),
            "tables": In(stream.Signature(row_table(config))),
            "regions": In(stream.Signature(memory_region(config))),
            "m_axi_list": Out(AXI4Read(**bus, id_width=1)),
            **{f"m_axi_row{number}": Out(rows) for number in range(config.row_ports)},
            **CONTROL,
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.parts = parts = CommandParts(c)
        m.submodules.mover = mover = RowMover(c)
        m.submodules.list_port = list_port = DmaReadPort(c, len(LISTS))
        connect(m, commands=flipped(self.commands), parts=parts.commands)
        connect(m, parts=parts.parts, mover=mover.engine.command)
        connect(m, mover=mover.engine.outcome, outcomes=flipped(self.outcomes))
        register(m, self.tables, [mover.table_update])
        register(m, self.regions, [mover.region_update])
        for number, name in enumerate(LISTS):
            connect(m, getattr(mover, name), list_port.clients[number])
        connect(m, list_port.bus, flipped(self.m_axi_list))
        for number in range(c.row_ports):
            for bus in (mover.read_buses[number], mover.write_buses[number]):
                outer = getattr(self, f"m_axi_row{number}")
                for name, member in bus.signature.members.items():
                    inner, pin = getattr(bus, name), getattr(outer, name)
                    m.d.comb += pin.eq(inner) if member.flow is Out else inner.eq(pin)
        draining = control(m, self, {"list": list_port}, idle=mover.idle, cleared=mover.ready,
                           stopped=mover.read_stopped | mover.write_stopped)
        m.d.comb += [
            mover.timeout.eq(self.timeout),
            mover.restart.eq(self.restart),
            parts.restart.eq(self.restart | draining),
            parts.enable.eq(self.ready),
        ]
        return m
