"""The module that the driver imports says what the contract says."""

from dataclasses import fields, replace

import pytest
from hotrow.contract import generated, geometry, records
from hotrow_rtl import config
from hotrow_rtl.contract import commands, encoding, link_frames, registers

ENUMS = [kind for module in (encoding, link_frames, registers) for kind in vars(module).values()
         if isinstance(kind, type) and issubclass(kind, int)
         and kind.__module__ == module.__name__ and hasattr(generated, kind.__name__)]


@pytest.mark.parametrize("kind", ENUMS, ids=lambda kind: kind.__name__)
def test_enumerations(kind):
    driver = getattr(generated, kind.__name__)
    assert {each.name: each.value for each in driver} == {each.name: each.value for each in kind}


def test_every_enumeration_is_there():
    assert {kind.__name__ for kind in ENUMS} == {
        "Status", "Opcode", "Element", "PlanPolicy", "BatchFlag", "PlanFlag", "AllFlag",
        "GatherFlag", "PoolFlag", "UpdateFlag", "Operation", "LinkStatus",
        *(each.fields.__name__ for each in registers.REGISTERS.values() if each.fields)}


def test_texts_and_tables():
    assert {each.name: text for each, text in generated.STATUS_DOC.items()} == {
        each.name: each.doc for each in encoding.Status}
    assert {each.name: text for each, text in generated.LINK_STATUS_DOC.items()} == {
        each.name: each.doc for each in link_frames.LinkStatus}
    assert {opcode.name: queue for opcode, queue in generated.QUEUE_OF.items()} == {
        opcode.name: command.queue for opcode, command in commands.COMMANDS.items()}
    assert {name: each.offset for name, each in registers.REGISTERS.items()} == generated.REGISTERS
    assert generated.QUEUES == encoding.QUEUES
    assert tuple(link_frames.COUNTERS) == generated.LINK_COUNTERS


@pytest.mark.parametrize("record, source, size", [
    (records.COMMAND, encoding.OPERANDS, encoding.COMMAND_BYTES),
    (records.COMPLETION, encoding.COMPLETION, encoding.COMPLETION_BYTES),
    (records.ROW_ENTRY, encoding.ROW_ENTRY, encoding.ROW_ENTRY_BYTES),
    (records.HARVEST_ENTRY, encoding.HARVEST_ENTRY, encoding.HARVEST_ENTRY_BYTES),
], ids=["command", "completion", "row entry", "harvest entry"])
def test_records(record, source, size):
    assert record.itemsize == size
    assert {name: (place, kind.itemsize) for name, (kind, place) in record.fields.items()} == {
        field.name: (field.offset, field.bytes) for field in source.values()}


@pytest.mark.parametrize("change", [
    {}, {"directory_sets": 1 << 17, "directory_partitions": 4}, {"address_width": 32},
    {"stamp_bits": 10, "counter_sets": 1 << 12}], ids=str)
@pytest.mark.parametrize("name", config.PRESETS)
def test_presets(name, change):
    source = replace(config.PRESETS[name], **change)
    card = replace(geometry.preset(name), **change)
    assert config.preset(card) == source
    assert (card.lanes, card.banks, card.slots, card.counter_entries) == (
        source.lanes, source.banks, source.slots, source.counter_entries)
    assert (card.plan_window, card.slot_bits) == (source.sweep_batches, source.slot_bits)


def test_every_parameter_is_in_a_preset():
    assert {each.name for each in fields(geometry.Preset)} == {
        each.name for each in fields(config.Config)}
    assert list(geometry.PRESETS) == list(config.PRESETS)


def test_unknown_preset():
    with pytest.raises(ValueError, match="unknown preset 'huge': expected one of tiny, "):
        geometry.preset("huge")


@pytest.mark.parametrize("handle, offset", [(0, 0), (1, 1), (5, (1 << records.OFFSET_WIDTH) - 1)])
def test_packed_addresses(handle, offset):
    packed = records.packed_address(handle, offset)
    assert packed == encoding.packed_address(handle, offset)
    assert records.unpack_address(packed) == (handle, offset)
