"""Cards on links, for tests: golden models at pseudo-terminals, channels that lose frames."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import hotrow
import numpy as np
from hotrow.contract.generated import QUEUES, REGISTERS
from hotrow.device import Device
from hotrow.transports.link.transport import LinkTransport
from hotrow_rtl.config import preset
from hotrow_sim.link.model_card import ModelCard

ROOT = Path(__file__).parents[2]
WHOLE_CARD = "whole-card"  # transport to an accelerator with its PCI Express bridge
VFIO_USER = "vfio-user"  # the same, served by another process on a socket
ROWS, DIM = 600, 16  # of `random_table`
COMPLETED = {REGISTERS[f"{queue.upper()}_COMPLETED"] for queue in QUEUES}


def declared_transports(monkeypatch):
    """Let the driver find the transports that pyproject.toml declares, installed or not, and the
    simulated card on PCI Express."""
    from hotrow.memory import transport

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    monkeypatch.setattr(transport, "entry_points", lambda group: [
        EntryPoint(name, value, group) for name, value in (
            *project["entry-points"][group].items(),
            (WHOLE_CARD, "tests.support.pcie.whole_card:open_transport"),
            (VFIO_USER, "tests.support.pcie.vfio_user_client:open_transport"))])


class RoughChannel:
    """A `Channel` to a golden endpoint in this process, which loses, repeats, damages and reorders.

    Parameters
    ----------
    endpoint : LinkEndpoint
    seed : int
    loss, repeat, damage, reorder : float
        Chance of each, for every frame in either direction.
    """

    name = "rough channel"

    def __init__(self, endpoint, seed=0, loss=0.0, repeat=0.0, damage=0.0, reorder=0.0):
        self._endpoint, self._rng = endpoint, np.random.default_rng(seed)
        self._chances = loss, repeat, damage, reorder
        self._to_card, self._to_host = [], []
        self.closed = False

    def send(self, frame):
        self._pass(self._to_card, frame)
        while self._to_card:
            answer = self._endpoint.answer(self._to_card.pop(0))
            if answer is not None:
                self._pass(self._to_host, answer)

    def receive(self, timeout):
        return self._to_host.pop(0) if self._to_host else None

    def attune(self):
        pass

    def close(self):
        self.closed = True

    def _pass(self, way, frame):
        loss, repeat, damage, reorder = self._rng.random(4) < self._chances
        if loss:
            return
        if damage:
            spoilt = bytearray(frame)
            spoilt[self._rng.integers(0, len(frame))] ^= 1 << self._rng.integers(0, 8)
            frame = bytes(spoilt)
        way.insert(int(self._rng.integers(0, len(way) + 1)) if reorder else len(way), frame)
        if repeat:
            way.append(frame)


class LateCard(ModelCard):
    """A golden card whose COMPLETED registers keep their old value for a few reads.

    Attributes
    ----------
    late : int
        Reads that returned an old value.
    """

    def __init__(self, *arguments, reads=3, **options):
        super().__init__(*arguments, **options)
        self._reads, self._seen, self.late = reads, {}, 0

    def read_register(self, offset):
        value = super().read_register(offset)
        if offset not in COMPLETED:
            return value
        shown, left = self._seen.get(offset, (0, self._reads))
        if left and shown not in (0, value):
            left, self.late = left - 1, self.late + 1
        else:
            shown, left = value, self._reads
        self._seen[offset] = shown, left
        return shown


def model_card(name="tiny", **options):
    """A golden card of a preset with memory of its own."""
    return ModelCard(preset(name), **options)


def linked_device(patience=60.0, memory_bytes=1 << 20, seed=0, **rough):
    """A device on a link to a golden card."""
    channel = RoughChannel(model_card(memory_bytes=memory_bytes).endpoint(), seed, **rough)
    return Device(LinkTransport("link", channel, patience, 50), 60.0, 4, 1 << 20)


def random_table(device, seed=1, on_card=True, state=False, name="users"):
    """A table of random rows: (Table, its weights as the caller has them)."""
    weights = hotrow.empty((ROWS, DIM), np.float32)
    weights[:] = np.random.default_rng(seed).standard_normal(weights.shape)
    kept = None
    if state:
        kept = hotrow.empty(ROWS, np.float32)
        kept[:] = 1
    return device.register_table(weights, name, kept, on_card=on_card), weights
