"""Every command over memory that responds with an error, or not at all."""

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Opcode, Status
from hotrow_sim.memory import DECERR, SLVERR
from hotrow_sim.verilated.transport import open_transport

pytestmark = pytest.mark.slow
STATUS = {SLVERR: Status.SLVERR, DECERR: Status.DECERR}
BATCHES = (Opcode.OBSERVE, Opcode.SPLIT, Opcode.PLAN, Opcode.MARK)
# The port that fails, and the buffer that it accesses.
FAILS = {Opcode.HARVEST: ("result", "results"), Opcode.FILL: ("row_write", "results"),
         Opcode.COPY: ("row_read", "lists")}
COMMANDS = (*BATCHES, Opcode.HARVEST, Opcode.INSTALL, Opcode.REMOVE, Opcode.GATHER, Opcode.SCATTER,
            Opcode.POOL, Opcode.UPDATE, Opcode.COPY, Opcode.FILL)
COUNT = 8


def queue_of(opcode):
    return "move" if opcode >= Opcode.GATHER else "lookup"


def operands(card, opcode):
    """A valid command of `COUNT` rows, lookups or words; its source is the start of `lists`."""
    if opcode in BATCHES:
        source = card.put(np.arange(COUNT, dtype=np.uint32))
        names = ("slots", "misses", "popular", "nonpopular", "fill_slots", "victim_slots", "fills",
                 "victims")
        return {"opcode": opcode, "source": source, "count": COUNT, "samples": COUNT,
                "table_count": 1,
                **{name: card.address("results", 256 * at) for at, name in enumerate(names)}}
    bags = card.put(np.ones(COUNT, np.uint16), 1024)
    one = int(np.float32(1).view(np.uint32))
    return {"opcode": opcode, "count": COUNT, "bags": COUNT, "gradient_count": COUNT, "stride": 64,
            "source": card.put_rows([(0, row) for row in range(COUNT)]), "lengths": bags,
            "slots": card.address("results"), "destination": card.address("results"),
            "rows": card.address("results", 2048), "gradients": card.address("lists", 4096),
            "lr": one, "eps": one} | ({"bags": 0} if opcode == Opcode.UPDATE else {})


def ports(card, kind):
    return [name for name in card.transport.ports if name.startswith(kind)]


def prepared(make_card, opcode):
    card = make_card(open_transport("tiny", latency=8))
    if opcode == Opcode.HARVEST:  # there is a row to write
        card.run("lookup", **operands(card, Opcode.OBSERVE))
    return card


@pytest.mark.parametrize("opcode", COMMANDS)
@pytest.mark.parametrize("response", [SLVERR, DECERR])
def test_an_error_is_the_status_of_the_command(make_card, opcode, response):
    card = prepared(make_card, opcode)
    port, buffer = FAILS.get(opcode, ("list", "lists"))
    handle = {"lists": 10, "results": 11}[buffer]
    for name in ports(card, port):
        card.transport.fail_range(name, card.addresses[handle], 1, response)
    done = card.run(queue_of(opcode), **operands(card, opcode))
    assert done["status"] == STATUS[response], done
    assert card.run(queue_of(opcode), opcode=Opcode.NOP)["status"] == Status.OK
    assert card.transport.violations() == []
    card.transport.close()


@pytest.mark.parametrize("opcode", [each for each in COMMANDS if each != Opcode.HARVEST])
def test_silence_is_a_time_out(make_card, opcode):
    """The port is silent from a cycle in which the command has been fetched. The port of a HARVEST
    is that of its completion, so its queue faults."""
    for fetched in range(30, 200, 10):
        card = prepared(make_card, opcode)
        card.write("TIMEOUT", 300)
        queue, now = queue_of(opcode), card.transport.cycles
        card.submit(queue, **operands(card, opcode))
        for name in ports(card, FAILS.get(opcode, ("list", ""))[0]):
            card.transport.silence(name, now + fetched)
        card.ring(queue)
        card.transport.run(4000)
        completed = card.read(f"{queue}_COMPLETED")
        status = card.completion(queue, completed)["status"] if completed else None
        card.transport.close()
        if status == Status.TIMEOUT:
            return
    pytest.fail(f"{opcode.name}: no time-out, the last status was {status}")
