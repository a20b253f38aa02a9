"""Random descriptors, doorbells and register writes: the card stays within bounds and recovers.

A round submits commands with random bits, in part or as a whole, while the host writes random
values to random registers. No result is predicted. Then the card must be still, every completion
legal, the memory that the host did not register for writing unchanged, and after a soft reset both
queues must run sound commands:

    python -m hotrow_sim.testing.fuzz.hostile --accesses 100000
    python -m hotrow_sim.testing.fuzz.hostile --seed 17 --accesses 1

The second command repeats one session; a failure prints its seed.
"""

import sys
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import COMMAND_BYTES, QUEUES, AllFlag, Opcode, Status
from hotrow_rtl.contract.registers import REGISTERS

from ..bare_host import aligned
from .commands import CommandSource
from .player import ABORT, BUSY, ENABLE, HALTED, RESUME, SOFT_RESET, WAITING
from .sessions import Mismatch, command_line, run_sessions
from .setup import LISTS, SHORT_REGION, WRITABLE, FuzzHost, make_setup
from .soak import _rough

TINY = preset("tiny")
ROUNDS, RINGS_LOG2 = 30, 3
FAULTED = 8
STILL = 400_000  # cycles without a completion in which a busy queue hangs
SLICE = 4000  # cycles between two looks at the card
# Not written at random: registrations would allow what must not be written.
KEPT = ("REGION", "EVENT_SELECT")
RINGS = ("COMMANDS", "COMPLETIONS", "ENTRIES")


@dataclass
class Tally:
    """Totals: `sessions`, `accesses` (commands and register writes), `cycles`, commands by
    `status`."""

    sessions: int = 0
    accesses: int = 0
    cycles: int = 0
    status: dict = field(default_factory=dict)


def hostile(accesses, seed=0, rounds=ROUNDS, open_device=None, say=lambda text: None) -> Tally:
    """Run sessions until `accesses` commands and register writes have been made.

    Raises
    ------
    Mismatch
    """
    if open_device is None:
        from ...verilated.transport import Device as open_device
    return run_sessions(partial(_session, rounds, open_device), Tally(), "accesses", accesses,
                        seed, say)


def _session(rounds, open_device, seed, tally):
    from ...verilated.transport import port_names

    rng = np.random.default_rng([seed, 2])
    device = open_device(TINY, {name: _rough(rng) for name in port_names(TINY)})
    card = _Card(device, rng)
    for number in range(rounds):
        try:
            card.play(number % 2, tally)
            assert device.violations() == []
        except AssertionError as wrong:
            raise Mismatch(
                f"seed {seed}, round {number}: {wrong}\nrepeat with: python -m "
                f"hotrow_sim.testing.fuzz.hostile --seed {seed} --accesses 1") from wrong
    tally.sessions += 1
    tally.cycles += device.cycles
    device.close()


class _Card:
    """A card, memory that nobody may write, and the copy of it that must not change."""

    def __init__(self, device, rng):
        self.device, self.rng = device, rng
        self.setup = make_setup(rng, TINY)
        self.host = FuzzHost(device, self.setup, RINGS_LOG2)
        # Registered regions may extend beyond their memory: the first of these lies between.
        self.between, self.unregistered = aligned(SHORT_REGION), aligned(SHORT_REGION)
        for octets in (self.between, self.unregistered):
            device.attach(octets, True)
        self.guarded = [self.unregistered, *(
            octets for handle, octets in self.host.buffers.items() if handle not in WRITABLE)]

    def play(self, chaos, tally):
        """One round; with `chaos` the host also writes registers at random."""
        host, rng = self.host, self.rng
        source = CommandSource(rng, TINY, self.setup.tables)
        self._recover()
        host.buffers[LISTS][:] = source.lists
        before = [octets.copy() for octets in self.guarded]
        halt = bool(rng.integers(2))
        for queue in QUEUES:
            host.enable(queue, halt)
        host.write("TIMEOUT", int(rng.choice([0, 20, 1000, 1 << 20])))
        tags = {queue: [] for queue in QUEUES}
        for _ in range(int(rng.integers(1, 2 << RINGS_LOG2))):
            queue = QUEUES[rng.integers(2)]
            if len(tags[queue]) < host.entries:
                tags[queue].append(self._submit(queue, source))
                tally.accesses += 1
        host.buffers[LISTS][:] = source.lists
        before[1 + self._lists_idx()] = source.lists.copy()
        for queue in QUEUES:
            host.ring(queue)
        if chaos:
            for _ in range(int(rng.integers(1, 30))):
                self._disturb()
                tally.accesses += 1
        self._drain(halt)
        for number, (octets, expected) in enumerate(zip(self.guarded, before, strict=True)):
            assert (octets == expected).all(), f"guarded memory {number} was written"
        if not chaos:
            self._check(tags, tally)

    def _lists_idx(self):
        return [handle for handle in self.host.buffers if handle not in WRITABLE].index(LISTS)

    def _submit(self, queue, source):
        """Write one command with random bits to a ring; return its tag."""
        host, rng = self.host, self.rng
        kind = rng.random()
        name = str(rng.choice(["gather", "scatter", "copy", "fill"] if queue == "move"
                              else ["harvest", "decay", "remove_all"]))
        if queue == "lookup" and rng.random() < 0.6:
            operands = source.batch(Opcode(int(rng.choice([Opcode.OBSERVE, Opcode.SPLIT]))))
        else:
            operands = getattr(source, name)()
        if rng.random() < 0.3:
            operands = source.malformed(operands)
        place = host.tail[queue] % host.entries
        host.submit(queue, **source.finish(operands))
        octets = host.commands[queue].view(np.uint8).reshape(-1, COMMAND_BYTES)[place]
        if kind < 0.2:
            octets[:] = rng.integers(0, 256, COMMAND_BYTES)
        elif kind < 0.8:
            for bit in rng.integers(0, 8 * COMMAND_BYTES, int(rng.integers(1, 6))):
                octets[bit // 8] ^= 1 << bit % 8
        return int(host.commands[queue][place]["tag"])

    def _disturb(self):
        """A random value to a random register, or to an offset without any."""
        rng = self.rng
        names = [name for name in REGISTERS if (not name.startswith(KEPT)
                 and not name.endswith(("_LOW", "_HIGH", "ENTRIES"))) or name.startswith("TABLE")]
        offset = (int(rng.integers(0x400)) * 4 if rng.random() < 0.1
                  else REGISTERS[names[rng.integers(len(names))]].offset)
        if any(REGISTERS[name].offset == offset for name in REGISTERS if name.startswith(KEPT)
               or any(ring in name for ring in RINGS)):
            return
        value = int(rng.integers(1 << 32)) & int(rng.choice([0xFFFF_FFFF, 0xF, 0xFF]))
        self.device.write_register(offset, value)
        if rng.random() < 0.5:
            self._advance(int(rng.integers(1, 300)))

    def _advance(self, cycles):
        if hasattr(self.device, "run"):
            self.device.run(cycles)

    def _drain(self, halt):
        """Run until both queues are still; end WAITs, resume halts."""
        seen, since = None, 0
        while True:
            states = {queue: self.host.read(f"{queue}_STATE") for queue in QUEUES}
            done = {queue: self.host.read(f"{queue}_COMPLETED") for queue in QUEUES}
            going = False
            for queue, state in states.items():
                left = done[queue] != self.host.read(f"{queue}_TAIL")
                enabled = self.host.read(f"{queue}_CONTROL") & ENABLE
                if state & WAITING:
                    self.host.write(f"{queue}_CONTROL", enabled | halt << 1 | ABORT)
                elif state & HALTED:
                    self.host.write(f"{queue}_CONTROL", enabled | halt << 1 | RESUME)
                going |= not state & FAULTED and bool(
                    state & (BUSY | HALTED | WAITING) or (left and enabled))
            if not going and self.host.read("STATUS") & 1:
                return
            since = since + SLICE if done == seen else 0
            seen = done
            assert since < STILL, f"no completion for {STILL} cycles: " + ", ".join(
                f"{queue} STATE {state:#x}" for queue, state in states.items())
            self._advance(SLICE)

    def _check(self, tags, tally):
        """Every command has a completion that names it."""
        for queue, submitted in tags.items():
            count = self.host.read(f"{queue}_COMPLETED")
            faulted = self.host.read(f"{queue}_STATE") & FAULTED
            assert faulted or count == len(submitted), f"{queue}: {count} completions"
            for number in range(count):
                found = self.host.completion(queue, number + 1)
                assert found["tag"] == submitted[number], f"{queue}, command {number}: tag"
                assert found["sequence"] == number + 1
                name = Status(found["status"]).name
                tally.status[name] = tally.status.get(name, 0) + 1

    def _recover(self):
        """A soft reset, the registers as at the start, and a sound command on each queue."""
        host = self.host
        host.write("CONTROL", SOFT_RESET)
        host.await_ready()
        host.write("TIMEOUT", 0)
        host.write("FAULT", 0xFFFF_FFFF)
        host.write("INTERRUPT", 0xFFFF_FFFF)
        for number, table in self.setup.tables.items():
            host.table(number, table)
        for queue in QUEUES:
            host.enable(queue)
        done = host.run("lookup", opcode=Opcode.REMOVE, flags=AllFlag.ALL)
        assert done["status"] == Status.OK
        source = CommandSource(self.rng, TINY, self.setup.tables)
        sound = source.copy()
        host.buffers[LISTS][:] = source.lists
        done = host.run("move", **source.finish(sound))
        assert done["opcode"] == Opcode.COPY and done["status"] == Status.OK, done


main = partial(command_line, hostile, "hostile", "accesses", 1_000_000, __doc__)

if __name__ == "__main__":
    sys.exit(main())
