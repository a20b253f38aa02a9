"""The packages of hotrow.torch import downwards only."""

from tests.driver.test_imports import found

LEVELS = {"memory": 1, "features": 2, "optim": 3, "store": 4, "collection": 5, "sharded": 6,
          "pipeline": 6, "conversion": 7, "training": 7}
ROOT = "hotrow.torch."


def package(name):
    return name.removeprefix(ROOT).partition(".")[0] if name.startswith(ROOT) else None


def test_imports_point_downwards():
    modules = {name: imports for name, (_, imports) in found().items() if package(name)}
    assert {package(name) for name in modules} == set(LEVELS)
    wrong = [f"{name} imports {target}" for name, imports in modules.items()
             for target, _ in imports if package(target) in LEVELS
             and package(target) != package(name)
             and LEVELS[package(target)] >= LEVELS[package(name)]]
    assert not wrong
