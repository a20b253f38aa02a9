"""A batch of more lookups than 16 bits count, on the model and on the RTL."""

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import BatchFlag, Opcode, Status, packed_address

from tests.support.bare_host import aligned


@pytest.mark.slow
def test_batches_of_many_lookups(card):
    samples, each = 1000, 256
    ids = np.arange(samples * each, dtype=np.uint32) * 7 % 64
    lists, slots, misses = aligned(ids.nbytes), aligned(ids.nbytes), aligned(2 * ids.nbytes)
    lists[:] = ids.view(np.uint8)
    for handle, octets in ((12, lists), (13, slots), (14, misses)):
        card.register(handle, octets)
    batch = {
        "source": packed_address(12, 0), "count": len(ids), "samples": samples, "table_count": 1,
        "lengths": card.put(np.full(samples, each, np.uint16)), "flags": BatchFlag.JAGGED}
    done = card.run("lookup", opcode=Opcode.OBSERVE, **batch)
    assert (done["status"], done["lookups"]) == (Status.OK, len(ids))
    card.run("lookup", opcode=Opcode.INSTALL, source=card.put_rows([(0, n) for n in range(64)]),
             count=64, slots=card.address("results"))
    batch["lengths"] = card.put(np.full(samples, each, np.uint16))
    done = card.run("lookup", opcode=Opcode.SPLIT, **batch, slots=packed_address(13, 0),
                    popular=card.address("results"), nonpopular=card.address("results", 4096),
                    misses=packed_address(14, 0))
    assert (done["status"], done["lookups"], done["popular"]) == (Status.OK, len(ids), samples)
    found = slots.view(np.uint32).reshape(-1, 64)
    assert len(np.unique(found[0])) == 64 and (found == found[0]).all()
