// The memory of the accelerator: one behaviour for the Amaranth simulator and the Verilated device.
//
// A `MemoryMap` defines the addresses that exist. Any number of `ReadPort`s (AR, R) and
// `WritePort`s (AW, W, B) share it. Each has its own `Behaviour` and random stream, so that equal
// seeds give equal runs in any order of the ports, except for a read and a write of one address in
// one cycle.
//
// Call `tick` of each port exactly once per clock cycle, except during reset:
//
//     drive port.outputs() on the slave's signals          (once, before the first cycle)
//     every cycle:
//         let the logic settle
//         inputs = the master's signals                    sampled before the rising edge
//         rising edge; let the logic settle
//         drive port.tick(inputs) on the slave's signals   from the rising edge on
//
// All signals of the memory are thus registered: none depends on an input of the same cycle. In the
// first cycle nothing is ready. A handshake occurs between `inputs` and the outputs driven in the
// same cycle. The first beat of a read of latency L is valid L cycles after its address handshake,
// L at least 1, and the other beats follow in the next cycles. The response to a write follows L
// cycles after its last data beat or its address, whichever is later. Responses of one id stay in
// order. Without stalls a port transfers one beat per cycle.
//
// With DRAM (see dram.hpp) L counts from the cycle in which the DRAM serves the beat, or the last
// beat of a write; later beats of a read may be later, too.
//
// To reset the device in flight, call `reset()` while the reset of the device is asserted.
#pragma once

#include "read_port.hpp"
#include "write_port.hpp"

// X(0) X(1) ... for COUNT ports: 1, 2, 4 or 8.
#define HOTROW_EACH_1(X) X(0)
#define HOTROW_EACH_2(X) HOTROW_EACH_1(X) X(1)
#define HOTROW_EACH_4(X) HOTROW_EACH_2(X) X(2) X(3)
#define HOTROW_EACH_8(X) HOTROW_EACH_4(X) X(4) X(5) X(6) X(7)
#define HOTROW_EXPAND(COUNT, X) HOTROW_EACH_##COUNT(X)
#define HOTROW_EACH(COUNT, X) HOTROW_EXPAND(COUNT, X)
