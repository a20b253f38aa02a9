// The memory behind the accelerator: one behaviour for the Amaranth simulator, for cocotb and for
// the Verilated device.
//
// A `MemoryMap` says which addresses exist. Any number of `ReadPort`s (AR, R) and `WritePort`s
// (AW, W, B) share it; each has a `Behaviour` and a random stream of its own, so that a run is the
// same for the same seeds in whatever order the ports are ticked, except for reads and writes of
// one address in one cycle.
//
// Call `tick` of each port exactly once per clock cycle, the cycles of reset left out:
//
//     drive port.outputs() on the slave's signals          (once, before the first cycle)
//     every cycle:
//         let the logic settle
//         inputs = the master's signals                    sampled before the rising edge
//         rising edge; let the logic settle
//         drive port.tick(inputs) on the slave's signals   from the rising edge on
//
// All signals of the memory are thus registered: none depends on an input of the same cycle. In
// the first cycle nothing is ready. A handshake is what `inputs` and the outputs driven during
// that same cycle say. A read of latency L whose address is taken in cycle n has its first beat
// valid in cycle n + L, L at least 1, and its others in the cycles after. The answer to a write
// comes L cycles after its last data beat or its address, whichever is later. Nothing is ever
// answered in the wrong order for its id. Without stalls a port moves one beat every cycle.
//
// With DRAM (see dram.hpp) L counts from the cycle in which it serves the beat, or the last beat of a
// write; later beats of a read may have to wait, too.
//
// A reset of the device in flight: call `reset()` while the device's reset is asserted.
#pragma once

#include "read_port.hpp"
#include "write_port.hpp"
