"""A pytest plugin for runs over a planted fault: the cheapest tests first, within a time.

    python -m pytest -p tests.support.mutant_plugin --seconds 60 --noticed FILE TEST ...

Test files run in the order of the command line: first the cheapest tests of each, together about a
second, then more of each, last what takes seconds. What `--foremost` names comes before all. The
time of a test is what it took before, which pytest's cache keeps. A test that takes far longer
fails. All times are the process's, so that other work on the machine decides nothing.
"""

import re
import signal
import time
from bisect import bisect
from collections import Counter
from pathlib import Path

import pytest

CACHE = "hotrow/seconds"
UNKNOWN = 0.5, 5.0  # seconds of a test, of a slow test, that never ran
LAST = 4  # tests that take longer are the last ones
TURNS = 1, 5  # seconds of a file's tests after which the other files have their turn
LEAST, TIMES = 60, 10  # a test hangs after so many seconds, and so many times its own time


def pytest_addoption(parser):
    parser.addoption("--seconds", type=float, default=60, help="no test starts after so long")
    parser.addoption("--foremost", help="expression that names the tests to run first")
    parser.addoption("--noticed", help="file for the name of the test that fails")


def pytest_configure(config):
    config.pluginmanager.register(_Run(config))


class _Run:
    def __init__(self, config):
        self.config = config
        self.seconds = config.cache.get(CACHE, {})
        self.failed = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        files = {name: number for number, name in enumerate(self.config.args)}
        seconds = {item: self._known(item) for item in items}
        spent, turns = Counter(), {}
        for item in sorted(items, key=seconds.get):
            turns[item] = bisect(TURNS, spent[item.path])
            spent[item.path] += seconds[item]
        foremost = re.compile(self.config.getoption("--foremost") or "(?!)")
        items.sort(key=lambda item: (
            not foremost.search(item.nodeid), seconds[item] > LAST, turns[item],
            files.get(item.nodeid.split("::")[0], len(files)), seconds[item]))

    def _known(self, item):
        slow = item.get_closest_marker("slow") is not None
        return self.seconds.get(item.nodeid, UNKNOWN[slow])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        signal.signal(signal.SIGPROF, _hangs)
        signal.setitimer(signal.ITIMER_PROF, max(LEAST, TIMES * self._known(item)))
        start = time.process_time()
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if self.failed is None:
                self.seconds[item.nodeid] = round(time.process_time() - start, 3)
            if time.process_time() > self.config.getoption("--seconds"):
                item.session.shouldstop = "out of time"

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_sessionfinish(self, session):
        if self.failed is None:
            known = self.config.cache.get(CACHE, {})
            self.config.cache.set(CACHE, known | self.seconds)
        elif path := self.config.getoption("--noticed"):
            Path(path).write_text(self.failed)


def _hangs(number, frame):
    pytest.fail("the test hangs")
