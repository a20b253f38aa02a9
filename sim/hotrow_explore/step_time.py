"""Parts of a training step on one machine, each a projected time in seconds.

A GEMM takes its FLOPs at a share of the peak plus its bytes at the memory's rate, which makes small
ones slow without an efficiency curve. Operators queue up while the GPU works, so launches only cost
the time that exceeds the kernels.
"""

from dataclasses import dataclass

NS, US, TERA = 1e-9, 1e-6, 1e12
ELEMENT = 4  # bytes
TRAINED = 3  # times the forward's FLOPs and bytes: forward, two products in backward


@dataclass(frozen=True)
class StepTime:
    """Projected time of one step.

    Attributes
    ----------
    phases : tuple of dict
        Consecutive phases, each with parallel tracks: {track: {part: seconds}}.
    """

    phases: tuple

    @property
    def seconds(self):
        return sum(max(sum(parts.values()) for parts in phase.values()) for phase in self.phases)

    @property
    def parts(self):
        """Seconds of every part, including parts that a longer track hides."""
        summed = {}
        for phase in self.phases:
            for parts in phase.values():
                for name, value in parts.items():
                    summed[name] = summed.get(name, 0.0) + value
        return summed


class Machine:
    """Times of the parts of a step of one workload on one system.

    Parameters
    ----------
    workload : Workload
    system : System
    constants : Constants
    framework : Framework
    """

    def __init__(self, workload, system, constants, framework):
        self.work, self.system, self.constants = workload, system, constants
        self.framework = framework

    # -- dense part ---------------------------------------------------------------------------

    def flops(self, samples):
        """FLOPs of a training step, including the interaction."""
        work = self.work
        samples = samples * work.positions
        products = sum(inputs * outputs for inputs, outputs in work.layers)
        return TRAINED * 2 * samples * (products + work.interaction_elements)

    def dense_bytes(self, samples):
        work = self.work
        samples = samples * work.positions
        layers = sum(samples * (inputs + outputs) + inputs * outputs
                     for inputs, outputs in work.layers)
        return TRAINED * ELEMENT * (layers + samples * work.vectors * (work.dim + work.vectors))

    def dense_operators(self):
        c = self.constants
        return c.ops_per_layer * len(self.work.layers) + c.ops_per_step

    def table_operators(self, tables):
        c = self.constants
        return c.merged_ops if self.framework.merged else c.ops_per_table * tables

    def gpu_dense(self, share=1.0, launches=1.0, tables=None):
        """Dense training of a share of the batch on all GPUs, with the operators of `tables` tables
        per GPU, default all."""
        c, system = self.constants, self.system
        samples = share * self.work.batch / system.gpus
        kernels = (self.flops(samples) / (c.gemm_fraction * system.gpu_tflops * TERA)
                   + self.dense_bytes(samples) / (system.gpu_memory_gbps * 1e9))
        tables = self.work.tables if tables is None else tables
        operators = self.dense_operators() + (self.table_operators(tables) if tables else 0)
        launch = launches * operators * c.gpu_op_us * US
        return {"dense": kernels, "launch": max(0.0, launch - kernels)}

    def all_reduce(self):
        if self.system.gpus < 2:
            return {}
        return {"all-reduce": self._collective(self.constants.all_reduce_us,
                                               2 * ELEMENT * self.work.parameters)}

    def cpu_dense(self):
        system, samples = self.system, self.work.batch
        if system.rates:
            rates = system.rates
            layers = len(self.work.layers)
            return {"dense": rates.flop_s * self.flops(samples)
                    + rates.byte_s * self.dense_bytes(samples) + rates.op_s * layers,
                    "launch": rates.step_s}
        c = self.constants
        return {"dense": self.flops(samples) / (c.gemm_fraction * system.host_tflops * TERA)
                + self.dense_bytes(samples) / (system.host_memory_gbps * 1e9),
                "launch": (self.dense_operators() + self.table_operators(self.work.tables)
                           ) * c.cpu_op_us * US}

    def host_launch(self):
        """Operators on tables in host memory."""
        return self.table_operators(self.work.tables) * self.constants.cpu_op_us * US

    # -- embeddings ---------------------------------------------------------------------------

    def gpu_embedding(self, lookups, busiest=None):
        """Forward and update of lookups in HBM; `busiest` is the largest share of a GPU."""
        c, system = self.constants, self.system
        own = lookups * (1 / system.gpus if busiest is None else busiest)
        seconds = own * self.work.row_bytes * (1 + c.gpu_update_passes) / (
            c.gpu_random_fraction * system.gpu_memory_gbps * 1e9) + own * c.gpu_sort_ns * NS
        return {"embedding": seconds}

    def cores(self, share, servers=0):
        """Cores of the host, or of parameter servers, that work on rows, in units of the measured
        core."""
        system = self.system
        each = system.server_cores or system.cores if servers else system.cores
        return max(1.0, share * each) * system.core_rate(self.constants) * max(1, servers)

    def host_embedding(self, lookups, servers=0, unique=0.0):
        """(forward, update) of lookups in host memory, seconds."""
        c, row_bytes, rates = self.constants, self.work.row_bytes, self.system.rates
        if rates and not servers:
            forward = lookups * (rates.lookup_s + rates.lookup_byte_s * row_bytes)
            update = (lookups * (rates.update_s + rates.update_byte_s * row_bytes)
                      + unique * rates.row_byte_s * row_bytes)
            return forward, update
        forward = lookups * (c.core_lookup_ns + c.core_lookup_ns_per_byte * row_bytes) * NS
        kernels = self.framework.kernels
        update = lookups * NS * (getattr(c, f"{kernels}_update_ns")
                                 + getattr(c, f"{kernels}_update_ns_per_byte") * row_bytes)
        share = (c.row_parallel if self.framework.lock_free else
                 c.update_parallel if kernels == "core" else c.kernel_parallel)
        wire = max(1, servers) * self.system.host_memory_gbps * 1e9
        return (max(forward / self.cores(c.row_parallel, servers), lookups * row_bytes / wire),
                max(update / self.cores(share, servers), 2 * lookups * row_bytes / wire))

    def host_copy(self, rows):
        """Gather or scatter rows of host memory, by the host's cores."""
        c = self.constants
        cores = rows * (c.core_copy_ns + 2 * c.core_lookup_ns_per_byte * self.work.row_bytes
                        ) * NS / self.cores(c.row_parallel)
        wire = 2 * rows * self.work.row_bytes / (self.system.host_memory_gbps * 1e9)
        return max(cores, wire)

    # -- links --------------------------------------------------------------------------------

    def link(self, octets):
        """Host to GPUs in one direction; two GPUs share a port of the host."""
        ports = (self.system.gpus + 1) // 2
        return self.constants.link_us * US + octets / (self.system.link_gbps * 1e9 * ports)

    def inputs(self):
        """The batch's 64-bit ids to the GPUs."""
        return {"inputs": self.link(8 * self.work.step_lookups)}

    def exchange(self, octets):
        """All-to-all of that many bytes over all GPUs."""
        gpus = self.system.gpus
        return 0.0 if gpus < 2 else self._collective(self.constants.all_to_all_us,
                                                     octets * (gpus - 1) / gpus / gpus)

    def gather_all(self, octets):
        """All-gather of that many bytes over all GPUs."""
        gpus = self.system.gpus
        return self._collective(self.constants.all_reduce_us, octets * (gpus - 1) / gpus)

    def replicas(self, share=1.0):
        """GPUs with copies of the hot rows exchange the dense part's gradients of a share of
        lookups."""
        if self.system.gpus < 2:
            return {}
        return {"replicas": self.gather_all(share * self.work.pooled_bytes)}

    def _collective(self, latency_us, octets):
        """`octets` from each GPU, over the link among GPUs, or through the host, where two GPUs
        share a port."""
        c, system = self.constants, self.system
        hops = 1 if system.gpu_link_gbps else 2
        wire = system.gpu_link_gbps or system.link_gbps / 2
        return hops * (latency_us * US + octets / (wire * c.collective_fraction * 1e9))

    def network(self, octets):
        return octets / (self.system.network_gbps * 1e9)
