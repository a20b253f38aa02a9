"""What the explorer's model projects for a table on disk, beside what a run counts."""

from dataclasses import replace

from hotrow_explore import constants, systems, workloads
from hotrow_explore.placements import PLACEMENTS, Question

from .disk_ids import features

_SYSTEM, _SHAPE = "cloud-small", "criteo-kaggle"  # whose other parts do not enter the requests


def projected(options):
    """`projected_requests` to the disk a step: placement `disk` with the memory of the tables."""
    known = constants.load()
    work = replace(workloads.find(_SHAPE), name="disk", rows=(options.rows,),
                   lookups=(float(features(options)),), dim=options.dim, batch=options.samples,
                   slope=options.slope)
    thousand_a_second = 1 / (1e3 * known.disk_fraction)  # then seconds are requests
    system = systems.find(_SYSTEM).changed(
        disk_gb=1e6, disk_kreads=thousand_a_second,
        host_memory_gb=options.memory / known.usable_memory / 1e9)
    return {"projected_requests": PLACEMENTS["disk"](Question(work, system, known)).parts["disk"]}
