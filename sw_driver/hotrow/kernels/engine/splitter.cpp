#include "splitter.hpp"

namespace hotrow::engine {

void Splitter::list_missed(const BatchReader &reader, const KeyShape &keys,
                           const std::vector<Stream> &streams, Part &part) {
    part.rows.begin();
    part.listed.clear();
    part.missed.clear();
    for (const Stream &stream : streams)
        for (uint32_t at = 0; at < stream.count; ++at) {
            const uint32_t position = stream.position(at);
            const uint64_t hash = stream.hashes[position];
            const uint32_t listed = part.rows.listed;
            const uint32_t index = part.rows.add(hash, position >> reader.beat_shift());
            if (part.rows.listed != listed)
                part.listed.push_back({position, NO_SLOT, keys.row_of(hash)});
            part.missed.push_back({position, index});
        }
}

void Splitter::split(const BatchReader &reader, LookupParts &lookups, SplitResults &results,
                     Outcome &outcome) {
    lookups.by_position(reader);
    missed_.resize(lookups.parts());
    workers_.run(lookups.parts(), [&](int span) {
        missed_[span].clear();
        for (const Stream &stream : lookups.streams(span))
            passes_.find(directory_, stream, results.slots.data(), missed_[span]);
    });
    lookups.by_set(reader, missed_);
    const size_t parts = static_cast<size_t>(lookups.parts());
    while (parts_.size() < parts) parts_.push_back(std::make_unique<Part>(geometry_));
    workers_.run(static_cast<int>(parts), [&](int part) {
        list_missed(reader, directory_.keys, lookups.streams(part), *parts_[part]);
    });
    Lists listed;
    std::vector<std::vector<uint32_t>> words(parts);
    uint64_t missed = 0;
    for (size_t part = 0; part < parts; ++part) {
        listed.push_back(&parts_[part]->listed);
        missed += parts_[part]->missed.size();
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

    outcome.misses = static_cast<uint32_t>(missed);
    outcome.hits = outcome.lookups - outcome.misses;
    outcome.unique = static_cast<uint32_t>(results.misses.size());
    outcome.popular = static_cast<uint32_t>(results.popular.size());
}

}  // namespace hotrow::engine
