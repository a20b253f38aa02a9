"""An error at any line: a step or a load is whole, or its error names the tables."""

import linecache
import random
import signal
import sys
import warnings
from contextlib import ExitStack, contextmanager, suppress

import hotrow
import pytest
import torch
from hotrow.contract.errors import DeviceError
from hotrow.torch import HotEmbeddingBagCollection as Collection
from hotrow.torch import TableConfig
from hotrow.torch.optim import staging
from hotrow.torch.store import cached

from tests.support.options import grouped
from tests.torch.training import PLANNING

TABLES = [TableConfig("a", 300, 8), TableConfig("b", 500, 8), TableConfig("c", 200, 4)]
STEPS = 4
# Few slots, so that each batch has rows without one.
MODES = {
    "resident": {"mode": "resident"},
    "scratchpipe": {"mode": "scratchpipe", "share": 4, "workers": 0},
    "freqcache": {"mode": "freqcache", "share": 4, "admission": True, "workers": 0},
    "hotline": {"mode": "hotline", "share": 4, "workers": 0},
    "pooled": {"mode": "hotline", "share": 4, "cold": "pooled", "workers": 0}}


def batches():
    generator = torch.Generator().manual_seed(5)
    limits = torch.tensor([config.num_embeddings for config in TABLES])
    return [(torch.rand(60, 3, generator=generator) ** 2 * limits).long() for _ in range(STEPS)]


def weights(collection):
    return {config.name: collection.contents.table(config.name)[0].clone() for config in TABLES}


@contextmanager
def opened(name, seed=2, optimizer="adagrad"):
    options = dict(MODES[name])
    with ExitStack() as held:
        if name != "resident":
            options["device"] = held.enter_context(hotrow.open("cpu", config=PLANNING))
        collection = held.enter_context(Collection(TABLES, optimizer=optimizer, lr=0.1,
                                                   **grouped(seed=seed, **options)))
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


def compare(found, before, after, said, place):
    """Each table has not changed or is whole, and those that differ from the others are named;
    `said` is None after a call that went on."""
    new = {name: torch.allclose(found[name], after[name], rtol=1e-5, atol=1e-5) for name in found}
    assert said is not None or all(new.values()), f"{new}, and no error at {place}"
    for name, values in found.items():
        named = repr(name) in (said or "")
        old = torch.allclose(values, before[name], rtol=1e-5, atol=1e-5)
        assert new[name] or old or named, f"{name} is neither, {said!r} at {place}"
    if len(set(new.values())) > 1:
        assert any(repr(name) in said for name in found), f"whole: {new}, {said!r} at {place}"
    return all(new.values())


def around_the_last_step(optimizer):
    """The weights of a run without errors, before and after its last step."""
    with opened("resident", optimizer=optimizer) as whole:
        train(whole, slice(STEPS - 1))
        before = weights(whole)
        train(whole, slice(STEPS - 1, None))
        return before, weights(whole)


def steps_fail(name, every):
    """The places of errors in a step."""
    places, optimizer = [], "sgd" if name == "pooled" else "adagrad"
    before, after = around_the_last_step(optimizer)
    for number, kind in numbers(every):
        with warnings.catch_warnings(), opened(
                name, optimizer=optimizer) as collection:
            warnings.simplefilter("ignore")
            train(collection, slice(STEPS - 1))
            collection(batches()[-1]).square().sum().backward()
            error = ErrorAt(number, kind)
            said = error.said(collection.optimizer.step)
            if error.place is None:
                return places
            places.append(error.place)
            whole = compare(weights(collection), before, after, said, error.place)
            stepped = collection.staging.steps == STEPS
            assert "perhaps" in (said or "") or whole == stepped, error.place
            staged = [each.values is not None for each in collection.staging.all]
            collection.optimizer.step()
            if "perhaps" not in (said or "") and (whole or any(staged)):
                found = weights(collection)
                for table, values in after.items():
                    torch.testing.assert_close(found[table], values, rtol=1e-5, atol=1e-5,
                                               msg=f"{table} again, {error.place}")
    return places


@pytest.mark.slow
@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", MODES)
def test_steps(name, every):
    """A step() that follows applies what is left, once."""
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
            assert compare(weights(collection), before, before, said, error.place), error.place
            expected = after
            try:
                train(collection, slice(STEPS - 1, None))
            except BaseException as refusal:
                assert "planted" in str(refusal), error.place
                expected = before
            assert compare(weights(collection), expected, expected, said, error.place), error.place
            with suppress(ValueError, DeviceError, KeyboardInterrupt):
                collection.close()  # it repeats the error
    return places


@pytest.mark.slow
@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", sorted(set(MODES) - {"resident"}))
def test_learning(name, every):
    assert len(learns_fail(name, every)) > 100 // every


def lost_after_the_update(monkeypatch):
    write = cached.CachedStore._write_owed

    def forgetful(self):
        try:
            write(self)
        finally:
            self._owed.clear()

    monkeypatch.setattr(cached.CachedStore, "_write_owed", forgetful)


def tables_not_named(monkeypatch):
    monkeypatch.setattr(staging, "raise_saying", lambda error, what: (_ for _ in ()).throw(error))


@pytest.mark.long
@pytest.mark.parametrize("fault", [lost_after_the_update, tables_not_named])
def test_a_fault_of_steps_shows(monkeypatch, fault):
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="/hotrow/"):
        steps_fail("freqcache", 5)


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["rows", "state"])
@pytest.mark.parametrize("name", ["resident", "scratchpipe"])
def test_loads(name, what, every):
    with opened(name, seed=9) as other:
        train(other, slice(None))
        saved = {key: each.clone() for key, each in other.state_dict().items()}
        after, state = weights(other), other.optimizer.state_dict()
    places = []
    for number, kind in numbers(every):
        with suppress(ValueError, DeviceError, KeyboardInterrupt), opened(name) as collection:
            train(collection, slice(2))
            before = weights(collection)
            states = {key: each.clone() for key, each in collection.saved.row_states().items()}
            error = ErrorAt(number, kind)
            said = error.said(lambda collection=collection: (
                collection.load_state_dict(saved) if what == "rows"
                else collection.optimizer.load_state_dict(state)))
            if error.place is None:
                break
            places.append(error.place)
            if what == "rows":
                compare(weights(collection), before, after, said, error.place)
            else:
                assert weights(collection).keys() == before.keys()
                compare(collection.saved.row_states(), states, state["state"][0], said, error.place)
    assert len(places) > 100 // every
