"""A batch sees what earlier batches of its queue wrote, through any handle of the memory."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import BatchFlag, Opcode, Status, packed_address
from hotrow_sim.memory import Behaviour
from hotrow_sim.model import open_transport as open_model
from hotrow_sim.verilated.transport import Device, port_names

COUNT = 16
ALIAS, SHIFTED = 20, 21  # handles of the results' memory; the second begins 4096 bytes later
LISTS = {"slots": 0, "popular": 8192, "nonpopular": 12288, "misses": 16384}  # in `results`


def open_slow():
    """A card whose results land late; writes of different result ports are not in order."""
    config = preset("tiny")
    return Device(config, {name: Behaviour(latency=400 if name == "result0" else 20)
                           for name in port_names(config)})


@pytest.fixture(params=["model", pytest.param("sim", marks=pytest.mark.slow)])
def card(request, make_card):
    transport = open_model("tiny") if request.param == "model" else open_slow()
    card = make_card(transport)
    for handle, offset in ((ALIAS, 0), (SHIFTED, 4096)):
        card.region(handle, card.addresses[11] + offset, card.results.size - offset)
    yield card
    transport.close()


def split(card, tag, ids=None, **places):
    """Submit a SPLIT of rows without slots: its slots are MISS_FLAG + k, in no table."""
    ids = np.arange(COUNT, dtype=np.uint32) if ids is None else ids
    source = card.put(ids.astype(np.uint32), 64 * tag)
    operands = {name: card.address("results", at) for name, at in LISTS.items()} | places
    card.submit("lookup", opcode=Opcode.SPLIT, tag=tag, source=source, count=COUNT,
                samples=COUNT, table_count=1, **operands)


def finish(card):
    card.ring("lookup")
    card.wait("lookup")
    return card.completion("lookup", card.tail["lookup"])


@pytest.mark.parametrize("source", [
    packed_address(11, 0), packed_address(ALIAS, 0), packed_address(SHIFTED, 0)],
    ids=["same", "alias", "shifted"])
def test_ids_that_a_split_writes(card, source):
    at = 4096 if source == packed_address(SHIFTED, 0) else 0
    card.result(COUNT, at)[:] = 5  # a row of the table
    split(card, 1, slots=card.address("results", at))
    card.submit("lookup", opcode=Opcode.OBSERVE, source=source, count=COUNT, samples=COUNT,
                table_count=1)
    done = finish(card)
    assert done["status"] == Status.ROW_OUT_OF_RANGE, "the ids are not stale"


def test_lengths_that_a_split_writes(card):
    """Popular samples of no batch are not written: the lengths are words of its slots."""
    card.result(COUNT, dtype=np.uint16)[:] = 1
    split(card, 1)
    card.submit("lookup", opcode=Opcode.OBSERVE, source=card.put(np.zeros(COUNT, np.uint32), 4096),
                lengths=packed_address(ALIAS, 0), flags=BatchFlag.JAGGED, count=COUNT,
                samples=COUNT, table_count=1)
    done = finish(card)
    assert done["status"] == Status.LOOKUPS, "the lengths of the stale list add up"


def test_results_of_two_splits_in_one_place(card):
    """The second writes its slots where the first writes its missed rows, over another port."""
    split(card, 1, misses=card.address("results", 0), slots=card.address("results", 4096))
    split(card, 2, slots=packed_address(ALIAS, 0))
    done = finish(card)
    assert done["status"] == Status.OK
    missed = card.result(COUNT) & 0x7FFF_FFFF
    assert missed.tolist() == list(range(COUNT)), "slots of the second SPLIT"
