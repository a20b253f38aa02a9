"""The lookup engine by itself: the hot and cold splitter, or with a planner that plans ahead."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..interfaces.records import command, engine_outcome
from ..interfaces.retirement import Retirement
from ..lookup.engine import LookupEngine
from ..memory.axi import AXI4Read, AXI4Write
from ..memory.read_port import DmaReadPort
from ..top import RESULT_CLIENTS, result_port
from .engine_commands import CONTROL, CommandParts, control, lookup_table, register

SOURCES = ("source", "lengths")  # clients of the list port
RESULTS = tuple(name for name, client in RESULT_CLIENTS.items() if client.unit == "engines")


class LookupUnit(wiring.Component):
    """The lookup engine with its AXI4 ports. See the units that are made of it.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    commands, outcomes, tables, retirement, m_axi_list, m_axi_result, timeout, restart, stopped, \
ready
        See `HotColdSplitter`.

    Timing
    ------
    As `LookupEngine`.
    """

    def __init__(self, config: Config):
        self.config = config
        bus = {"address_width": config.address_width, "bus_bytes": config.bus_bytes}
        super().__init__({
            "commands": In(stream.Signature(command)),
            "outcomes": Out(stream.Signature(engine_outcome(config))),
            "tables": In(stream.Signature(lookup_table(config))),
            **({"retirement": In(Retirement())} if config.planner else {}),
            "m_axi_list": Out(AXI4Read(**bus, id_width=1)),
            "m_axi_result": Out(AXI4Write(**bus, id_width=(len(RESULTS) - 1).bit_length())),
            **CONTROL,
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.parts = parts = CommandParts(c)
        m.submodules.engine = engine = LookupEngine(c)
        m.submodules.list_port = list_port = DmaReadPort(c, len(SOURCES))
        m.submodules.result_port = results = result_port(c, RESULTS)
        connect(m, commands=flipped(self.commands), parts=parts.commands)
        connect(m, parts=parts.parts, engine=engine.engine.command)
        connect(m, engine=engine.engine.outcome, outcomes=flipped(self.outcomes))
        register(m, self.tables, [engine.table_update])
        if c.planner:
            connect(m, host=flipped(self.retirement), engine=engine.retirement)
            if results.striped:
                m.d.comb += results.bypass_striping.eq(engine.bypass_striping)
        for number, name in enumerate(SOURCES):
            connect(m, getattr(engine, name), list_port.clients[number])
        for number, name in enumerate(RESULTS):
            connect(m, getattr(engine, RESULT_CLIENTS[name].member), results.clients[number])
        connect(m, list_port.bus, flipped(self.m_axi_list))
        connect(m, results.bus, flipped(self.m_axi_result))

        draining = control(m, self, {"list": list_port, "result": results}, cleared=engine.ready)
        m.d.comb += [
            engine.restart.eq(self.restart),
            parts.restart.eq(self.restart | draining),
            parts.enable.eq(self.ready),
        ]
        return m


class HotColdSplitter(LookupUnit):
    """Split the samples of a batch into those whose rows all have slots, and the others.

    Hot rows get slots by INSTALL. A SPLIT then reads a batch of ids from memory, and writes the
    slot of each lookup, the positions of the samples whose lookups all hit (popular), those of the
    other samples (nonpopular), and each missed row once. OBSERVE, DECAY and HARVEST count accesses,
    REMOVE frees slots.

    Commands are those of the contract, with byte addresses in place of packed ones: each list
    starts at a multiple of 64. The unit checks neither opcodes nor sizes nor tables, as
    `CommandValidator` does on a card.

    Parameters
    ----------
    config : Config
        Without a planner.

    Attributes
    ----------
    commands : In(stream(command))
        Accepted one by one; several batches are inside.
    outcomes : Out(stream(engine_outcome(config)))
        One per command, in order, once its results are in memory.
    tables : In(stream(lookup_table(config)))
        Every table before the first batch or list that names it.
    m_axi_list : Out(AXI4Read)
        Reads ids, lengths and lists of rows.
    m_axi_result : Out(AXI4Write)
        Writes results.
    timeout : In(32)
        Cycles without an answer of the memory, after which a command ends with TIMEOUT; 0 waits
        without limit.
    restart : In(1)
        A pulse drops the commands inside; counts, slots and tables stay.
    stopped : Out(1)
        A port has stopped for a time-out, until a restart.
    ready : Out(1)
        Low while the memories are cleared after reset, and while the ports drain after a restart.

    Timing
    ------
    One bus word of ids a cycle while no two rows of a bank share a set, without a gap between
    batches. See ``hotrow_sim.model.command_cycles``.
    """

    def __init__(self, config: Config):
        if config.planner:
            raise ValueError("the splitter has no planner: planner must be False")
        super().__init__(config)


class LookAheadPlanner(LookupUnit):
    """Give slots to the rows of coming batches, so that every row is in its slot when it is used.

    A PLAN reads a batch of ids from memory, and writes the slot of each lookup, the rows to fetch
    with their slots, and the rows to write back with theirs. A slot of a batch is not given away
    until the batch is retired. A MARK holds the slots of the rows of a later batch. The commands of
    `HotColdSplitter` are there, too, but for SPLIT's samples.

    Parameters
    ----------
    config : Config
        With a planner.

    Attributes
    ----------
    commands, outcomes, tables, m_axi_list, m_axi_result, timeout, restart, stopped, ready
        See `HotColdSplitter`.
    retirement : In(Retirement())
        A pulse of `write` retires the batches up to `number`.

    Timing
    ------
    One bus word of ids a cycle while no two rows of a bank share a set, without a gap between
    batches. See ``hotrow_sim.model.command_cycles``.
    """

    def __init__(self, config: Config):
        if not config.planner:
            raise ValueError("the planner needs planner=True")
        super().__init__(config)
