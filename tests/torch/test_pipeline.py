"""TrainPipeline: order, overlap, clean ends, and resumed runs."""

import itertools
import os
import threading

import hotrow
import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, TrainPipeline, convert
from hotrow.torch.pipeline import train_pipeline
from hotrow.torch.pipeline.micro_batch import indexed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.torch.training import PLANNING, TABLES, draw


class Model(nn.Module):
    """A collection, dropout, which draws random numbers, and a layer with parameters."""

    def __init__(self, collection):
        super().__init__()
        self.embeddings = collection
        self.top = nn.Sequential(nn.Dropout(0.2), nn.Linear(22, 1))

    def forward(self, batch):
        ids, _ = batch
        return self.top(self.embeddings(ids)).squeeze(1)


def dataset():
    generator = torch.Generator().manual_seed(1)
    ids = torch.stack([(config.num_embeddings * torch.rand(300, generator=generator) ** 3).long()
                       for config in TABLES], dim=1)
    return TensorDataset(ids, torch.rand(300, generator=generator))


def loader(**options):
    return DataLoader(dataset(), 16, shuffle=True, **options)


class Run:
    """A model with its device and pipeline."""

    def __init__(self, mode="scratchpipe", loader=None, ahead=None, transport="model", **options):
        self.device = None if mode == "resident" else hotrow.open(transport, config=PLANNING)
        torch.manual_seed(4)
        self.model = Model(HotEmbeddingBagCollection(TABLES, self.device, mode, "rowwise_adagrad",
                                                     0.1, seed=2, **options))
        self.collection = self.model.embeddings
        self.dense = torch.optim.SGD(self.model.parameters(), 0.1)
        self.pipeline = TrainPipeline(loader or globals()["loader"](), self.model,
                                      lambda batch: batch[0], ahead)
        self.losses = []

    def step(self, batch):
        for each in (self.dense, self.collection.optimizer):
            each.zero_grad()
        loss = (self.model(batch) - batch[1]).square().mean()
        loss.backward()
        for each in (self.dense, self.collection.optimizer):
            each.step()
        self.losses.append(float(loss.detach()))

    def epoch(self):
        for batch in self.pipeline:
            self.step(batch)

    def end(self):
        self.collection.flush()
        digest = self.collection.sha256()
        self.pipeline.close()
        self.collection.close()
        if self.device is not None:
            self.device.close()
        return digest


@pytest.mark.slow
def test_epochs_shuffles_and_read_ahead_change_no_bit():
    ends = [trained(**options) for options in (
        {"mode": "resident", "ahead": 0}, {"mode": "resident", "ahead": 5},
        {"workers": 3, "depth": 3, "share": 2}, {"mode": "hotline", "workers": 1})]
    assert all(each == ends[0] for each in ends[1:])
    assert ends[0][0][:19] != ends[0][0][19:]


@pytest.mark.long
def test_workers_of_the_loader_that_stay():
    one, other = (trained(loader=loader(num_workers=1, persistent_workers=True), **options)
                  for options in ({"mode": "resident", "ahead": 0}, {"mode": "freqcache"}))
    assert one == other


def trained(**options):
    """Losses of two epochs and the digest at their end."""
    run = Run(transport="cpu", **options)
    for _ in range(2):
        run.epoch()
    assert len(run.losses) == 2 * len(run.pipeline) == 38  # with the short tail
    return run.losses, run.end()


@pytest.mark.slow
@pytest.mark.parametrize("trained", [7, pytest.param(19, marks=pytest.mark.slow)])
def test_a_run_resumes(trained):
    """In the middle of its second epoch, and at the end."""
    whole = Run(workers=2, transport="cpu")
    for _ in range(3):
        whole.epoch()
    first = Run(share=2, transport="cpu")
    first.epoch()
    for number, batch in enumerate(first.pipeline, 1):
        first.step(batch)
        assert first.pipeline.batch == number
        if number == trained < 19:
            break
    assert len(first.losses) == 19 + trained
    state = {"model": first.model.state_dict(), "rows": first.collection.optimizer.state_dict(),
             "pipeline": first.pipeline.state_dict()}
    state = torch.load(saved(state), weights_only=True)
    second = Run(mode="freqcache", transport="cpu")
    second.model.load_state_dict(state["model"])
    second.collection.optimizer.load_state_dict(state["rows"])
    second.pipeline.load_state_dict(state["pipeline"])
    while second.pipeline.epoch < 3:
        second.epoch()
    assert first.losses + second.losses == whole.losses
    assert whole.end() == second.end()
    first.end()


def saved(state):
    import io
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


@pytest.mark.slow
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("workers", [0, 3])
def test_whatever_ends_the_loop_ends_the_threads(error, workers):
    before, run = set(threading.enumerate()), Run(workers=workers)
    with pytest.raises(error, match="enough"), run.pipeline as pipeline:
        for number, batch in enumerate(pipeline):
            run.step(batch)
            if number == 3:
                raise error("enough")
    assert set(threading.enumerate()) == before
    run.epoch()  # the collection still works
    assert len(run.losses) == 4 + 19
    run.end()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("workers", [0, 2])
def test_the_error_of_a_stage_reaches_the_loop(workers):
    def fail(stage, number):
        if (stage, number) == ("collect", 5):
            raise OSError("the card is gone")

    before, run = set(threading.enumerate()), Run(workers=workers)
    run.collection.store.stages.before = fail
    with pytest.raises(OSError, match="the card is gone"), run.pipeline:
        run.epoch()
    assert len(run.losses) <= 5 and set(threading.enumerate()) == before
    with pytest.raises(OSError, match="the card is gone"):
        run.collection.close()
    run.device.close()


@pytest.mark.slow
def test_figures_and_scalars():
    class Writer:
        def __init__(self):
            self.written = []

        def add_scalar(self, name, value, step):
            self.written.append((name, value, step))

    run, seen, writer = Run(), [], Writer()
    run.pipeline = TrainPipeline(loader(), run.model, lambda batch: (batch[0],), watch=seen.append,
                                 writer=writer)
    run.epoch()
    assert [each["batches"] for each in seen] == list(range(1, 20))
    assert 0 < seen[-1]["hit_rate"] < 1 and seen[-1]["batches_per_s"] > 0
    assert set(seen[-1]["seconds"]) == {"plan", "collect", "exchange", "insert"}
    assert {name for name, _, _ in writer.written} == {
        "hotrow/batches_per_s", "hotrow/hit_rate", "hotrow/stall"}
    ended = run.pipeline.figures["batches_per_s"]
    assert ended > 0 and run.pipeline.figures["batches_per_s"] == ended, "time between epochs"
    seconds = sum(seen[-1]["seconds"].values())
    assert seen[-1]["stall"] >= 0.99 * seconds > 0, "without threads training waits for each stage"
    following = TrainPipeline(loader(), run.model, lambda batch: (batch[0],))
    assert following.figures["stall"] == 0 == sum(following.figures["seconds"].values())
    assert following.figures["hit_rate"] is None and following.figures["batches"] == 0
    run.end()


class SlowStages:
    """A clock by which every stage of a collection takes 3 seconds, and nothing else any time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def begin(self, *_):
        self.now += 3.0


@pytest.mark.slow
def test_stall_has_the_stages_that_training_runs_itself():
    clock = SlowStages()
    run = Run(workers=0)
    stages = run.collection.store.stages
    stages.clock, stages.before = clock, clock.begin
    for ids, _ in loader():
        run.collection.prefetch(ids)
        run.collection(ids).sum().backward()
        clock.now += 5.0  # of training
        run.collection.optimizer.step()
    count = run.collection.batches.count
    figures = run.pipeline.figures
    assert figures["stall"] == 4 * 3.0 * count
    run.end()


def test_stall_has_no_stages_that_ran_while_training_was_busy():
    clock = SlowStages()
    run = Run(workers=1)
    stages, inserted = run.collection.store.stages, threading.Event()
    stages.clock, stages.before = clock, clock.begin
    ids = next(iter(loader()))[0]
    run.collection.prefetch(ids)
    while stages.through("insert") < 1:
        inserted.wait(0.001)
    run.collection(ids)
    assert clock.now == 4 * 3.0 and run.pipeline.figures["stall"] == 0.0
    run.end()


@pytest.mark.slow
def test_popular_samples_train_while_the_others_rows_come():
    """Parts of a batch make one step, that of the whole batch."""
    happened = []
    run = Run("hotline")
    run.collection.store.stages.before = lambda stage, number: happened.append((stage, number))
    beside = Run("resident")
    for each in (run, beside):
        each.model.eval()  # dropout would draw for parts what it draws for none
        each.collection.train()
    for batch in beside.pipeline:
        run.collection.observe(batch[0])
    assert run.collection.learn() > 100
    sizes = []

    def loss(batch):
        sizes.append(len(batch[1]))
        happened.append(("train", len(batch[1])))
        return (run.model(batch) - batch[1]).square().mean()

    torch.manual_seed(9)
    run.pipeline.train(loss, run.dense)
    torch.manual_seed(9)
    beside.epoch()
    assert sum(sizes) == 300 and 19 < len(sizes) <= 38
    for number in range(19):
        first = happened.index(("collect", number))
        trained = [each for each in happened[:first] if each[0] == "train"]
        assert sum(size for _, size in trained) > 16 * number, "popular samples come first"
    for each in (run, beside):
        each.collection.flush()
    for config in TABLES:
        for one, other in zip(run.collection.contents.table(config.name),
                              beside.collection.contents.table(config.name), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    run.end()
    beside.end()


def test_a_batch_that_is_no_tensor():
    run = Run("hotline")
    with pytest.raises(hotrow.Error, match="a batch holds tensors"):
        indexed(draw(1, 1)[0], torch.tensor([0]))
    run.model.top.append(nn.BatchNorm1d(1))
    with pytest.raises(hotrow.Error, match="couples the samples"):
        run.pipeline.train(None)
    run.end()


def test_a_model_needs_a_collection():
    with pytest.raises(hotrow.Error, match="Linear has none"):
        TrainPipeline([], nn.Linear(2, 2), None)


class Two(nn.Module):
    """A pooled and an unpooled collection, and a converted bag."""

    def __init__(self, modes, seed=0, **options):
        super().__init__()
        torch.manual_seed(seed)

        def card(mode):
            return {"mode": mode, "lr": 0.1, "optimizer": "adagrad", **(
                {} if mode == "resident" else {"device": "model", "preset": "tiny", **options})}

        self.pooled = HotEmbeddingBagCollection([TableConfig("a", 50, 8)],
                                                **card(modes[0]))
        self.rows = HotEmbeddingBagCollection([TableConfig("b", 50, 8, "none")],
                                              **card(modes[1]))
        self.bags = nn.ModuleDict({"bag": nn.EmbeddingBag(50, 8, mode="sum")})
        self.tables = (self.pooled, self.rows, convert(self.bags, **card(modes[2])))

    def forward(self, ids):
        return (self.pooled(ids) * self.rows(ids) * self.bags["bag"](ids)).sum()

    def close(self):
        for each in self.tables:
            each.close()


def by_name(ids):
    return {"pooled": ids, "rows": (ids,), "bags.bag": ids}


@pytest.mark.parametrize("options", [{}, {"workers": 2}])
def test_a_pipeline_feeds_several_collections(options):
    batches = [torch.randint(50, (16, 1), generator=torch.Generator().manual_seed(seed))
               for seed in range(8)]
    ends = []
    for modes in (["resident"] * 3, ["scratchpipe", "freqcache", "hotline"]):
        model = Two(modes, **options)
        with TrainPipeline(batches, model, by_name) as pipeline:
            assert pipeline.collections == list(model.tables)
            for number, ids in enumerate(pipeline):
                if number in (2, 3):
                    pipeline.skip()
                    continue
                model(ids).backward()
                for each in model.tables:
                    each.optimizer.step()
            if modes[0] != "resident":
                assert pipeline.figures["hit_rate"] > 0
                with pytest.raises(hotrow.Error, match="iterate the pipeline"):
                    pipeline.train(model)
                assert all(each.statistics["lookups"] == 16 * 8 for each in model.tables)
        for each in model.tables:
            each.flush()
            assert each.batches.count == len(batches), "a batch that is skipped has its number"
        ends.append([each.sha256() for each in model.tables])
        model.close()
    assert ends[0] == ends[1]


def test_inputs_of_several_collections_are_checked():
    model, batches = Two(["scratchpipe"] * 3), [torch.zeros(4, 1, dtype=torch.int64)] * 3
    for given, said in (({"pooled": batches[0]}, "nothing for rows"),
                        ({**by_name(batches[0]), "row": 1}, "no collection or .* 'row'"),
                        ({**by_name(batches[0]), "rows": batches[0] + 50}, "no row of table 'b'")):
        with pytest.raises(hotrow.Error, match=said):
            next(iter(TrainPipeline(batches, model, lambda _, given=given: given)))
        assert not any(each.store.waiting for each in model.tables)
    model(batches[0]).backward()
    model.close()


@pytest.mark.slow
def test_inputs_of_one_collection_may_have_its_name():
    """A dict of the attribute's name has its inputs, and any other name is refused."""
    ends = []
    for inputs in (lambda batch: batch[0], lambda batch: {"embeddings": batch[0]}):
        run = Run(loader=loader(generator=torch.Generator().manual_seed(1)))
        run.pipeline = TrainPipeline(run.pipeline.loader, run.model, inputs)
        run.epoch()
        ends.append(run.end())
    assert ends[0] == ends[1]
    run = Run()
    with pytest.raises(hotrow.Error, match=r"Model has no collection or .* 'embedding'"):
        next(iter(TrainPipeline(run.pipeline.loader, run.model,
                                lambda batch: {"embedding": batch[0]})))
    with pytest.raises(hotrow.Error, match="0 or more batches ahead, not -1"):
        TrainPipeline(run.pipeline.loader, run.model, lambda batch: batch[0], ahead=-1)
    run.end()


@pytest.mark.slow
def test_stages_overlap_on_a_virtual_clock():
    """A step takes as long as its slowest stage, within a tenth, not as long as all together."""
    for slowest in ("plan", "collect", "train"):
        lasts = dict.fromkeys(("plan", "collect", "exchange", "insert", "train"), 20.0)
        lasts[slowest] = 50.0
        run = Run(depth=8, look_ahead=6, workers=0)
        run.collection.store.moves.direct[:] = [False] * 3  # copies go through every stage
        run.collection.store.stages.before = lambda *_: None  # and so do batches without any
        clock = Clock(run.collection.store, lasts)
        batches = draw(3, 26, samples=4)
        for number, batch in enumerate(batches):
            for each in batches[number and number + 13:number + 14]:
                run.collection.prefetch(each.ids)
            run.model.zero_grad()
            run.collection(batch.ids).sum().backward()
            clock.pass_by(lasts["train"])
            run.collection.optimizer.step()
            if number == 9:
                began = clock.now
        per_step = (clock.now - began) / (len(batches) - 10)
        assert 50.0 <= per_step <= 55.0, (slowest, per_step)
        run.end()


@pytest.mark.slow
@pytest.mark.parametrize("gather", [
    pytest.param(5.0, marks=pytest.mark.slow), 40.0, pytest.param(200.0, marks=pytest.mark.slow)])
def test_how_much_of_a_gather_popular_samples_hide(gather):
    """min(1, p T / G) of a gather of G seconds, beside a batch that trains in T seconds and whose
    share p is popular."""
    lasts = {"plan": 0.0, "collect": gather, "exchange": 0.0, "insert": 0.0}
    trains, shares = 40.0, []
    for ratio in (0.02, 0.6):
        run, hides, batches = Run("hotline", depth=1, look_ahead=0), [], list(loader())
        for ids, _ in batches:
            run.collection.observe(ids)
        run.collection.learn(warmup_ratio=ratio)
        clock = Clock(run.collection.store, lasts)
        for ids, label in batches:
            run.collection.prefetch(ids)
            before = run.collection.store.micro_batches.popular
            for part in run.collection.batches.parts():
                run.model((ids[part], label[part])).square().mean().backward()
                clock.pass_by(trains * len(part) / len(label))
            popular = run.collection.store.micro_batches.popular - before
            # Of a batch without other samples nothing is brought while it trains.
            hides.append(min(gather, trains * popular / len(label)) * (popular < len(label)))
            run.collection.optimizer.step()
            run.collection.optimizer.zero_grad()
        assert run.collection.batches.count == len(batches)
        figures = run.pipeline.figures
        assert figures["gather_hidden"] == pytest.approx(sum(hides) / (gather * len(batches)))
        assert figures["popular_fraction"] == (
            run.collection.store.micro_batches.popular / sum(len(label) for _, label in batches))
        shares.append((figures["popular_fraction"], figures["gather_hidden"]))
        run.end()
    assert shares == sorted(shares) and shares[0] < shares[-1], shares


class Clock:
    """Runs a store's stages on a virtual clock.

    A stage begins as soon as it may, and its work is done at its end.
    """

    def __init__(self, store, lasts):
        self.now, self.lasts, self.stages = 0.0, lasts, store.stages
        self.under_way = {}  # end of each stage that has begun
        store.stages.wait, store.stages.clock = self.wait, lambda: self.now

    def wait(self, reached, what):
        while not reached():
            self._begin()
            self._advance(min(self.under_way.values()))
        self._begin()

    def pass_by(self, seconds):
        """Let the trainer be busy for some time."""
        until = self.now + seconds
        self._begin()
        while self.under_way and min(self.under_way.values()) <= until:
            self._advance(min(self.under_way.values()))
            self._begin()
        self.now = until

    def _begin(self):
        for at in self.stages._ready():
            self.stages._busy[at] = True
            self.under_way[at] = self.now + self.lasts[self.stages.stages[at].name]

    def _advance(self, end):
        self.now = end
        for at in [at for at, each in self.under_way.items() if each == end]:
            del self.under_way[at]
            self.stages._run(at)
            self.stages.seconds[at] += self.lasts[self.stages.stages[at].name]


def test_a_forked_process_does_not_end_the_epoch_of_its_parent():
    run = Run("resident")
    next(iter(run.pipeline))
    assert run.pipeline in train_pipeline._OPEN
    child = os.fork()
    if not child:
        os._exit(len(train_pipeline._OPEN))
    assert os.waitpid(child, 0)[1] == 0
    run.end()


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("ahead", [0, 3])
def test_the_caller_s_generator_stays(mode, ahead):
    """Reading draws none of the model's random numbers, and each epoch has its own order."""
    def order(run):
        return torch.cat([ids[:, 0] for ids, _ in run.pipeline])
    run, other, resumed = (Run(mode, ahead=ahead) for _ in range(3))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    orders = [order(run) for _ in range(3)]
    state = run.pipeline.state_dict()
    orders.append(order(run))
    assert torch.equal(torch.get_rng_state(), before)
    for one, two in itertools.pairwise(orders):
        assert not torch.equal(one, two) and torch.equal(one.sort()[0], two.sort()[0])
    assert torch.equal(order(other), orders[0])
    resumed.pipeline.load_state_dict(state)
    assert torch.equal(order(resumed), orders[3])
