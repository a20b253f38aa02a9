"""Machines: processors, memories and links."""

from dataclasses import dataclass, fields, replace

from hotrow.contract.errors import Error

from .constants import read

GB = 1e9


class ExploreError(Error):
    """An invalid question; the message has the expectation."""


@dataclass(frozen=True)
class Rates:
    """Measured host rates, which replace the constants of a server's cores.

    Attributes
    ----------
    op_s, flop_s, byte_s : float
        Seconds per operator, per FLOP of a GEMM, per byte that a dense operator moves.
    lookup_s, lookup_byte_s : float
        Embedding forward, per lookup and per byte of its row.
    update_s, update_byte_s : float
        Embedding backward and optimizer, per lookup and per byte of its row.
    row_byte_s : float
        Per byte of a distinct row, for a random read and write.
    step_s : float
        Per step.
    """

    op_s: float
    flop_s: float
    byte_s: float
    lookup_s: float
    lookup_byte_s: float
    update_s: float
    update_byte_s: float
    row_byte_s: float
    step_s: float


@dataclass(frozen=True)
class System:
    """One machine; sizes in GB of 1e9 bytes, rates in GB/s, see systems.toml."""

    name: str
    title: str
    cores: int
    host_memory_gb: float
    host_memory_gbps: float
    host_tflops: float
    source: str = ""
    core_speed: float | None = None
    gpus: int = 0
    gpu_memory_gb: float = 0
    gpu_memory_gbps: float = 0
    gpu_tflops: float = 0
    link_gbps: float = 0
    gpu_link_gbps: float = 0
    disk_gb: float = 0
    disk_kreads: float = 0  # thousand random reads of 4 KiB a second
    usd_hour: float = 0  # 0: not to be had
    watts: float = 0
    priced: str = ""
    takes_card: bool = True
    parameter_servers: int = 0
    server_cores: int = 0  # of each; 0: as the host
    network_gbps: float = 0
    rates: Rates | None = None

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and value < 0:
                raise ExploreError(f"system {self.name!r}: {field.name} must not be negative, "
                                   f"not {value}")
        for name in ("cores", "host_memory_gb", "host_memory_gbps", "host_tflops"):
            if not getattr(self, name):
                raise ExploreError(f"system {self.name!r}: {name} must be above 0")

    def core_rate(self, constants):
        """Speed of a core in units of the core that the constants describe."""
        return constants.server_core_speed if self.core_speed is None else self.core_speed

    def changed(self, **values):
        return replace(self, **values)

    def with_free_cores(self, cores):
        """The host with that many cores left by others, at most its own, and with their FLOP/s;
        parameter servers keep theirs."""
        cores = min(cores, self.cores)
        return replace(self, cores=cores, host_tflops=self.host_tflops * cores / self.cores,
                       server_cores=self.server_cores or self.cores)


def load() -> dict[str, System]:
    entries = read("systems")

    def whole(name):
        entry = dict(entries[name])
        parent = entry.pop("like", None)
        return {**(whole(parent) if parent else {}), **entry}

    return {name: System(name=name, **whole(name)) for name in entries}


def find(name) -> System:
    known = load()
    if name not in known:
        raise ExploreError(f"unknown system {name!r}: expected one of {', '.join(known)}")
    return known[name]
