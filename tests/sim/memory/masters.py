"""Masters of a memory model, beat by beat."""


import numpy as np
from hotrow_sim.memory import Behaviour, MemoryModel

BASE, BUS = 0x10000, 16
POISON = b"\xa5"
WILD = Behaviour(latency=5, jitter=20, out_of_order=True, interleave=True, stall_address=0.3,
                 stall_data=0.3, stall_response=0.3)


def memory(size=1 << 14, writable=True):
    model, array = MemoryModel(), np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    model.map(array, BASE, writable)
    return model, array


def drive_read(port, bursts, limit=5000, eager=1.0, seed=0):
    """Read (id, address, beats) bursts: returns [(cycle, id, data, response, last)], and the cycles
    of the address handshakes."""
    rng, inputs, pending = np.random.default_rng(seed), port.inputs, list(bursts)
    given, taken = [], []
    want = sum(beats for _, _, beats in bursts)
    inputs.arsize, inputs.arburst = 4, 1
    for cycle in range(limit):
        inputs.arvalid = bool(pending)
        if pending:
            inputs.arid, inputs.araddr, inputs.arlen = *pending[0][:2], pending[0][2] - 1
        inputs.rready = rng.random() < eager
        out = port.outputs
        if out.arready and pending:
            taken.append(cycle)
            pending.pop(0)
        if out.rvalid and inputs.rready:
            given.append((cycle, out.rid, bytes(out.rdata[:BUS]), out.rresp, out.rlast))
        port.tick()
        if len(given) == want:
            return given, taken
    raise AssertionError(f"{want - len(given)} beats did not come in {limit} cycles")


def drive_write(port, bursts, limit=5000, data_first=False, late=0):
    """Write (id, address, [(data, strobe)]) bursts: returns the responses [(cycle, id,
    response)]."""
    inputs, answers = port.inputs, []
    addresses = [(id, address, len(beats)) for id, address, beats in bursts]
    beats = [(*beat, i == len(beats) - 1) for _, _, beats in bursts for i, beat in enumerate(beats)]
    inputs.awsize, inputs.awburst, inputs.bready = 4, 1, 1
    for cycle in range(limit):
        inputs.awvalid = bool(addresses) and (not data_first or not beats) and cycle >= late
        inputs.wvalid = bool(beats)
        if addresses:
            inputs.awid, inputs.awaddr, inputs.awlen = *addresses[0][:2], addresses[0][2] - 1
        if beats:
            inputs.wdata[:BUS], inputs.wstrb, inputs.wlast = beats[0]
        out = port.outputs
        if out.awready and inputs.awvalid:
            addresses.pop(0)
        if out.wready and inputs.wvalid:
            beats.pop(0)
        if out.bvalid:
            answers.append((cycle, out.bid, out.bresp))
        port.tick()
        if len(answers) == len(bursts):
            return answers
    raise AssertionError(f"{len(bursts) - len(answers)} answers did not come in {limit} cycles")
