#include "lookup_engine.hpp"

#include <algorithm>
#include <cstring>

#include "../passes.hpp"

namespace hotrow::engine {

LookupEngine::LookupEngine(const Geometry &geometry, const Memory &memory, const Tables &tables,
                           Workers &workers)
    : geometry_(geometry), memory_(memory), tables_(tables), workers_(workers), keys_(geometry_),
      counters_(geometry_), directory_(geometry_), passes_(passes_for(directory_)),
      reader_(geometry_, memory, tables), parts_(geometry_, workers),
      planner_(geometry_, directory_, counters_, passes_, workers),
      splitter_(geometry_, directory_, passes_, workers) {}

Outcome LookupEngine::execute(const Command &command, const Addresses &addresses) {
    switch (opcode_of(command)) {
        case Opcode::OBSERVE: return observe(command, addresses);
        case Opcode::DECAY: return decay(command);
        case Opcode::HARVEST: return harvest(command, addresses);
        case Opcode::INSTALL: return install(command, addresses);
        case Opcode::REMOVE: return remove(command, addresses);
        case Opcode::SPLIT: return split(command, addresses);
        case Opcode::PLAN: return plan(command, addresses);
        case Opcode::MARK: return mark(command, addresses);
        default: return {};
    }
}

uint64_t LookupEngine::count(uint32_t *before) {
    const int shift = reader_.beat_shift();
    while (combiners_.size() < static_cast<size_t>(parts_.parts()))
        combiners_.emplace_back(geometry_);
    std::vector<uint64_t> hits(parts_.parts());
    workers_.run(parts_.parts(), [&](int part) {
        Combiner &combiner = combiners_[part];
        for (const Stream &stream : parts_.streams(part))
            for (uint32_t at = 0; at < stream.count; ++at) {
                const uint32_t position = stream.position(at);
                combiner.add(counters_, stream.hashes[position], position >> shift, position, before);
            }
        hits[part] = combiner.finish(counters_, before);
    });
    uint64_t total = 0;
    for (const uint64_t found : hits) total += found;
    return total;
}

Outcome LookupEngine::observe(const Command &command, const Addresses &addresses) {
    Outcome outcome;
    if (!reader_.read(command, addresses, passes_, outcome)) return outcome;
    parts_.by_set(reader_);
    outcome.hits = static_cast<uint32_t>(count(nullptr));
    outcome.misses = outcome.lookups - outcome.hits;
    return outcome;
}

Outcome LookupEngine::decay(const Command &command) {
    if (command.flags & HOTROW_ALL_ALL) counters_.clear();
    else counters_.decay(command.shift);
    return {};
}

Outcome LookupEngine::harvest(const Command &command, const Addresses &addresses) {
    Outcome outcome;
    const std::vector<Harvested> found = counters_.harvest(command.count, command.threshold);
    outcome.entries = static_cast<uint32_t>(found.size());
    write(outcome, addresses.destination, found);
    return outcome;
}

Outcome LookupEngine::install(const Command &command, const Addresses &addresses) {
    Outcome outcome;
    Entries entries;
    read_rows(command, addresses, entries, outcome);
    std::vector<uint32_t> slots(entries.rows.size(), NO_SLOT);
    const PolicyState policy = Planner::policy_of(command.flags);
    for (size_t at = 0; at < slots.size(); ++at) {
        if (!entries.valid[at]) continue;
        const Row row = entries.rows[at];
        const Installed installed =
            planner_.install(keys_.hash(row.table, row.row), partition_of(row.table), policy);
        slots[at] = installed.slot;
        outcome.hits += installed.present;
        outcome.entries += installed.slot != NO_SLOT;
        outcome.refused += installed.slot == NO_SLOT;
    }
    write(outcome, addresses.slots, slots);
    return outcome;
}

Outcome LookupEngine::remove(const Command &command, const Addresses &addresses) {
    Outcome outcome;
    if (command.flags & HOTROW_ALL_ALL) {
        directory_.clear();
        planner_.clear();
        return outcome;
    }
    Entries entries;
    read_rows(command, addresses, entries, outcome);
    std::vector<uint32_t> slots(entries.rows.size(), NO_SLOT);
    for (size_t at = 0; at < slots.size(); ++at) {
        if (!entries.valid[at]) continue;
        const Row row = entries.rows[at];
        slots[at] = passes_.remove(directory_, keys_.hash(row.table, row.row),
                                   partition_of(row.table));
        outcome.entries += slots[at] != NO_SLOT;
        outcome.misses += slots[at] == NO_SLOT;
    }
    write(outcome, addresses.slots, slots);
    return outcome;
}

Outcome LookupEngine::split(const Command &command, const Addresses &addresses) {
    Outcome outcome;
    if (!reader_.read(command, addresses, passes_, outcome)) return outcome;
    if (command.flags & HOTROW_BATCH_COUNT) {
        parts_.by_set(reader_);
        count(nullptr);
    }
    split_.slots.resize(std::max<size_t>(split_.slots.size(), reader_.count()));
    if (reader_.refused())
        std::fill_n(split_.slots.begin(), reader_.count(), NO_SLOT);
    splitter_.split(reader_, parts_, split_, outcome);
    write(outcome, addresses.slots, split_.slots, reader_.count());
    write(outcome, addresses.popular, split_.popular);
    write(outcome, addresses.nonpopular, split_.nonpopular);
    write(outcome, addresses.misses, split_.misses);
    return outcome;
}

Outcome LookupEngine::plan(const Command &command, const Addresses &addresses) {
    Outcome outcome;
    if (!planner_.accepts(command, outcome) ||
        !reader_.read(command, addresses, passes_, outcome))
        return outcome;
    uint32_t *before = nullptr;
    if (command.flags & HOTROW_BATCH_COUNT) {
        parts_.by_set(reader_);
        before_.assign(reader_.count(), 0);
        before = before_.data();
        count(before);
    }
    planned_.slots.resize(std::max<size_t>(planned_.slots.size(), reader_.count()));
    if (reader_.refused())
        std::fill_n(planned_.slots.begin(), reader_.count(), NO_SLOT);
    planner_.plan(command, reader_, parts_, before, planned_, outcome);
    const auto list = [&](uint64_t address, const auto &values, size_t length) {
        if (!addresses.places) return write(outcome, address, values, length);
        std::copy_n(values.begin(), length,
                    reinterpret_cast<typename std::decay_t<decltype(values)>::value_type *>(address));
    };
    if (!addresses.places || !place(outcome, *addresses.places))
        list(addresses.slots, planned_.slots, reader_.count());
    list(addresses.fill_slots, planned_.fill_slots, planned_.fill_slots.size());
    list(addresses.victim_slots, planned_.victim_slots, planned_.victim_slots.size());
    list(addresses.fills, planned_.fills, planned_.fills.size());
    list(addresses.victims, planned_.victims, planned_.victims.size());
    return outcome;
}

// Write the places of a batch whose rows all have slots; return whether they were written.
bool LookupEngine::place(const Outcome &outcome, Places &places) const {
    places.placed = outcome.status == Status::OK && !outcome.entries;
    for (int64_t at = 0; at < places.count && places.placed; ++at) {
        const Places::Part &part = places.parts[at];
        places.placed = !place_slots(planned_.slots.data() + part.begin, part.end - part.begin,
                                     static_cast<int64_t>(directory_.slots), 0,
                                     places.choice_log2, places.part, part.first, nullptr, 0,
                                     places.places + part.begin);
    }
    return places.placed;
}

Outcome LookupEngine::mark(const Command &command, const Addresses &addresses) {
    Outcome outcome;
    if (!planner_.accepts(command, outcome) ||
        !reader_.read(command, addresses, passes_, outcome))
        return outcome;
    parts_.by_position(reader_);
    outcome.hits = static_cast<uint32_t>(planner_.mark(command, parts_));
    outcome.misses = outcome.lookups - outcome.hits;
    return outcome;
}

void LookupEngine::read_rows(const Command &command, const Addresses &addresses, Entries &entries,
                             Outcome &outcome) {
    const uint64_t bytes = uint64_t{command.count} * sizeof(Row);
    std::vector<uint8_t> octets, faults;
    const uint8_t *from = memory_.view(addresses.source, bytes);
    if (!from) {
        memory_.read(addresses.source, bytes, octets, faults);
        from = octets.data();
    }
    entries.rows.resize(command.count);
    std::memcpy(entries.rows.data(), from, bytes);
    entries.valid.resize(command.count);
    const uint32_t per_word = geometry_.bus_bytes / sizeof(Row);
    for (uint32_t at = 0; at < command.count; ++at) {
        const Row row = entries.rows[at];
        const Table *const table = tables_.find(row.table);
        Status status = !table                       ? Status::TABLE_UNKNOWN
                        : row.row > table->last_row ? Status::ROW_OUT_OF_RANGE
                                                     : Status::OK;
        if (!faults.empty() && faults[at / per_word]) status = fault_status(faults[at / per_word]);
        entries.valid[at] = status == Status::OK;
        if (status == Status::OK || outcome.status != Status::OK) continue;
        outcome.status = status;
        outcome.error_index = at;
    }
}

Partition LookupEngine::partition_of(uint32_t table) const {
    const Table &found = *tables_.find(table);
    return {static_cast<uint8_t>(found.parts_log2), static_cast<uint8_t>(found.part)};
}

template <class Values>
void LookupEngine::write(Outcome &outcome, uint64_t address, const Values &values,
                         size_t length) const {
    if (!length) return;
    const uint8_t fault = memory_.write(address, values.data(), length * sizeof values[0]);
    if (!fault || outcome.status != Status::OK) return;
    outcome.status = fault_status(fault);
    outcome.error_address = address;
}

}  // namespace hotrow::engine
