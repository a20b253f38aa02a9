"""Memory bits of an elaborated design, the reference for the formulas of this package."""

from amaranth.hdl import Fragment
from hotrow_rtl.primitives.ram import RAM_MODULE


class _InstancePlatform:
    """A platform that makes every memory an instance."""

    ram_instances = True


def memory_bits(component):
    """Bits of all memories of a component."""
    def bits(fragment):
        if getattr(fragment, "type", None) == RAM_MODULE:
            return fragment.parameters["WIDTH"] * fragment.parameters["DEPTH"]
        return sum(bits(child) for child, *_ in fragment.subfragments)
    return bits(Fragment.get(component, _InstancePlatform()))
