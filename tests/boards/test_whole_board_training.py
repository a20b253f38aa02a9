"""Training over whole simulated cards: every system, tables by table, to the bit of `resident`.

One is a board in a network, whose tables are on the card: a step moves ids, lists and rows, and
only `flush` fetches tables. The other is on PCI Express, served by another process, and reaches the
tables in place.
"""

from contextlib import ExitStack

import hotrow
import numpy as np
import pytest
from hotrow.transports.link import udp
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.hashing.row_location import split_key
from hotrow_sim.golden.lookup.counters import pack_key

from tests.boards.simulated_network import open_board
from tests.driver.links import VFIO_USER, declared_transports
from tests.support.pcie.served_card import served_card

torch = pytest.importorskip("torch")
from hotrow.torch import HotEmbeddingBagCollection, TableConfig  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.nightly, pytest.mark.timeout(3600)]
CARD = preset("ecp5")
TABLES = (TableConfig("user", 2048, 4), TableConfig("item", 4096, 4, "mean"))
SETS = 64  # rows of one in so many sets, so that few rows overflow them
STEPS, SAMPLES, LONGEST, LEARNED = 8, 12, 3, 24
SYSTEMS = {"scratchpipe": {"mode": "scratchpipe"},
           "freqcache": {"mode": "freqcache", "policy": "freq", "admission": True},
           "hotline": {"mode": "hotline"},
           "pooled": {"mode": "hotline", "cold": "pooled"}}


@pytest.fixture(scope="module", params=["network", "pcie"])
def device(request, tmp_path_factory):
    """One device on one card for all tests of this file; each leaves it without tables."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        declared_transports(patch)
        patch.setattr(udp, "_PATIENCE", 5.0)
        if request.param == "network":
            line = f"udp:127.0.0.1:{stack.enter_context(open_board()).port}"
        else:
            path, _ = stack.enter_context(served_card(tmp_path_factory.mktemp("card"), "ecp5"))
            line = f"{VFIO_USER}:{path}"
        with hotrow.open(line, timeout=600, ring_entries=8) as device:
            yield device


def draw(seed=3):
    """Batches: (indices, offsets) per table, and labels."""
    rng, batches = np.random.default_rng(seed), []
    rows = [np.array([row for row in range(config.num_embeddings) if not split_key(
        CARD, int(pack_key(CARD, table, row)))[1] % SETS]) for table, config in enumerate(TABLES)]
    for _ in range(STEPS):
        ids = []
        for of_table in rows:
            lengths = rng.integers(0, LONGEST + 1, SAMPLES)
            drawn = of_table[(len(of_table) * rng.random(lengths.sum()) ** 1.5).astype(np.int64)]
            ids.append((torch.from_numpy(drawn),
                        torch.from_numpy(np.r_[0, lengths.cumsum()[:-1]].astype(np.int64))))
        batches.append((ids, torch.from_numpy(rng.random(SAMPLES).astype(np.float32))))
    return batches


def train(device, optimizer, mode, **options):
    """Train from one fixed start: digests of each table and its state, losses and statistics."""
    with HotEmbeddingBagCollection(TABLES, device, mode, optimizer, 0.2,
                                   seed=3, share=2, **options) as collection:
        batches, losses, ahead = draw(), [], 0 if mode in ("resident", "hotline") else 2
        torch.manual_seed(5)
        top, prefetched = torch.nn.Linear(8, 1), 0
        dense = torch.optim.SGD(top.parameters(), 0.2)
        if mode in ("freqcache", "hotline"):
            for ids, _ in batches[:2]:
                collection.observe(ids)
            collection.learn(limit=LEARNED)
        for number, (ids, label) in enumerate(batches):
            while ahead and prefetched < min(STEPS, number + ahead + 1):
                collection.prefetch(batches[prefetched][0])
                prefetched += 1
            loss = (top(collection(ids)).squeeze(1) - label).square().mean()
            loss.backward()
            losses.append(float(loss.detach()))
            for each in (dense, collection.optimizer):
                each.step()
                each.zero_grad()
        collection.flush()
        tables = {config.name: [each.clone() for each in collection.contents.table(config.name)
                                if each is not None] for config in TABLES}
        return tables, losses, collection.statistics


def digests(tables):
    """Digest of each table and its state, by name."""
    from hotrow.torch.memory.tables import digest_of

    return {name: digest_of(parts) for name, parts in tables.items()}


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_tables_are_residents(device, system, optimizer):
    options = SYSTEMS[system]
    found, losses, figures = train(device, optimizer, **options)
    expected, expected_losses, _ = train(None, optimizer, "resident")
    if "cold" in options:
        with hotrow.open("model", "ecp5") as model:
            on_model = train(model, optimizer, **options)
        assert digests(found) == digests(on_model[0]) and losses == on_model[1]
        for name, parts in expected.items():
            for one, other in zip(found[name], parts, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    else:
        assert digests(found) == digests(expected) and losses == expected_losses
    if options["mode"] != "hotline":
        assert figures["evictions"], "the test needs rows that leave their slots"
    if hasattr(device.transport, "counters"):
        assert not any(device.transport.counters().values())
