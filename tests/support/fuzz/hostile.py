"""Random descriptors, doorbells and register writes: the card stays within bounds and recovers.

A round submits commands with random bits, in part or as a whole; in every other round the host
meanwhile writes random values to random registers, doorbells among them. No result is predicted.
Then the card must be still, every completion legal, the memory that the host did not register for
writing unchanged, and after a soft reset both queues must run sound commands:

    make hostile ARGS="--accesses 1000000 --seed 1"

A failure prints the command that repeats its session and leaves a waveform.
"""

import sys
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from hotrow_rtl.contract.encoding import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    QUEUES,
    AllFlag,
    Opcode,
    Status,
)
from hotrow_rtl.contract.registers import REGISTERS, StatusBits
from hotrow_rtl.contract.registers import QueueControlBits as Queue
from hotrow_rtl.contract.registers import QueueStateBits as State

from ..bare_host import aligned
from .commands import ADDRESSES, CommandSource
from .sessions import Mismatch, command_line, run_sessions
from .setup import FILL, LISTS, SHORT_REGION, UNREGISTERED, WRITABLE, FuzzHost, make_setup
from .soak import CARDS, rough_memory

PRESETS = ("tiny", "ecp5")  # the least geometry, and that of the boards
ROUNDS, RINGS_LOG2 = 40, 4
WRITES = 300  # of registers in a round, at most
MOST_GRADIENTS = 0x3FFF
STILL = 2_000_000  # cycles without a completion in which a busy queue hangs
SLICE, LONGEST_SLICE = 200, 6400  # cycles between two looks at the card
COMMANDS = {"move": ("gather", "scatter", "copy", "fill", "pool", "update"),
            "lookup": ("harvest", "decay", "remove_all", "plan", "mark", "install", "remove",
                       "observe", "observe", "split", "split")}
# Not written at random: registrations would allow what must not be written.
KEPT = ("REGION", "EVENT_SELECT")
RINGS = ("COMMANDS", "COMPLETIONS", "ENTRIES")
COMPLETION_HANDLES = (1, 3)
UNCHANGED = {register.offset for name, register in REGISTERS.items()
             if name.startswith(KEPT) or any(ring in name for ring in RINGS)}
CHANGED = sorted({register.offset for register in REGISTERS.values()} - UNCHANGED)
LEGAL = set(Status) - {Status.STALLED}  # that is in STATE only
DOORBELLS = [REGISTERS[f"{queue.upper()}_TAIL"].offset for queue in QUEUES]


@dataclass
class Tally:
    """Totals: `sessions`, `accesses`: `commands` and register `writes`, `doorbells` among them;
    `cycles`, completions by `status`."""

    sessions: int = 0
    commands: int = 0
    writes: int = 0
    doorbells: int = 0
    cycles: int = 0
    status: dict = field(default_factory=dict)

    @property
    def accesses(self):
        return self.commands + self.writes


def hostile(accesses, seed=0, card=None, rounds=ROUNDS, open_device=None,
            say=lambda text: None) -> Tally:
    """Run sessions until `accesses` commands and register writes have been made, on a card of
    `soak.CARDS` or on each of `PRESETS` in turn.

    Raises
    ------
    Mismatch
    """
    if open_device is None:
        from hotrow_sim.verilated.transport import open_transport as open_device
    return run_sessions(partial(_session, card, rounds, open_device), Tally(), "accesses", accesses,
                        seed, say)


def _session(name, rounds, open_device, seed, tally):
    name = name or PRESETS[seed % len(PRESETS)]
    rng, config = np.random.default_rng([seed, 2]), CARDS[name]
    device = open_device(config=config, behaviour=rough_memory(rng, config))
    card = _Card(device, config, rng)
    for number in range(rounds):
        device.restart_trace()
        try:
            card.play(number % 2, tally)
            assert device.violations() == []
        except (AssertionError, RuntimeError, TimeoutError) as wrong:
            device.close()
            raise Mismatch("hostile", {"seed": seed, "card": name, "accesses": 1},
                           f"round {number}: {wrong}") from wrong
    tally.sessions += 1
    tally.cycles += device.cycles
    device.close()


class FewRows(CommandSource):
    """Commands of few rows, as many of them are refused."""

    counts = (1, 2, 5, 30)


class _Card:
    """A card, memory that nobody may write, and the copy of it that must not change."""

    def __init__(self, device, config, rng):
        self.device, self.config, self.rng = device, config, rng
        self.setup = make_setup(rng, config)
        self.host = FuzzHost(device, self.setup, RINGS_LOG2)
        for index, queue in enumerate(QUEUES):  # commands may not write commands
            ring = self.host.commands[queue].view(np.uint8)
            self.host.region(2 * index, self.host.addresses[2 * index], ring.size, False)
        # Registered regions may extend beyond their memory: the first of these lies between.
        self.between, self.unregistered = aligned(SHORT_REGION), aligned(SHORT_REGION)
        for octets in (self.between, self.unregistered):
            device.attach(octets, True)
        self.guarded = [self.unregistered, *(
            octets for handle, octets in self.host.buffers.items() if handle not in WRITABLE)]

    def play(self, chaos, tally):
        """One round; with `chaos` the host also writes registers at random."""
        host, rng = self.host, self.rng
        source = FewRows(rng, self.config, self.setup.tables)
        self._recover()
        for ring in host.completions.values():
            ring.view(np.uint8)[:] = FILL
        host.buffers[LISTS][:] = source.lists
        before = [octets.copy() for octets in self.guarded]
        halt = bool(rng.integers(2))
        for queue in QUEUES:
            host.enable(queue, halt)
        host.write("TIMEOUT", int(rng.choice([0, 20, 1000, 1 << 20])))
        tags = {queue: [] for queue in QUEUES}
        for _ in range(int(rng.integers(1, 2 << RINGS_LOG2))):
            queue = QUEUES[rng.integers(2)]
            if len(tags[queue]) < host.entries and source.room():
                tags[queue].append(self._submit(queue, source))
                tally.commands += 1
        host.buffers[LISTS][:] = source.lists
        before[1 + self._lists_idx()] = source.lists.copy()
        for queue in QUEUES:
            host.ring(queue)
        if chaos:
            for _ in range(int(rng.integers(1, WRITES))):
                self._disturb(tally)
        self._drain(halt)
        for number, (octets, expected) in enumerate(zip(self.guarded, before, strict=True)):
            assert (octets == expected).all(), f"guarded memory {number} was written"
        self._check(tags, tally, chaos)

    def _lists_idx(self):
        return [handle for handle in self.host.buffers if handle not in WRITABLE].index(LISTS)

    def _submit(self, queue, source):
        """Write one command with random bits to a ring; return its tag."""
        host, rng = self.host, self.rng
        kind, name = rng.random(), COMMANDS[queue][rng.integers(len(COMMANDS[queue]))]
        if name in ("plan", "mark"):
            operands = getattr(source, name)(self.batch)
            self.batch += name == "plan"
        elif name in ("install", "remove"):
            operands = source.rows(Opcode[name.upper()])
        elif name in ("observe", "split"):
            operands = source.batch(Opcode[name.upper()])
        else:
            operands = getattr(source, name)()
        if rng.random() < 0.3:
            operands = source.malformed(operands)
        place = host.tail[queue] % host.entries
        host.submit(queue, **source.finish(operands))
        octets = host.commands[queue].view(np.uint8).reshape(-1, COMMAND_BYTES)[place]
        if kind < 0.2:
            kept = 2 if kind < 0.15 else 0  # opcode and flags, so that the operands decide
            octets[kept:] = rng.integers(0, 256, COMMAND_BYTES)[kept:]
        elif kind < 0.8:
            for bit in rng.integers(0, 8 * COMMAND_BYTES, int(rng.integers(1, 6))):
                octets[bit // 8] ^= 1 << bit % 8
        command = host.commands[queue][place]
        for field_ in ADDRESSES:  # the card may write wherever the host allows it, rings included
            if int(command[field_]) >> 48 in COMPLETION_HANDLES:
                command[field_] |= np.uint64(UNREGISTERED << 48)
        if command["opcode"] == Opcode.UPDATE:  # it refuses gradients one by one, however many
            command["gradient_count"] &= MOST_GRADIENTS
        return int(command["tag"])

    def _disturb(self, tally):
        """A random value to a random register or doorbell, or to an offset without any."""
        rng = self.rng
        kind = rng.random()
        offset = (int(rng.integers(0x400)) * 4 if kind < 0.1 else
                  DOORBELLS[rng.integers(2)] if kind < 0.2 else
                  CHANGED[rng.integers(len(CHANGED))])
        if offset in UNCHANGED:
            return
        value = int(rng.integers(1 << 32)) & int(rng.choice([0xFFFF_FFFF, 0xF, 0xFF]))
        if value >> 16 in COMPLETION_HANDLES:
            return
        self.device.write_register(offset, value)
        tally.writes += 1
        tally.doorbells += offset in DOORBELLS
        if rng.random() < 0.1:
            self._advance(int(rng.integers(1, 300)))

    def _advance(self, cycles):
        if hasattr(self.device, "run"):
            self.device.run(cycles)

    def _drain(self, halt):
        """Run until both queues are still; end WAITs, resume halts."""
        seen, since, slice_ = None, 0, SLICE
        while True:
            states = {queue: self.host.read(f"{queue}_STATE") for queue in QUEUES}
            done = {queue: self.host.read(f"{queue}_COMPLETED") for queue in QUEUES}
            going = False
            for queue, state in states.items():
                left = done[queue] != self.host.read(f"{queue}_TAIL")
                enabled = self.host.read(f"{queue}_CONTROL") & Queue.ENABLE
                kept = enabled | halt * Queue.HALT_ON_ERROR
                if state & State.WAITING:
                    self.host.write(f"{queue}_CONTROL", kept | Queue.ABORT)
                elif state & State.HALTED:
                    self.host.write(f"{queue}_CONTROL", kept | Queue.RESUME)
                going |= not state & State.FAULTED and bool(
                    state & (State.BUSY | State.HALTED | State.WAITING)
                    or (left and enabled))
            if not going and self.host.read("STATUS") & StatusBits.READY:
                return
            since, slice_ = (since + slice_, min(2 * slice_, LONGEST_SLICE)) if done == seen else (
                0, SLICE)
            seen = done
            assert since < STILL, f"no completion for {STILL} cycles: " + ", ".join(
                f"{queue} STATE {state:#x}" for queue, state in states.items())
            self._advance(slice_)

    def _check(self, tags, tally, chaos):
        """Every completion is legal; without chaos, every command has one that names it."""
        for queue, submitted in tags.items():
            self._check_ring(queue, tally)
            if chaos:
                continue
            count = self.host.read(f"{queue}_COMPLETED")
            faulted = self.host.read(f"{queue}_STATE") & State.FAULTED
            assert faulted or count == len(submitted), f"{queue}: {count} completions"
            for number in range(count):
                found = self.host.completion(queue, number + 1)
                assert found["tag"] == submitted[number], f"{queue}, command {number}: tag"
                assert found["sequence"] == number + 1, f"{queue}, command {number}: sequence"

    def _check_ring(self, queue, tally):
        """Every written completion has a status and names a command of the ring."""
        known = set(self.host.commands[queue]["tag"].tolist())
        ring = self.host.completions[queue]
        for number, octets in enumerate(ring.view(np.uint8).reshape(-1, COMPLETION_BYTES)):
            halves = octets.reshape(2, -1)
            if (halves == FILL).all(1).any():  # not written; or in part, when its port stopped
                continue
            found = self.host.completion(queue, number + 1)
            where = f"{queue}, completion {number}"
            assert found["tag"] in known, f"{where}: tag"
            assert found["status"] in LEGAL, f"{where}: status {found['status']}"
            name = Status(found["status"]).name
            tally.status[name] = tally.status.get(name, 0) + 1

    def _recover(self):
        """A soft reset, the registers as at the start, and a sound command on each queue."""
        host, self.batch = self.host, 0
        host.soft_reset()
        host.write("TIMEOUT", 0)
        host.write("FAULT", 0xFFFF_FFFF)
        host.write("INTERRUPT", 0xFFFF_FFFF)
        for number, table in self.setup.tables.items():
            host.table(number, table)
        for queue in QUEUES:
            host.enable(queue)
        done = host.run("lookup", opcode=Opcode.REMOVE, flags=AllFlag.ALL)
        assert done["status"] == Status.OK
        source = CommandSource(self.rng, self.config, self.setup.tables)
        sound = source.copy()
        host.buffers[LISTS][:] = source.lists
        done = host.run("move", **source.finish(sound))
        assert done["opcode"] == Opcode.COPY and done["status"] == Status.OK, done


main = partial(command_line, hostile, "hostile", "accesses", 1_000_000, __doc__, card=list(CARDS))

if __name__ == "__main__":
    sys.exit(main())
