"""The region check of all command queues."""

from amaranth import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..interfaces.records import packed_address, region_update
from ..memory.region_check import RegionCheck
from .region_arbiter import RegionArbiter, RegionPort
from .ring_address import MAX_ENTRIES_LOG2, EntryPort, RingAddress


class QueueRegionPort(wiring.Signature):
    """A queue's view of `QueueRegions`.

    Attributes
    ----------
    completion_ring, command_ring : Out(packed_address)
    last : Out(MAX_ENTRIES_LOG2)
        Number of the last entry of both rings.
    completion, command : Out(EntryPort(config))
        The entries of the rings.
    operands : Out(RegionPort(config))
        Accesses of the commands.
    restart : Out(1)
        The queue drops its numbers and accesses.
    """

    def __init__(self, config: Config):
        super().__init__({
            "completion_ring": Out(packed_address),
            "command_ring": Out(packed_address),
            "last": Out(MAX_ENTRIES_LOG2),
            "completion": Out(EntryPort(config)),
            "command": Out(EntryPort(config)),
            "operands": Out(RegionPort(config)),
            "restart": Out(1),
        })


class QueueRegions(wiring.Component):
    """Check the accesses of all command queues to rings and lists, one at a time.

    Parameters
    ----------
    config : Config
    queues : int

    Attributes
    ----------
    region_update : In(region_update(config))
    queues : In(QueueRegionPort(config)).array(queues)
    ready : Out(1)
        Low while the regions are cleared after reset. A restart keeps them.

    Timing
    ------
    See `RingAddress` and `RegionArbiter`; an access waits for those of other queues.
    """

    def __init__(self, config: Config, queues: int):
        self.config = config
        super().__init__({
            "region_update": In(region_update(config)),
            "queues": In(QueueRegionPort(config)).array(queues),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        queues, connect, flipped = list(self.queues), wiring.connect, wiring.flipped
        m.submodules.check = check = RegionCheck(self.config)
        m.submodules.arbiter = arbiter = RegionArbiter(self.config, clients=1 + len(queues))
        rings = [(queue, kind) for kind in ("completion", "command") for queue in queues]
        m.submodules.rings = addresses = RingAddress(
            self.config, writes=tuple(kind == "completion" for _, kind in rings))
        connect(m, registers=flipped(self.region_update), check=check.update)
        connect(m, arbiter=arbiter.check.accesses, check=check.accesses)
        connect(m, arbiter=arbiter.check.verdicts, check=check.verdicts)
        for number, (queue, kind) in enumerate(rings):
            connect(m, queue=flipped(getattr(queue, kind)), rings=addresses.entries[number])
            m.d.comb += [
                addresses.rings[number].eq(getattr(queue, f"{kind}_ring")),
                addresses.last[number].eq(queue.last),
            ]
        connect(m, rings=addresses.region, arbiter=arbiter.clients[0])
        for queue, client in zip(queues, list(arbiter.clients)[1:], strict=True):
            connect(m, queue=flipped(queue.operands), arbiter=client)
        restarts = Cat(queue.restart for queue in queues)
        m.d.comb += [
            self.ready.eq(check.ready),
            arbiter.enable.eq(check.ready),
            addresses.restart.eq(Cat(restarts, restarts)),
            arbiter.restart.eq(Cat(addresses.region_restart, restarts)),
        ]
        return m
