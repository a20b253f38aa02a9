"""Children of a process whose threads train: a program that prints how each call ended in them.

usage: forked_calls.py CHILDREN SEED
"""

import faulthandler
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import hotrow
import numpy as np
import torch
from hotrow.ids import Expiry, IdMap
from hotrow.kernels.grouping import Grouper
from hotrow.tables import Store, Table
from hotrow.tables import open as open_tables
from hotrow.torch import Checkpoint, HotEmbeddingBagCollection, TableConfig

SECONDS = 60  # after which a child hangs
warnings.simplefilter("ignore")
torch.set_num_threads(1)
children, draw = int(sys.argv[1]), random.Random(int(sys.argv[2]))
folder = Path(tempfile.mkdtemp())
ids = [torch.randint(0, 3000, (256, 2), generator=torch.Generator().manual_seed(at))
       for at in range(8)]


def collection(mode, device=None, **options):
    tables = [TableConfig("a", 3000, 16, **options), TableConfig("b", 3000, 16)]
    return HotEmbeddingBagCollection(tables, device, mode, lr=0.1,
                                     seed=0, **{"workers": 2} if device else {})


def step(trained, prefetch=False):
    batch = ids[draw.randrange(8)]
    if prefetch:
        trained.prefetch(batch)
    trained(batch).sum().backward()
    trained.optimizer.step()


def evaluate(trained):
    trained.eval()
    with torch.no_grad():
        trained(ids[0])


def new_card(_):
    with hotrow.open("cpu", preset="tiny", threads=2) as card:
        card.observe(ids[0].numpy() % 50) if card.tables else None
        card.transport.read_register(0)


CALLS = {
    "step": step, "prefetch": lambda trained: step(trained, True), "evaluate": evaluate,
    "state_dict": lambda trained: trained.state_dict(),
    "optimizer": lambda trained: trained.optimizer.state_dict(),
    "zero_grad": lambda trained: trained.zero_grad(), "sha256": lambda trained: trained.sha256(),
    "table": lambda trained: trained.embeddings["a"].weight.detach().clone(),
    "flush": lambda trained: trained.flush(),
    "statistics": lambda trained: trained.statistics, "memory": lambda trained: trained.memory,
    "skip": lambda trained: trained.skip(), "abandon": lambda trained: trained.abandon(),
    "observe": lambda trained: trained.observe(ids[0]), "close": lambda trained: trained.close(),
    "learn": lambda trained: trained.learn(), "reset": lambda trained: trained.lifecycle.reset(),
    "changes": lambda trained: trained.changes(0),
    "gradients": lambda trained: trained.gradients(),
    "load": lambda trained: trained.load_state_dict(saved[id(trained)]),
    "save": lambda trained: Checkpoint(folder / str(os.getpid())).save(m=trained.state_dict()),
    "new card": new_card, "new collection": lambda _: step(collection("resident")),
    "new cached collection": lambda _: step(collection("scratchpipe")),
}
def new_store(_):
    with Store(folder / f"new {os.getpid()}", [TABLE], tail_bytes=1 << 16, segment_blocks=4) as own:
        append(own.rows(["item"], [0]))
        own.commit()


def append(rows):
    rows.append(NUMBERS, np.ones((len(NUMBERS), 8), np.float32))


def look_up(rows):
    rows.finish(rows.begin(NUMBERS), np.empty((len(NUMBERS), 8), np.float32))


def train_store():
    for _ in range(3):
        append(store_rows)
        look_up(store_rows)
    store.clean()
    store.commit(b"dense", keep="kept")
    reader.refresh()
    reader.rows("item", NUMBERS)


TABLE, NUMBERS = Table("item", 900, 8, seed=1, bound=0.5), np.arange(0, 900, 2)
store = Store(folder / "store", [TABLE], tail_bytes=1 << 16, segment_blocks=4)
store_rows, reader = store.rows(["item"], [0]), open_tables(folder / "store")
STORES = {
    "append": lambda: append(store_rows), "look up": lambda: look_up(store_rows),
    "commit": lambda: store.commit(), "clean": lambda: store.clean(),
    "verify": lambda: store.verify(), "release": lambda: store.release("kept"),
    "rollback": lambda: store.rollback(store.number), "commits": lambda: store.commits(),
    "dense": lambda: store.dense(), "figures": lambda: store.figures(),
    "more rows": lambda: store.rows(["item"], [0]), "close a store": lambda: store.close(),
    "read": lambda: reader.rows("item", NUMBERS), "refresh": lambda: reader.refresh(),
    "changed": lambda: reader.changed("item", 0), "verify a reader": lambda: reader.verify(),
    "export": lambda: reader.export("item", folder / f"{os.getpid()}.safetensors"),
    "close a reader": lambda: reader.close(), "new store": lambda: new_store(None),
    "new reader": lambda: open_tables(folder / "store").close(),
}
OTHERS = {
    "map": lambda: (shared_map.plan(np.arange(9)), shared_map.find([1]), shared_map.state()),
    "save a map": lambda: shared_map.save(folder / f"{os.getpid()}.npz"),
    "group": lambda: grouper.group(ids[0].reshape(-1).int()),
    "card": lambda: card.transport.read_register(0), "close a card": lambda: card.close(),
}
card = hotrow.open("cpu", threads=2, slots=1 << 14)
shared_map, grouper = IdMap(20_000, expiry=Expiry(age=2), threads=1), Grouper(3000)
trained = [collection("resident"), collection("resident", ids="any"), collection(
    "scratchpipe", card), collection("freqcache", hotrow.open("cpu", threads=1, slots=1 << 14))]
saved = {}
for each in trained:
    step(each)
    saved[id(each)] = {key: value.clone() if torch.is_tensor(value) else value
                       for key, value in each.state_dict().items()}
ending, training = [], threading.Lock()


def busy(work):
    while not ending:
        work()


threads = [threading.Thread(target=busy, args=(work,), daemon=True) for work in (
    *(lambda each=each: step(each) for each in trained),
    lambda: shared_map.plan(torch.randint(0, 60_000, (20_000,))),
    lambda: grouper.group(torch.randint(0, 3000, (100_000,)).int()),
    lambda: card.transport.read_register(0), train_store)]
for thread in threads:
    thread.start()
cases = [(name, lambda call=call, each=each: call(each)) for name, call in CALLS.items()
         for each in trained] + list((OTHERS | STORES).items()) * 4
draw.shuffle(cases)
for number in range(children):
    name, call = cases[number % len(cases)]
    time.sleep(draw.random() * 0.01)
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(SECONDS - 5, exit=False)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        try:
            call()
            os._exit(0)
        except hotrow.Error:
            os._exit(1)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"{name},{code}", flush=True)
ending.append(True)
for thread in threads:
    thread.join()
for each in (*trained, reader, store):
    each.close()
