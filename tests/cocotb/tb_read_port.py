"""DmaReadPort under cocotb, on the memory model."""

import os

import cocotb
import numpy as np
from cocotb.clock import Clock
from hotrow_rtl.config import preset
from hotrow_rtl.interfaces.records import ReadClient
from hotrow_sim.memory import DECERR, SLVERR, Behaviour, MemoryModel

from tests.support.cosim.memory_ports import read_responder
from tests.support.cosim.streams import RAGGED, STEADY, offer, reset, take

CONFIG = preset("tiny")
CLIENTS = int(os.environ["CLIENTS"])
BASE, SIZE = 0x4000, 1 << 15
FAULTS = {SLVERR: 1, DECERR: 2}  # FAULT_... of `interfaces.records`


@cocotb.test(timeout_time=400, timeout_unit="us")
@cocotb.parametrize(
    behaviour=[Behaviour(), Behaviour(latency=30, jitter=20, out_of_order=True, interleave=True,
                                      stall_address=0.3, stall_data=0.3, seed=1)],
    pauses=[STEADY, RAGGED])
async def every_client_receives_its_words(dut, behaviour, pauses):
    rng = np.random.default_rng(5)
    content = rng.integers(0, 256, SIZE, np.uint8)
    model = MemoryModel()
    model.map(content, BASE)
    port = model.read_port(CONFIG.bus_bytes, behaviour)
    slave_error = BASE + 0x400
    port.fail_range(slave_error, CONFIG.bus_bytes, SLVERR)
    shape = ReadClient(CONFIG).members["request"].signature.members["payload"].shape

    dut.timeout.value = dut.restart.value = 0
    for client in range(CLIENTS):
        for name in (f"clients__{client}__request__valid", f"clients__{client}__words__ready"):
            getattr(dut, name).value = 0
    Clock(dut.clk, 10, unit="ns").start()
    cocotb.start_soon(read_responder(dut, "bus__", port))
    await reset(dut)

    tasks = []
    for client in range(CLIENTS):
        requests = [(BASE + 64 * int(rng.integers(0, SIZE // 64 - 32)), int(rng.integers(1, 2000)))
                    for _ in range(6)]
        requests.append((slave_error & ~63, 100))
        requests.append((BASE + SIZE - 64, 128))  # the second half is unmapped
        words = [word for request in requests for word in expected(content, slave_error, *request)]
        payloads = [shape.const({"address": address, "bytes": size}).as_bits()
                    for address, size in requests]
        cocotb.start_soon(offer(dut, f"clients__{client}__request", payloads, RAGGED))
        tasks.append((client, words, cocotb.start_soon(
            take(dut, f"clients__{client}__words", len(words), pauses))))
    for client, words, task in tasks:
        for place, (bits, (data, fault, last)) in enumerate(
                zip(await task, words, strict=True)):
            assert bits >> CONFIG.bus_width == fault | last << 2, (client, place)
            if not fault:
                assert bits & (1 << CONFIG.bus_width) - 1 == data, (client, place)
    model.check()


def expected(content, slave_error, address, size):
    """(data, fault, last) of each bus word of a request."""
    bus = CONFIG.bus_bytes
    count = -(-size // bus)
    for place in range(count):
        at = address + place * bus
        fault = FAULTS[SLVERR] if at == slave_error else FAULTS[DECERR] * (at >= BASE + SIZE)
        octets = content[at - BASE:at - BASE + bus].tobytes()
        yield int.from_bytes(octets, "little"), fault, place == count - 1
