"""An error at any line: a step or load is whole, or nothing trains until a checkpoint is loaded."""

import linecache
import random
import signal
import sys
import warnings
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy

import hotrow
import pytest
import torch
from hotrow.contract.errors import DeviceError, Error
from hotrow.torch import HotEmbeddingBagCollection as Collection
from hotrow.torch import TableConfig
from hotrow.torch.optim import staging
from hotrow.torch.store import row_updates

from tests.torch.training import PLANNING

TABLES = [TableConfig("a", 300, 8), TableConfig("b", 500, 8), TableConfig("c", 200, 4)]
STEPS = 4
# Few slots, so that each batch has rows without one.
MODES = {
    "resident": {"mode": "resident"},
    "scratchpipe": {"mode": "scratchpipe", "share": 4, "workers": 0},
    "freqcache": {"mode": "freqcache", "share": 4, "workers": 0},
    "hotline": {"mode": "hotline", "share": 4, "workers": 0},
    "pooled": {"mode": "hotline", "share": 4, "cold": "pooled", "workers": 0}}


def batches():
    generator = torch.Generator().manual_seed(5)
    limits = torch.tensor([config.num_embeddings for config in TABLES])
    return [(torch.rand(60, 3, generator=generator) ** 2 * limits).long() for _ in range(STEPS)]


def weights(collection):
    collection.flush()
    return {config.name: collection.contents.table(config.name)[0].clone() for config in TABLES}


@contextmanager
def opened(name, seed=2, optimizer="adagrad"):
    options = dict(MODES[name])
    with ExitStack() as held:
        if name != "resident":
            options["device"] = held.enter_context(hotrow.open("cpu", config=PLANNING))
        collection = held.enter_context(Collection(TABLES, optimizer=optimizer, lr=0.1,
                                                   seed=seed, **options))
        if options["mode"] == "hotline":
            collection.learn({config.name: torch.arange(20) for config in TABLES})
        yield collection


def train(collection, steps):
    for ids in batches()[steps]:
        collection(ids).square().sum().backward()
        collection.optimizer.step()


class ErrorAt:
    """Raises at the line of that number within hotrow's functions; `place` is then that line."""

    def __init__(self, number, kind):
        self.number, self.kind, self.place = number, kind, None

    def __call__(self, frame, event, _):
        file = frame.f_code.co_filename
        if "/hotrow/torch/" not in file and "/hotrow/kernels/" not in file:
            return None
        line = linecache.getline(file, frame.f_lineno).strip()
        if event == "line" and not line.startswith("with "):  # whose end would be left out
            if self.number == 0:
                sys.settrace(None)
                self.place = f"{file}:{frame.f_lineno}: {line}"
                raise self.kind("planted")
            self.number -= 1
        return self

    def said(self, call):
        """What the error of `call()` says, or None."""
        before, handler = sys.gettrace(), signal.getsignal(signal.SIGINT)
        sys.settrace(self)
        try:
            call()
        except BaseException as error:
            return str(error)
        finally:
            sys.settrace(before)
            signal.signal(signal.SIGINT, handler)  # the line may be one that restores it
        return None


def numbers(every):
    """Numbers of lines, a random one in each `every`, and a kind of error for each."""
    kinds = (ValueError, KeyboardInterrupt, DeviceError)
    drawn = random.Random(7)
    for start in range(0, 10_000, every):
        yield start + drawn.randrange(every), kinds[drawn.randrange(3)]


def same(found, expected):
    """Of each table whether the contents are these."""
    return [torch.allclose(values, expected[name], rtol=1e-5, atol=1e-5)
            for name, values in found.items()]


def around_the_last_step(optimizer):
    """The weights of a run without errors, before and after its last step."""
    with opened("resident", optimizer=optimizer) as whole:
        train(whole, slice(STEPS - 1))
        before = weights(whole)
        train(whole, slice(STEPS - 1, None))
        return before, weights(whole)


def steps_fail(name, every):
    """The places of errors in a step: it is whole, or nothing trains until rows are loaded."""
    places, optimizer = [], "sgd" if name == "pooled" else "adagrad"
    before, after = around_the_last_step(optimizer)
    for number, kind in numbers(every):
        with warnings.catch_warnings(), opened(
                name, optimizer=optimizer) as collection:
            warnings.simplefilter("ignore")
            train(collection, slice(STEPS - 1))
            saved = deepcopy((collection.state_dict(), collection.optimizer.state_dict()))
            collection(batches()[-1]).square().sum().backward()
            error = ErrorAt(number, kind)
            error.said(collection.optimizer.step)
            if error.place is None:
                return places
            places.append(error.place)
            if collection.staging.broken:
                for call in (collection.optimizer.step, lambda: collection(batches()[-1])):
                    with pytest.raises(Error, match="Load a checkpoint"):
                        call()
                collection.optimizer.zero_grad()
                collection.load_state_dict(saved[0])
                collection.optimizer.load_state_dict(saved[1])
                train(collection, slice(STEPS - 1, None))
            elif collection.staging.steps < STEPS:
                assert all(same(weights(collection), before)), error.place
                assert not collection.staging.empty, error.place
                collection.optimizer.step()
            assert all(same(weights(collection), after)), error.place
    return places


@pytest.mark.slow
@pytest.mark.parametrize("every", [80, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", MODES)
def test_steps(name, every):
    assert len(steps_fail(name, every)) > 200 // every


def learns_fail(name, every):
    """The places of errors in learn(): no row changes, and a step that follows is right, or is
    refused with that error."""
    places, optimizer = [], "sgd" if name == "pooled" else "adagrad"
    before, after = around_the_last_step(optimizer)
    ranked = {config.name: torch.arange(10, 30) for config in TABLES}  # 20 stay in hotline
    for number, kind in numbers(every):
        with warnings.catch_warnings(), opened(name, optimizer=optimizer) as collection:
            warnings.simplefilter("ignore")
            train(collection, slice(STEPS - 1))
            error = ErrorAt(number, kind)
            said = error.said(lambda collection=collection: collection.learn(ranked))
            if error.place is None:
                return places
            places.append(error.place)
            assert all(same(weights(collection), before)), f"{said!r} at {error.place}"
            expected = after
            try:
                train(collection, slice(STEPS - 1, None))
            except BaseException as refusal:
                assert "planted" in str(refusal), error.place
                expected = before
            assert all(same(weights(collection), expected)), error.place
            with suppress(ValueError, DeviceError, KeyboardInterrupt):
                collection.close()  # it repeats the error
    return places


@pytest.mark.slow
@pytest.mark.parametrize("every", [80, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", sorted(set(MODES) - {"resident"}))
def test_learning(name, every):
    assert len(learns_fail(name, every)) > 100 // every


def lost_after_the_update(monkeypatch):
    write = row_updates.RowUpdates.write_owed

    def forgetful(self):
        try:
            write(self)
        finally:
            self._owed.clear()

    monkeypatch.setattr(row_updates.RowUpdates, "write_owed", forgetful)


def steps_that_go_on(monkeypatch):
    monkeypatch.setattr(staging.GradientStage, "check_whole", lambda _: None)


@pytest.mark.long
@pytest.mark.parametrize("fault", [lost_after_the_update, steps_that_go_on])
def test_a_fault_of_steps_shows(monkeypatch, fault):
    fault(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        steps_fail("freqcache", 5)


@pytest.mark.parametrize("every", [80, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["rows", "state"])
@pytest.mark.parametrize("name", ["resident", "scratchpipe"])
def test_loads(name, what, every):
    """A load is whole, or nothing trains."""
    with opened(name, seed=9) as other:
        train(other, slice(None))
        saved = {key: each.clone() for key, each in other.state_dict().items()}
        after, state = weights(other), other.optimizer.state_dict()
    places = []
    for number, kind in numbers(every):
        with suppress(ValueError, DeviceError, KeyboardInterrupt), opened(name) as collection:
            train(collection, slice(2))

            def contents(collection=collection):
                found = weights(collection) if what == "rows" else collection.saved.row_states()
                return {key: each.clone() for key, each in found.items()}

            before, error = contents(), ErrorAt(number, kind)
            said = error.said(lambda collection=collection: (
                collection.load_state_dict(saved) if what == "rows"
                else collection.optimizer.load_state_dict(state)))
            if error.place is None:
                break
            places.append(error.place)
            found = contents()
            assert (collection.staging.broken or all(same(found, before)) or all(
                same(found, after if what == "rows" else state["state"][0]))), error.place
            assert said is not None or not collection.staging.broken, error.place
    assert len(places) > 100 // every
