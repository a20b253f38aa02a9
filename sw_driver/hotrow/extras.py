"""Which optional extra of the distribution brings a module that is not installed."""

import re
from importlib.metadata import PackageNotFoundError, requires

DISTRIBUTION = "hotrow"
_EVERYTHING = "dev"  # the extra that holds all others; named only where no smaller one helps


def extra_of(module: str) -> str | None:
    """The smallest extra that requires the distribution named like `module`."""
    try:
        requirements = requires(DISTRIBUTION) or ()
    except PackageNotFoundError:
        return None
    members: dict[str, list] = {}
    for requirement in requirements:
        name, extra = re.match(r"[\w.-]+", requirement)[0], re.search(
            r"extra == ['\"](\w+)['\"]", requirement)
        if extra:
            members.setdefault(extra[1], []).append(name.lower().replace("-", "_"))
    having = [extra for extra, names in members.items() if module.lower() in names]
    return min(having, key=lambda extra: (extra == _EVERYTHING, len(members[extra])),
               default=None)


def install_command(extra: str) -> str:
    """What to type to get an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def advice(missing: ModuleNotFoundError) -> str:
    """What a missing module means to the user: 'needs ..., which is not installed: ...'."""
    module = (missing.name or str(missing)).partition(".")[0]
    if module.startswith(DISTRIBUTION):
        return f"needs {missing.name!r}, which this installation of {DISTRIBUTION} lacks"
    extra = extra_of(module)
    if extra is None:
        return f"needs the module {module!r}, which is not installed: pip install {module}"
    return (f"needs the module {module!r} of the extra {extra!r}, which is not installed: "
            f"{install_command(extra)}")
