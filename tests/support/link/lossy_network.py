"""A network that drops, repeats and reorders datagrams."""

import numpy as np


class LossyNetwork:
    """Drops, repeats and reorders datagrams at random.

    Parameters
    ----------
    loss, repeat, reorder : float
        Probabilities per datagram in either direction. A reordered datagram follows the next one.
    seed : int

    Attributes
    ----------
    lost, repeated, reordered : int
        Datagrams so far.
    """

    def __init__(self, loss=0.0, repeat=0.0, reorder=0.0, seed=0):
        self._chances, self._rng = (loss, repeat, reorder), np.random.default_rng(seed)
        self.lost = self.repeated = self.reordered = 0
        self._held = {}

    def through(self, way, datagram):
        """The datagrams that arrive in direction `way` when one is sent."""
        loss, repeat, reorder = self._rng.random(3) < self._chances
        if loss:
            self.lost += 1
            return []
        if reorder and way not in self._held:
            self.reordered += 1
            self._held[way] = datagram
            return []
        self.repeated += int(repeat)
        late = [self._held.pop(way)] if way in self._held else []
        return [datagram, *([datagram] if repeat else []), *late]
