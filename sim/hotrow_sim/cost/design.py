"""What a design really holds, to compare costs with."""

from amaranth.hdl import Fragment
from hotrow_rtl.primitives.ram import RAM_MODULE


class _Instances:
    """A platform that asks for every memory as an instance."""

    ram_instances = True


def memory_bits(component):
    """Bits in all memories of a component."""
    def bits(fragment):
        if getattr(fragment, "type", None) == RAM_MODULE:
            return fragment.parameters["WIDTH"] * fragment.parameters["DEPTH"]
        return sum(bits(child) for child, *_ in fragment.subfragments)
    return bits(Fragment.get(component, _Instances()))
