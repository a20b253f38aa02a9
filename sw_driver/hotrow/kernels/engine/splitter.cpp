#include "splitter.hpp"

namespace hotrow::engine {

void Splitter::split_part(const BatchReader &reader, const std::vector<Stream> &streams,
                          uint32_t *slots, Part &part) {
    part.rows.begin();
    part.listed.clear();
    part.missed.clear();
    part.hits = 0;
    const int shift = reader.beat_shift();
    for (const Stream &stream : streams) {
        part.hits += passes_.find(directory_, stream, slots);
        for (uint32_t at = 0; at < stream.count; ++at) {
            const uint32_t position = stream.position(at);
            if (slots[position] != NO_SLOT) continue;
            const uint64_t hash = stream.hashes[position];
            const uint32_t listed = part.rows.listed;
            const uint32_t index = part.rows.add(hash, position >> shift);
            if (part.rows.listed != listed) 
                part.listed.push_back({position, NO_SLOT, directory_.keys.row_of(hash)});
            part.missed.push_back({position, index});
        }
    }
}

void Splitter::split(const BatchReader &reader, const LookupParts &lookups, SplitResults &results,
                     Outcome &outcome) {
    const size_t parts = static_cast<size_t>(lookups.parts());
    while (parts_.size() < parts) parts_.push_back(std::make_unique<Part>(geometry_));
    workers_.run(static_cast<int>(parts), [&](int part) {
        split_part(reader, lookups.streams(part), results.slots.data(), *parts_[part]);
    });
    Lists listed;
    std::vector<std::vector<uint32_t>> words(parts);
    uint64_t hits = 0;
    for (size_t part = 0; part < parts; ++part) {
        listed.push_back(&parts_[part]->listed);
        hits += parts_[part]->hits;
        outcome.refused += parts_[part]->rows.unkept;
    }
    results.misses.clear();
    in_order(listed, [&](size_t part, const Listed &miss) {
        words[part].push_back(MISS_FLAG | static_cast<uint32_t>(results.misses.size()));
        results.misses.push_back(miss.row);
    });
    for (size_t part = 0; part < parts; ++part)
        for (const BypassedLookup &lookup : parts_[part]->missed)
            results.slots[lookup.position] = words[part][lookup.index];

    reader.cold_samples(results.slots.data(), cold_);
    results.popular.clear();
    results.nonpopular.clear();
    for (uint32_t sample = 0; sample < cold_.size(); ++sample)
        (cold_[sample] ? results.nonpopular : results.popular).push_back(sample);

    outcome.hits = static_cast<uint32_t>(hits);
    outcome.misses = static_cast<uint32_t>(outcome.lookups - hits);
    outcome.unique = static_cast<uint32_t>(results.misses.size());
    outcome.popular = static_cast<uint32_t>(results.popular.size());
}

}  // namespace hotrow::engine
