"""The optional extra of the distribution that installs a missing module."""

import re
from importlib.metadata import PackageNotFoundError, requires

DISTRIBUTION = "hotrow"
_EVERYTHING = "dev"  # the extra that includes all others; named only if no smaller one helps


def extra_of(module: str) -> str | None:
    """The smallest extra that requires the distribution named like `module`."""
    try:
        requirements = requires(DISTRIBUTION) or ()
    except PackageNotFoundError:
        return None
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        found = re.match(r"([\w.-]+).*extra == ['\"](\w+)['\"]", requirement)
        if found:
            extras.setdefault(found[2], []).append(found[1].lower().replace("-", "_"))
    having = [extra for extra, names in extras.items() if module.lower() in names]
    return min(having, key=lambda extra: (extra == _EVERYTHING, len(extras[extra])),
               default=None)


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def advice(missing: ModuleNotFoundError) -> str:
    """A missing module in words for the user: 'needs ..., which is not installed: ...'."""
    module = (missing.name or str(missing)).partition(".")[0]
    if module.startswith(DISTRIBUTION):
        return f"needs {missing.name!r}, which this installation of {DISTRIBUTION} lacks"
    extra = extra_of(module)
    if extra is None:
        return f"needs the module {module!r}, which is not installed: pip install {module}"
    return (f"needs the module {module!r} of the extra {extra!r}, which is not installed: "
            f"{install_command(extra)}")
