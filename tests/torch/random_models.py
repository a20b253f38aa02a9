"""Small models with `nn.EmbeddingBag`s of every property, and loops that train them."""

import copy
import io
import pickle
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from hotrow.torch import convert
from hotrow.torch.optim.rules import OPTIMIZERS
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint


class Scaled(nn.EmbeddingBag):
    """A subclass with a forward of its own."""

    def forward(self, *arguments, **named):
        return 10 * super().forward(*arguments, **named)


def doubled(module, given, result):
    return 2 * result


def shifted(module, given):
    return given[0].roll(1, 0), *given[1:]


def own_forward(bag):
    bag.forward = lambda *arguments: 3 * nn.EmbeddingBag.forward(bag, *arguments)


# What a bag may have that HotEmbeddingBag refuses, and what its error says.
REFUSED = {
    "subclass": "Scaled", "max_norm": "max_norm", "scale": "scale_grad_by_freq",
    "max": "mode='max'",
    "float64": "float64", "weight_norm": "parametrizations", "buffer": "buffers",
    "backward_hook": "backward hooks", "own_forward": "forward of its own",
    "tied_weight": "tied weights", "eval": "in eval()",
}
CARRIED = ("frozen", "hook", "pre_hook", "sparse", "twice")
FORMS = ("rows", "strided", "offsets", "last_offset", "int32")


@dataclass(frozen=True)
class BagCase:
    """An `nn.EmbeddingBag`; `properties` are names of REFUSED and CARRIED."""

    rows: int
    dim: int
    mode: str
    dtype: torch.dtype
    padding: int | None
    form: str
    weighted: bool
    properties: frozenset

    def make(self):
        options = {"max_norm": 1.0} if "max_norm" in self.properties else {}
        if "single" in self.properties:
            bag = nn.Embedding(self.rows, self.dim, padding_idx=self.padding, dtype=self.dtype,
                               sparse="sparse" in self.properties)
        else:
            bag = (Scaled if "subclass" in self.properties else nn.EmbeddingBag)(
                self.rows, self.dim, mode="max" if "max" in self.properties else self.mode,
                padding_idx=self.padding, include_last_offset=self.form == "last_offset",
                scale_grad_by_freq="scale" in self.properties, sparse="sparse" in self.properties,
                dtype=torch.float64 if "float64" in self.properties else self.dtype, **options)
        for name, change in {
            "frozen": lambda: bag.weight.requires_grad_(False),
            "hook": lambda: bag.register_forward_hook(doubled),
            "pre_hook": lambda: bag.register_forward_pre_hook(shifted),
            "weight_norm": lambda: nn.utils.parametrizations.weight_norm(bag),
            "buffer": lambda: bag.register_buffer("scale", torch.ones(1)),
            "backward_hook": lambda: bag.register_full_backward_hook(lambda *_: None),
            "own_forward": lambda: own_forward(bag),
            "eval": bag.eval,
        }.items():
            if name in self.properties:
                change()
        return bag

    def empty(self, samples):
        """Arguments of a call for that many samples, no lookup where the form allows it."""
        generator = torch.Generator().manual_seed(0)
        given = self.draw(samples, generator)
        if len(given) > 1 and given[1] is not None:
            given = [given[0][:0], torch.zeros_like(given[1]),
                     *(weights[:0] for weights in given[2:])]
        return given

    def draw(self, samples, generator):
        """Arguments of a call for that many samples."""
        integers = torch.int32 if self.form == "int32" else torch.int64

        def ids(*shape):
            return torch.randint(self.rows, shape, generator=generator).to(integers)

        if "single" in self.properties:
            return [ids(samples, 2)[:, int(self.form == "strided")]]
        if self.form == "one":
            given = [ids(samples, 1), None]
        elif self.form in ("rows", "strided"):
            step = 2 if self.form == "strided" else 1
            given = [ids(samples, 3 * step)[:, ::step], None]
        else:
            lengths = torch.randint(0, 4, (samples,), generator=generator)
            offsets = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)))
            given = [ids(int(offsets[-1])), offsets.to(integers)]
            if self.form != "last_offset":
                given[1] = given[1][:-1]
        if self.weighted:
            given.append(torch.rand(given[0].shape, generator=generator).to(self.dtype))
        return given


@dataclass(frozen=True)
class ModelCase:
    """A model, and a loop over `steps` steps with events before some of them (-1: never)."""

    bags: list
    seed: int
    samples: int
    mode: str
    share: int
    optimizer: str
    options: dict
    steps: int
    accumulate: int
    clip: bool
    schedule: bool
    announced: bool
    events: dict = field(default_factory=dict)
    function: str = ""  # of FUNCTIONS, for the event "apply"

    @property
    def words(self):
        """What the error of a refusal may say."""
        words = [REFUSED[name] for bag in self.bags for name in bag.properties if name in REFUSED]
        narrow = any(bag.dtype != torch.float32 for bag in self.bags)
        stateful = self.optimizer in ("adagrad", "adam", "partial_rowwise_adam")
        return [*words, "float32 rows"] if narrow and stateful else words

    @property
    def has_peer(self):
        """Whether an optimizer of PyTorch trains rows that no sample looked up alike."""
        return self.optimizer in PEERS and not self.options


# From an accumulator of zero the first step has length lr whatever the gradient, so that the
# rounding error of a gradient near zero reaches the row undamped.
INITIAL = 0.1
PEERS = {"sgd": torch.optim.SGD,
         "adagrad": partial(torch.optim.Adagrad, initial_accumulator_value=INITIAL)}
EVENTS = ("evaluate", "resume", "copy", "drop", "write", "freeze")
HARD_EVENTS = (*EVENTS, "fail", "thread", "empty", "apply")


def _saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _hooked(model, loss, register):
    handle = register(lambda *_: None)
    loss()
    handle.remove()


def _frozen(model, loss):
    trains = [each.requires_grad for each in model.parameters()]
    model.requires_grad_(False)
    loss()
    for each, was in zip(model.parameters(), trains, strict=True):
        each.requires_grad_(was)


def _grads(model):
    return [each for each in model.parameters() if each.requires_grad]


# Functions of PyTorch that touch parameters or results, by name: of a model and a function that
# computes its loss. Whether they work or are refused, the model afterwards trains as before.
FUNCTIONS = {
    "autograd.grad": lambda model, loss: torch.autograd.grad(
        loss(), _grads(model), allow_unused=True),
    "grad of a part": lambda model, loss: torch.autograd.grad(loss(), [model.top.weight]),
    "inputs": lambda model, loss: loss().backward(inputs=[model.top.weight]),
    "retain_graph": lambda model, loss: [each.backward(retain_graph=True) for each in 2 * [loss()]],
    "create_graph": lambda model, loss: torch.autograd.grad(
        loss(), [model.top.bias], create_graph=True),
    "vjp": lambda model, loss: torch.autograd.functional.vjp(
        lambda scale: loss() * scale, torch.ones(())),
    "jacobian": lambda model, loss: torch.autograd.functional.jacobian(
        lambda scale: loss() * scale, torch.ones(())),
    "hvp": lambda model, loss: torch.autograd.functional.hvp(
        lambda scale: loss() * scale.square(), torch.ones(())),
    "checkpoint": lambda model, loss: checkpoint(loss, use_reentrant=False).backward(),
    "saved_tensors_hooks": lambda model, loss: _within(torch.autograd.graph.save_on_cpu(), loss),
    "no_grad": lambda model, loss: _within(torch.no_grad(), loss),
    "inference_mode": lambda model, loss: _within(torch.inference_mode(), loss),
    "anomaly": lambda model, loss: _within(torch.autograd.set_detect_anomaly(True), loss),
    "autocast": lambda model, loss: _within(torch.autocast("cpu", torch.bfloat16), loss),
    "clip_grad_norm_": lambda model, loss: (
        loss().backward(), nn.utils.clip_grad_norm_(model.parameters(), 0.1)),
    "clip_grad_value_": lambda model, loss: (
        loss().backward(), nn.utils.clip_grad_value_(model.parameters(), 0.1)),
    "clip_grads_with_norm_": lambda model, loss: (loss().backward(),
        nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, torch.ones(()))),
    "get_total_norm": lambda model, loss: nn.utils.get_total_norm(_grads(model)),
    "parameters_to_vector": lambda model, loss: nn.utils.parameters_to_vector(model.parameters()),
    "penalty": lambda model, loss: sum(
        each.square().sum() for each in model.parameters()).backward(),
    "norms": lambda model, loss: [each.norm() for each in model.parameters()],
    "detached": lambda model, loss: [each.detach().sum() for each in model.parameters()],
    "scaled grad": lambda model, loss: (loss().backward(), [
        each.grad.mul_(2) for each in model.parameters() if each.grad is not None]),
    "hook on a parameter": lambda model, loss: [_hooked(model, loss, each.register_hook)
                                                for each in _grads(model)],
    "hook after accumulation": lambda model, loss: [
        _hooked(model, loss, each.register_post_accumulate_grad_hook) for each in _grads(model)],
    "forward hook": lambda model, loss: _hooked(model, loss, model.register_forward_hook),
    "forward hook of a bag": lambda model, loss: _hooked(
        model, loss, model.bags[0].register_forward_hook),
    "backward hook": lambda model, loss: _hooked(model, loss, model.register_full_backward_hook),
    "state_dict": lambda model, loss: model.load_state_dict(copy.deepcopy(model.state_dict())),
    "own state": lambda model, loss: model.load_state_dict(model.state_dict()),
    "wrong state": lambda model, loss: model.load_state_dict({"other": torch.ones(1)}),
    "deepcopy": lambda model, loss: copy.deepcopy(model),
    "pickle": lambda model, loss: pickle.loads(pickle.dumps(model)),
    "save": lambda model, loss: _saved(model),
    "apply": lambda model, loss: model.apply(lambda module: None),
    "train": lambda model, loss: model.train(model.training),
    "requires_grad_": _frozen,
    "average": lambda model, loss: AveragedModel(model).update_parameters(model),
    "prune a copy": lambda model, loss: prune.l1_unstructured(
        copy.deepcopy(model).bags[0], "weight", 0.5),
    "weight_norm of a copy": lambda model, loss: nn.utils.parametrizations.weight_norm(
        copy.deepcopy(model).bags[0]),
    "assign to a copy": lambda model, loss: setattr(
        copy.deepcopy(model).bags[0], "weight", nn.Parameter(torch.zeros(1, 1))),
    "script": lambda model, loss: torch.jit.script(model),
    "functional_call": lambda model, loss: torch.func.functional_call(
        model.top, dict(model.top.named_parameters()), (torch.ones(1, model.top.in_features),)),
    "stack_module_state": lambda model, loss: torch.func.stack_module_state([model.top]),
    "moments of a copy": lambda model, loss: torch.optim.Adam(copy.deepcopy(model).parameters()),
    "zero_grad": lambda model, loss: (loss().backward(), model.zero_grad(set_to_none=False)),
    "weight": lambda model, loss: [bag.weight.mean() for bag in model.bags],
    "weight in numpy": lambda model, loss: [bag.weight.detach().float().numpy().sum()
                                            for bag in model.bags],
    "in place": lambda model, loss: loss().mul_(2).backward(),
}


def _within(context, loss):
    with context:
        loss()


class Planted(Exception):
    """An exception of a user's code."""


def chosen(draw, names, one_in):
    """Each of the names with a chance; none of them is the simplest choice."""
    return {name for name in names if draw(st.integers(0, one_in - 1)) == one_in - 1}


@st.composite
def bag_cases(draw):
    mode, form = draw(st.sampled_from(("sum", "mean"))), draw(st.sampled_from(FORMS))
    rows, properties = draw(st.integers(1, 40)), chosen(draw, CARRIED, 4)
    if draw(st.integers(0, 7)) == 7:
        properties |= {draw(st.sampled_from(list(REFUSED)))}
    if form == "last_offset" or properties & {"scale", "max", "max_norm"}:
        properties -= {"sparse", "pre_hook"}  # PyTorch takes no such bags
    weighted = mode == "sum" and not properties & {"max", "scale", "float64"} and draw(
        st.booleans())
    if not properties.intersection(REFUSED) and draw(st.integers(0, 5)) == 5:
        properties, weighted = properties | {"single"}, False  # an nn.Embedding
    return BagCase(
        rows, draw(st.sampled_from((1, 3, 4, 8))), mode,
        draw(st.sampled_from((torch.float32, torch.float32, torch.bfloat16, torch.float16))),
        draw(st.one_of(st.none(), st.integers(-rows, rows - 1))), form, weighted,
        frozenset(properties))


@st.composite
def model_cases(draw, events=EVENTS):
    steps, clip = draw(st.integers(2, 4)), draw(st.booleans())
    bags = draw(st.lists(bag_cases(), min_size=1, max_size=3))
    announced = draw(st.booleans())
    if announced:  # the hook changes what `inputs` gives, which has no weights
        bags = [replace(each, weighted=False, properties=each.properties - {"pre_hook"})
                for each in bags]
    if draw(st.integers(0, 2)) == 2:  # ids that a card takes without lengths
        bags = [replace(each, form="one", padding=None, properties=each.properties | chosen(
            draw, ("frozen", "twice"), 2)) for each in bags]
    # PyTorch clips no sparse gradients, and adds none in fp16.
    bags = [replace(each, properties=each.properties - {"sparse"})
            if clip or each.dtype == torch.float16 else each for each in bags]
    optimizer = draw(st.sampled_from(("sgd", "adagrad", "sgd", "adagrad", *OPTIMIZERS)))
    if optimizer in ("adagrad", "adam", "partial_rowwise_adam") and draw(st.integers(0, 9)) < 9:
        bags = [replace(each, dtype=torch.float32) for each in bags]  # else the model is refused
    options = draw(st.sampled_from(({}, {}, {}, {"weight_decay": 0.1}, {"rounding_seed": 5})))
    return ModelCase(
        bags, draw(st.integers(0, 1 << 20)), draw(st.integers(1, 9)),
        draw(st.sampled_from(("scratchpipe", "freqcache", "hotline"))),
        draw(st.sampled_from((1, 2))), optimizer, options, steps, draw(st.integers(1, 2)), clip,
        draw(st.booleans()), announced,
        {name: draw(st.integers(1, steps - 1)) for name in sorted(chosen(draw, events, 3))},
        draw(st.sampled_from(list(FUNCTIONS))) if "apply" in events else "")


def planted(*_):
    raise Planted


class Model(nn.Module):
    """Bags, and a linear layer on their results; bags with "twice" have two names."""

    def __init__(self, case):
        super().__init__()
        self.bags = nn.ModuleList(each.make() for each in case.bags)
        self.aliases = nn.ModuleDict({str(number): self.bags[number] for number, each in enumerate(
            case.bags) if "twice" in each.properties})
        self.top = nn.Linear(sum(each.dim for each in case.bags), 1)
        for number, each in enumerate(case.bags):
            if "tied_weight" in each.properties:
                self.tied = nn.Linear(each.dim, each.rows, bias=False)
                self.tied.weight = self.bags[number].weight

    def calls(self, inputs):
        """Arguments of the bags, in the order of their calls in `forward`."""
        return {f"bags.{number}": tuple(given) for number, given in enumerate(inputs)} | {
            f"aliases.{number}": tuple(inputs[int(number)]) for number in self.aliases}

    def forward(self, inputs):
        found = [bag(*given) for bag, given in zip(self.bags, inputs, strict=True)]
        self.dtypes = [each.dtype for each in found]
        found = [self.aliases[str(number)](*inputs[number]) + each
                 if str(number) in self.aliases else each for number, each in enumerate(found)]
        found = [each.to(self.top.weight.dtype) for each in found]
        result = self.top(torch.cat(found, dim=1))
        if hasattr(self, "tied"):  # whose use trains the rows of the plain bag
            weight = self.tied.weight.to(result.dtype)
            result = result + weight.mean(0)[:1] * 9
        return result


class Run:
    """Trains a case: plain, or converted to a mode.

    Parameters
    ----------
    case : ModelCase
    mode : str, optional
        None trains the plain model.
    device : Device, optional

    Attributes
    ----------
    outputs : list
        Losses, dtypes, and results of evaluation and of copies, in order.
    """

    def __init__(self, case, mode=None, device=None):
        self.case, self.mode, self.device, self.outputs = case, mode, device, []
        self.generator = torch.Generator().manual_seed(case.seed)
        self.make(case.seed)

    def make(self, seed):
        torch.manual_seed(seed)
        self.model, self.tables, case = Model(self.case), None, self.case
        if self.mode is not None:
            card = {"share": case.share} if self.device else {}
            if case.announced:
                card["inputs"] = self.model.calls
            initial = {"initial": INITIAL} if case.optimizer == "adagrad" else {}
            rule = OPTIMIZERS[case.optimizer](0.1, **initial, **case.options)
            self.tables = convert(self.model, device=self.device, mode=self.mode, optimizer=rule,
                                  **card)
        kind = PEERS.get(case.optimizer, torch.optim.SGD)
        self.optimizers = [kind(self.model.parameters(), 0.1)]
        if self.tables is not None:
            self.optimizers.append(self.tables.optimizer)
        self.schedules = [torch.optim.lr_scheduler.StepLR(each, 1, 0.7)
                          for each in self.optimizers] if case.schedule else []

    def train(self):
        """The outcome: (outputs, weights of the bags)."""
        self.copies = []
        for step in range(self.case.steps):
            for name in (each for each in HARD_EVENTS if self.case.events.get(each) == step):
                getattr(self, name)()
            self.backward(self.case.accumulate)
            self.step()
        last = self.draw()
        self.outputs += [each.eval()(last).detach() for each in self.copies]
        weights = [bag.weight.detach().clone() for bag in self.model.bags]
        self.evaluate()
        return self.outputs, weights

    def draw(self):
        return [bag.draw(self.case.samples, self.generator) for bag in self.case.bags]

    def backward(self, count):
        for _ in range(count):
            found = self.model(self.draw())
            loss = nn.functional.smooth_l1_loss(found, torch.zeros_like(found))
            if loss.requires_grad:
                loss.backward()
            self.outputs += [loss.detach(), *self.model.dtypes]

    def step(self):
        if self.case.clip:
            rows = [] if self.tables is None else self.tables.gradients()
            self.outputs.append(nn.utils.clip_grad_norm_([*self.model.parameters(), *rows], 0.5))
        for each in (*self.optimizers, *self.schedules):
            each.step()
        for each in self.optimizers:
            each.zero_grad()

    def loss(self):
        found = self.model(self.draw())
        return nn.functional.smooth_l1_loss(found, torch.zeros_like(found))

    # Events.

    def fail(self):
        """Exceptions in forward and backward, whose gradients are dropped."""
        handle = self.model.top.register_forward_pre_hook(planted)
        with suppress(Planted):
            self.loss().backward()
        handle.remove()
        loss = self.loss()
        if loss.requires_grad:
            beside = torch.ones((), requires_grad=True)
            scale = beside * 1
            scale.register_hook(planted)
            with suppress(Planted):
                (loss * scale).backward()
        self.zero_grad()

    def thread(self):
        """A batch whose forward and backward run on another thread."""
        thread = threading.Thread(target=self.backward, args=(1,))
        thread.start()
        thread.join()

    def empty(self):
        """A batch of no samples, and one without a lookup, whose gradients are dropped."""
        for samples in (0, 1):
            given = [bag.empty(samples) for bag in self.case.bags]
            loss = self.model(given).sum()
            if loss.requires_grad:
                loss.backward()
        self.zero_grad()

    def apply(self):
        """Some function of PyTorch."""
        state, name = self.generator.get_state(), self.case.function
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                FUNCTIONS[name](self.model, self.loss)
        except Exception as error:
            self.refused = error
        self.generator.set_state(state)
        self.zero_grad()

    def evaluate(self):
        training = [(module, module.training) for module in self.model.modules()]
        with torch.no_grad():
            self.outputs.append(self.model.eval()(self.draw()))
        for module, was in training:
            module.training = was

    def copy(self):
        self.copies.append(copy.deepcopy(self.model))

    def drop(self):
        """A step whose gradients are dropped."""
        self.backward(1)
        self.zero_grad()

    def zero_grad(self):
        for each in (self.model, *filter(None, [self.tables])):
            each.zero_grad()

    def write(self):
        """Rows that are reset in place."""
        with torch.no_grad():
            for bag in self.model.bags:
                bag.weight[::2] = 0.25

    def freeze(self):
        self.model.bags[0].requires_grad_(False)

    def resume(self):
        """Go on in another process, from an ordinary checkpoint."""
        saved = copy.deepcopy((self.model.state_dict(), [
            each.state_dict() for each in (*self.optimizers, *self.schedules)]))
        self.close()
        frozen = [each.requires_grad for each in self.model.parameters()]
        self.make(self.case.seed + 1)
        self.model.load_state_dict(saved[0])
        for each, state in zip((*self.optimizers, *self.schedules), saved[1], strict=True):
            each.load_state_dict(state)
        for each, trains in zip(self.model.parameters(), frozen, strict=True):
            each.requires_grad_(trains)

    def close(self):
        if self.tables is not None:
            self.tables.close()
