#include "lookup_parts.hpp"

#include <algorithm>

namespace hotrow::engine {

namespace {

constexpr uint32_t PART = 1 << 13;         // lookups that pay for a thread
constexpr uint32_t MISSED_PART = 1 << 11;  // likewise of lookups that need a slot
constexpr int MOST_BITS = 8;

// Lowest bits of a hash that all structures use for their sets. The second hash choice shares only
// the bank with the first.
int split_bits(const Geometry &g) {
    const int bank_bits = log2_of(g.banks());
    if (g.directory_choices == 2) return bank_bits;
    return std::min({log2_of(g.directory_sets / g.directory_partitions), log2_of(g.counter_sets),
                     log2_of(g.miss_entries / MISS_WAYS)});
}

}  // namespace

LookupParts::LookupParts(const Geometry &geometry, Workers &workers)
    : workers_(workers), split_bits_(std::min(split_bits(geometry), MOST_BITS)) {
    split_mask_ = low_bits(split_bits_);
}

int LookupParts::threads_for(uint64_t lookups, uint32_t part) const {
    return static_cast<int>(
        std::clamp<uint64_t>(lookups / part, 1, static_cast<uint64_t>(workers_.threads())));
}

int LookupParts::sets_for(uint64_t lookups, uint32_t part) const {
    return std::min(threads_for(lookups, part), 1 << split_bits_);
}

std::vector<Stream> LookupParts::spans_of(const BatchReader &reader, int spans) {
    std::vector<Stream> found;
    for (uint64_t span = 0; span < static_cast<uint64_t>(spans); ++span) {
        const uint64_t first = reader.count() * span / spans;
        found.push_back(reader.stream(
            static_cast<uint32_t>(first),
            static_cast<uint32_t>(reader.count() * (span + 1) / spans - first)));
    }
    return found;
}

void LookupParts::by_set(const BatchReader &reader) {
    const int parts = sets_for(reader.count(), PART);
    divide(reader, spans_of(reader, parts), parts, false);
}

void LookupParts::by_set(const BatchReader &reader,
                         const std::vector<std::vector<uint32_t>> &listed) {
    uint64_t lookups = 0;
    std::vector<Stream> spans;
    for (const auto &list : listed) {
        lookups += list.size();
        spans.push_back(reader.stream(list.data(), static_cast<uint32_t>(list.size())));
    }
    divide(reader, spans, sets_for(lookups, MISSED_PART), false);
}

void LookupParts::by_position(const BatchReader &reader) {
    divide(reader, spans_of(reader, threads_for(reader.count(), PART)), 1, true);
}

void LookupParts::divide(const BatchReader &reader, const std::vector<Stream> &spans, int parts,
                         bool apart) {
    const int count = static_cast<int>(spans.size());
    parts_ = apart ? count : parts;
    streams_.assign(parts_, {});
    const auto streams_of = [&](int span, int part) -> auto & {
        return streams_[apart ? span : part];
    };
    if (parts == 1 && !reader.refused()) {
        for (int span = 0; span < count; ++span) streams_of(span, 0).push_back(spans[span]);
        return;
    }
    if (positions_.size() < static_cast<size_t>(parts * count)) positions_.resize(parts * count);
    std::vector<uint32_t> counts(parts * count);
    workers_.run(count, [&](int span) {
        const Stream stream = spans[span];
        std::vector<uint32_t *> ends(parts);
        for (int part = 0; part < parts; ++part) {
            std::vector<uint32_t> &list = positions_[span * parts + part];
            if (list.size() < stream.count) list.resize(stream.count);
            ends[part] = list.data();
        }
        for (uint32_t at = 0; at < stream.count; ++at) {
            const uint32_t position = stream.position(at);
            const uint64_t hash = stream.hashes[position];
            if (hash == REFUSED) continue;
            uint32_t *&end = ends[(hash & split_mask_) * parts >> split_bits_];
            *end++ = position;
        }
        for (int part = 0; part < parts; ++part)
            counts[span * parts + part] =
                static_cast<uint32_t>(ends[part] - positions_[span * parts + part].data());
    });
    for (int span = 0; span < count; ++span)
        for (int part = 0; part < parts; ++part)
            streams_of(span, part).push_back(reader.stream(
                positions_[span * parts + part].data(), counts[span * parts + part]));
}

void merge(const Lists &lists, std::vector<uint32_t> &slots, std::vector<Row> &rows) {
    slots.clear();
    rows.clear();
    in_order(lists, [&](size_t, const Listed &entry) {
        slots.push_back(entry.slot);
        rows.push_back(entry.row);
    });
}

}  // namespace hotrow::engine
