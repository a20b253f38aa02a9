"""Whatever fails, and wherever: the rows of every step that ended are in the tables."""

import signal
import threading
import warnings
from contextlib import ExitStack, suppress
from copy import deepcopy
from functools import cache
from operator import attrgetter

import hotrow
import pytest
import torch
from hotrow.contract.errors import DeviceError, Error
from hotrow.contract.generated import QUEUE_OF, Opcode, Status
from hotrow.queues.futures import Future
from hotrow.torch import HotEmbeddingBagCollection as Collection
from hotrow.torch import Options, TableConfig
from hotrow.torch.collection.row_optimizer import RowOptimizer
from hotrow.torch.collection.trained_batches import TrainedBatches
from hotrow.torch.memory.rows import Rows
from hotrow.torch.memory.slots import SlotStorage
from hotrow.torch.optim import lookup
from hotrow.torch.optim.finite_check import FiniteCheck
from hotrow.torch.optim.gradients import StagedGradients
from hotrow.torch.optim.staging import GradientStage
from hotrow.torch.store import cached, opening
from hotrow.torch.store.batch_stages import BatchStages
from hotrow.torch.store.host_tables import HostTables
from hotrow.torch.store.in_flight import BatchWindow
from hotrow.torch.store.placement_policy import LookAheadPolicy
from hotrow.torch.store.row_updates import RowUpdates
from hotrow.torch.store.slot_moves import SlotMoves
from hotrow.torch.store.whole_tables import WholeLookup, WholeTables

from tests.torch.training import PLANNING

STAGES = ("plan", "collect", "exchange", "insert")
FAILED, STEPS = 4, 8  # the batch at which a stage fails, and batches in all
TABLES = [TableConfig("a", 300, 8), TableConfig("b", 500, 8), TableConfig("c", 200, 4)]


def batches():
    generator = torch.Generator().manual_seed(5)
    limits = torch.tensor([config.num_embeddings for config in TABLES])
    return [(torch.rand(24, 3, generator=generator) ** 2 * limits).long() for _ in range(STEPS)]


@cache
def trained(steps, optimizer="adagrad"):
    """The tables after some steps in mode resident."""
    collection = Collection(TABLES, None, "resident", optimizer, 0.1, options=Options(seed=2))
    for ids in batches()[:steps]:
        collection(ids).square().sum().backward()
        collection.optimizer.step()
    return {name: each.clone() for name, each in collection.state_dict().items()}


def optimizer_of(cold):
    return "adagrad" if cold == "gathered" else "sgd"


class Failure:
    """Called before a stage: fails once, or breaks the device for good."""

    def __init__(self, stage, kind):
        self.stage, self.kind, self.device = stage, kind, None

    def __call__(self, stage, number):
        if (stage, number) != (self.stage, FAILED):
            return
        if self.kind is not DeviceError:
            raise self.kind("a stage failed")

        def refuse(*_, **__):
            raise DeviceError("a queue has stopped")

        self.device._commands.submit = refuse


def run(mode, workers, failure, close=True, transport="model", cold="gathered"):
    """Train until the failure: (steps that ended, the collection)."""
    failure.device = hotrow.open(transport, config=PLANNING)
    collection = Collection(TABLES, failure.device, mode, optimizer_of(cold), 0.1,
                            options=Options(seed=2, workers=workers, cold=cold))
    collection.store.stages.before = failure
    steps, drawn = 0, batches()
    with pytest.raises((failure.kind, DeviceError)):
        for number, ids in enumerate(drawn):
            if workers:
                for coming in drawn[number + collection.store.waiting:number + 3]:
                    collection.prefetch(coming)
            collection(ids).square().sum().backward()
            collection.optimizer.step()
            steps += 1
    if close:
        with pytest.raises((failure.kind, DeviceError)):
            collection.close()
    return steps, collection


def check(collection, steps, cold="gathered", amid=False):
    """The tables are those after `steps`. With `amid` the device failed in another thread, perhaps
    amid the next step, which then raised: each row is that of before or after it."""
    expected = [trained(ended, optimizer_of(cold)) for ended in range(steps, steps + 1 + amid)]
    found = collection.state_dict()
    assert set(found) >= set(expected[0])
    bound = 0 if cold == "gathered" else 1e-5  # the card adds in another order
    for name in expected[0]:
        right = [torch.isclose(found[name], each[name], rtol=bound, atol=bound)
                 .reshape(len(found[name]), -1).all(1) for each in expected]
        assert torch.stack(right).any(0).all(), name


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, DeviceError])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode, workers, transport, cold", [
    ("scratchpipe", 0, "model", "gathered"), ("scratchpipe", 2, "cpu", "gathered"),
    ("freqcache", 0, "cpu", "gathered"), ("hotline", 0, "cpu", "gathered"),
    ("hotline", 2, "model", "gathered"), ("hotline", 0, "model", "pooled"),
    ("hotline", 2, "cpu", "pooled")])
def test_trained_rows_reach_the_tables(mode, workers, transport, cold, stage, kind):
    before = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the host writes in the device's place
        failure = Failure(stage, kind)
        steps, collection = run(mode, workers, failure, transport=transport, cold=cold)
        assert 1 <= steps <= FAILED + 1
        check(collection, steps, cold, amid=bool(workers) and kind is DeviceError)
    failure.device.transport.close()
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize("kind", [ValueError, DeviceError])
def test_saved_before_the_close(kind):
    """A device that does not answer is reported, and the state is complete."""
    failure = Failure("collect", kind)
    steps, collection = run("scratchpipe", 0, failure, close=False)
    if kind is DeviceError:
        with pytest.warns(UserWarning, match=r"a queue has stopped.*none is lost"):
            check(collection, steps)
    else:
        check(collection, steps)
    with pytest.raises(kind):
        collection.close()
    check(collection, steps)
    failure.device.transport.close()


def test_an_error_that_the_caller_catches_and_a_device_that_was_closed_first():
    device = hotrow.open("model", config=PLANNING)
    collection = Collection(TABLES, device, "scratchpipe", "adagrad", 0.1, options=Options(seed=2))
    for ids in batches()[:3]:
        collection(ids).square().sum().backward()
        collection.optimizer.step()
    device.close()
    with pytest.warns(UserWarning, match="none is lost"):
        check(collection, 3)


def test_rows_whose_gather_failed_are_read_in_the_tables(monkeypatch):
    def torn(moves, group, flat, places, listed=None):
        moves._slots(group).array[places.long()] = 7
        raise ValueError("planted")

    with hotrow.open("cpu", config=PLANNING) as device:
        collection = Collection(TABLES, device, "scratchpipe", "adagrad", 0.1,
                                options=Options(seed=2, workers=0))
        for ids in batches()[:3]:
            collection(ids).square().sum().backward()
            collection.optimizer.step()
        with monkeypatch.context() as patched, pytest.raises(ValueError, match="planted"):
            patched.setattr(SlotMoves, "gather", torn)
            collection(batches()[3])
        ids = torch.arange(200)[:, None].expand(200, 3).contiguous()
        with torch.no_grad():
            found = collection.eval()(ids)
        weights = [trained(3)[f"embedding_bags.{table.name}.weight"][:200] for table in TABLES]
        assert torch.equal(found, torch.cat(weights, dim=1))
        with suppress(ValueError):
            collection.close()


# Calls at which an interrupt or an error comes, in forward, backward and step.
CALLS = [
    (lookup.Lookup, "pool"), (lookup.Lookup, "stage"), (GradientStage, "staging"),
    (GradientStage, "clear"), (StagedGradients, "add_groups"), (FiniteCheck, "check"),
    (RowOptimizer, "_apply"), (TrainedBatches, "take"), (WholeTables, "look_up"),
    (WholeLookup, "pool")]
CALLS_OF_SLOTS = [
    (cached.CachedStore, "take"), (cached.CachedStore, "finish"), (SlotStorage, "bypassed"),
    (HostTables, "staging"), (HostTables, "fetch"), (HostTables, "write_after"),
    (BatchWindow, "submit"), (BatchWindow, "take"), (BatchWindow, "finish"), (Rows, "put"),
    (SlotStorage, "assign"), (SlotStorage, "reserve"), (SlotStorage, "release"),
    (SlotMoves, "gather"), (SlotMoves, "scatter")]


def at_call(monkeypatch, owner, name, number, after, act):
    """Run `act` before or after the call of that number."""
    method, count = getattr(owner, name), iter(range(1 << 30))

    def call(*given, **named):
        here = next(count) == number
        if here and not after:
            act()
        result = method(*given, **named)
        if here and after:
            act()
        return result

    monkeypatch.setattr(owner, name, call)


def fail():
    raise ValueError("planted")


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("act", [fail, interrupt])
@pytest.mark.parametrize("owner, name", CALLS + CALLS_OF_SLOTS, ids=lambda each: getattr(
    each, "__name__", each))
def test_training_goes_on_after_an_interrupt_at_any_call(monkeypatch, owner, name, act):
    """And an error leaves whole steps, or a collection that trains no more."""
    for mode in ("resident", "scratchpipe")[(owner, name) in CALLS_OF_SLOTS:]:
        for after in (False, True):
            with monkeypatch.context() as patched, ExitStack() as held:
                device = None if mode == "resident" else held.enter_context(
                    hotrow.open("cpu", config=PLANNING))
                collection = Collection(TABLES, device, mode, "adagrad", 0.1,
                                        options=Options(seed=2, workers=0))
                at_call(patched, owner, name, 2, after, act)
                steps, said = go_on(collection, act is fail)
                broken = collection.staging.broken
                patched.undo()
                with warnings.catch_warnings(), suppress(ValueError):
                    warnings.simplefilter("ignore")
                    collection.close()
                if not broken:
                    check(collection, steps)
                assert act is fail or steps == 4, said


def go_on(collection, stop):
    """Train 4 batches, again after an interrupt: (steps that were applied, errors)."""
    begun, said, drawn = 0, [], batches()[:4]
    while begun < len(drawn):
        try:
            collection(drawn[begun]).square().sum().backward()
            collection.optimizer.step()
        except (Exception, KeyboardInterrupt) as error:
            said.append(str(error))
            begun = collection.staging.steps
            if stop or len(said) > 1:
                break
            collection.optimizer.zero_grad()
        begun = collection.staging.steps
    return begun, " ".join(said)


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_backward_that_fails_after_the_lookup_stages_nothing_later(mode):
    """What it would have staged is not staged by the next backward."""
    card = {} if mode == "resident" else {"device": "cpu"}
    with Collection(TABLES, mode=mode, optimizer="sgd", lr=0.1,
                    seed=2, **card) as collection:
        beside = torch.ones(1, requires_grad=True)
        failing = beside * 1
        failing.register_hook(lambda _: fail())
        ids = batches()[0]
        with pytest.raises(ValueError, match="planted"):
            (collection(ids).square().sum() * failing).backward()
        collection.optimizer.zero_grad()
        collection(ids).square().sum().backward()
        collection.optimizer.step()
        check(collection, 1, "sgd")


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_after_half_a_step_nothing_trains_until_a_checkpoint_is_loaded(monkeypatch, mode):
    card = {} if mode == "resident" else {"device": "cpu"}
    with Collection(TABLES, mode=mode, optimizer="adagrad", lr=0.1,
                    seed=2, workers=0, **card) as collection:
        saved = {name: each.clone() for name, each in collection.state_dict().items()}
        state = deepcopy(collection.optimizer.state_dict())
        ids = batches()[0]
        with monkeypatch.context() as patched:
            collection(ids).square().sum().backward()
            at_call(patched, *((opening.ResidentStore, "apply") if mode == "resident" else
                               (RowUpdates, "_update")), 1, False, fail)
            with pytest.raises(ValueError, match="planted"):
                collection.optimizer.step()
        for call in (collection.optimizer.step, lambda: collection(ids),
                     lambda: collection.prefetch(ids)):
            with pytest.raises(Error, match=r"the step after batch 0 failed .planted.*"
                                            r"Load a checkpoint"):
                call()
        collection.eval()(ids)
        collection.train().load_state_dict(saved)
        collection.optimizer.load_state_dict(state)
        collection(ids).square().sum().backward()
        collection.optimizer.step()
        check(collection, 1)


@pytest.mark.parametrize("call", ["lifecycle.reset", "learn", "flush", "close"])
@pytest.mark.parametrize("owner, name", [
    (HostTables, "write"), (HostTables, "land"), (LookAheadPolicy, "clear"),
    (LookAheadPolicy, "install"), (BatchStages, "restart"), (SlotStorage, "clear"),
    (SlotStorage, "assign")], ids=lambda each: getattr(each, "__name__", each))
def test_what_fails_between_steps_loses_nothing(monkeypatch, owner, name, call):
    """Calls that empty or fill slots fail or are interrupted; training goes on, or is refused."""
    for act, after in ((fail, False), (fail, True), (interrupt, False)):
        with hotrow.open("cpu", config=PLANNING) as device, monkeypatch.context() as patched:
            collection = Collection(TABLES, device, "scratchpipe", "adagrad", 0.1,
                                    options=Options(seed=2, workers=0))
            steps, _ = go_on(collection, True)
            collection.lifecycle.finish()
            at_call(patched, owner, name, 0, after, act)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with suppress(ValueError, KeyboardInterrupt):
                    attrgetter(call)(collection)()
                patched.undo()
                if call != "close":
                    with suppress(ValueError):  # the slots are not known any more
                        collection(batches()[4]).square().sum().backward()
                        collection.optimizer.step()
                        steps += 1
                with suppress(ValueError):
                    collection.close()
            check(collection, steps)


@pytest.mark.slow
@pytest.mark.parametrize("mode, workers", [
    ("scratchpipe", 0), ("scratchpipe", 2), ("freqcache", 0), ("hotline", 2)])
def test_a_collection_trains_on_after_a_wrong_parity_in_the_directory(monkeypatch, mode, workers):
    """With the tables of the one that failed, on the same device."""
    complete, seen = Future.complete, iter(range(1 << 30))
    corrupt = False

    def completed(future, completion):
        nonlocal corrupt  # until the directory is cleared
        opcode = completion["opcode"]
        corrupt |= opcode in (Opcode.PLAN, Opcode.SPLIT) and next(seen) == FAILED
        corrupt &= opcode != Opcode.REMOVE
        complete(future, {**completion, "status": Status.PARITY}
                 if corrupt and QUEUE_OF[opcode] == "lookup" else completion)

    def train(device, begun, before=None):
        collection = Collection(TABLES, device, mode, "adagrad", 0.1,
                                options=Options(seed=2, workers=workers))
        if before is not None:
            collection.load_state_dict(before.state_dict())
            collection.optimizer.load_state_dict(before.optimizer.state_dict())
        for number in range(begun, STEPS):
            try:
                for coming in drawn[number + collection.store.waiting:number + 3]:
                    collection.prefetch(coming)
                collection(drawn[number]).square().sum().backward()
            except hotrow.CommandError as error:
                assert before is None and "recover with Device.clear_directory()" in str(error)
                return number, collection
            collection.optimizer.step()
        return STEPS, collection

    monkeypatch.setattr(Future, "complete", completed)
    drawn = batches()
    with hotrow.open("model", config=PLANNING) as device:
        steps, failed = train(device, 0)
        check(failed, steps)
        with suppress(hotrow.CommandError):
            failed.close()
        steps, collection = train(device, steps, failed)
        check(collection, STEPS)
        collection.close()
