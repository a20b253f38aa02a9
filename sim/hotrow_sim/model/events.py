"""Event counters, which order the two queues."""


class Events:
    """Members: `value` and the `clock` at which it was set, per event."""

    def __init__(self, events):
        self.value, self.clock = [0] * events, [0] * events

    def set(self, event, value, clock):
        self.value[event], self.clock[event] = value, clock
