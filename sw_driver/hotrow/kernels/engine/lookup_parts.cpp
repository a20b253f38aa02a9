#include "lookup_parts.hpp"

#include <algorithm>

namespace hotrow::engine {

namespace {

constexpr uint32_t PART = 1 << 13;  // lookups that pay for a thread
constexpr int MOST_BITS = 8;

// Lowest bits of a hash that all structures use for their sets. The second hash choice shares only
// the bank with the first.
int split_bits(const Geometry &g) {
    const int bank_bits = log2_of(g.banks());
    if (g.directory_choices == 2) return bank_bits;
    return std::min({log2_of(g.directory_sets / g.directory_partitions), log2_of(g.counter_sets),
                     log2_of(g.miss_entries / MissedRows::MISS_WAYS)});
}

}  // namespace

LookupParts::LookupParts(const Geometry &geometry, Workers &workers)
    : workers_(workers), split_bits_(std::min(split_bits(geometry), MOST_BITS)) {
    split_mask_ = low_bits(split_bits_);
}

void LookupParts::by_set(const BatchReader &reader) {
    const uint32_t most = std::min<uint32_t>(static_cast<uint32_t>(workers_.threads()),
                                             uint32_t{1} << split_bits_);
    const int parts = static_cast<int>(std::clamp<uint32_t>(reader.count() / PART, 1, most));
    divide(reader, parts, parts);
}

void LookupParts::by_position(const BatchReader &reader) {
    const uint32_t most = static_cast<uint32_t>(workers_.threads());
    const int spans = static_cast<int>(std::clamp<uint32_t>(reader.count() / PART, 1, most));
    divide(reader, 1, spans);
}

void LookupParts::divide(const BatchReader &reader, int parts, int spans) {
    const uint64_t count = reader.count();
    const auto first_of = [&](int span) { return static_cast<uint32_t>(count * span / spans); };
    parts_ = std::max(parts, spans);
    streams_.assign(parts_, {});
    if (parts == 1 && !reader.refused()) {
        for (int span = 0; span < spans; ++span)
            streams_[span] = {
                reader.stream(first_of(span), first_of(span + 1) - first_of(span))};
        return;
    }
    if (positions_.size() < static_cast<size_t>(parts * spans)) positions_.resize(parts * spans);
    std::vector<uint32_t> counts(parts * spans);
    workers_.run(spans, [&](int span) {
        const uint32_t first = first_of(span), last = first_of(span + 1);
        const uint64_t *const hashes = reader.hashes();
        std::vector<uint32_t *> ends(parts);
        for (int part = 0; part < parts; ++part) {
            std::vector<uint32_t> &list = positions_[span * parts + part];
            if (list.size() < last - first) list.resize(last - first);
            ends[part] = list.data();
        }
        for (uint32_t position = first; position < last; ++position) {
            const uint64_t hash = hashes[position];
            if (hash == REFUSED) continue;
            uint32_t *&end = ends[(hash & split_mask_) * parts >> split_bits_];
            *end++ = position;
        }
        for (int part = 0; part < parts; ++part)
            counts[span * parts + part] =
                static_cast<uint32_t>(ends[part] - positions_[span * parts + part].data());
    });
    for (int span = 0; span < spans; ++span)
        for (int part = 0; part < parts; ++part)
            streams_[parts == 1 ? span : part].push_back(reader.stream(
                positions_[span * parts + part].data(), counts[span * parts + part]));
}

void merge(Workers &workers, const Lists &lists, std::vector<uint32_t> &slots,
           std::vector<Row> &rows) {
    const size_t parts = lists.size();
    size_t total = 0;
    for (const auto *list : lists) total += list->size();
    slots.resize(total);
    rows.resize(total);
    // A span of the result begins where an entry of the longest list does.
    const auto &longest = **std::max_element(
        lists.begin(), lists.end(), [](const auto *a, const auto *b) { return a->size() < b->size(); });
    const auto first_of = [&](size_t span) {
        std::vector<size_t> first(parts);
        for (size_t part = 0; part < parts; ++part) {
            const auto &list = *lists[part];
            if (span == parts) first[part] = list.size();
            else if (span && !longest.empty())
                first[part] = std::lower_bound(list.begin(), list.end(),
                                               longest[longest.size() * span / parts].position,
                                               [](const Listed &entry, uint32_t position) {
                                                   return entry.position < position;
                                               }) - list.begin();
        }
        return first;
    };
    workers.run(static_cast<int>(parts), [&](int span) {
        const std::vector<size_t> first = first_of(span);
        size_t to = 0;
        for (const size_t at : first) to += at;
        in_order(lists, first, first_of(span + 1), [&](size_t, const Listed &entry) {
            slots[to] = entry.slot;
            rows[to++] = entry.row;
        });
    });
}

}  // namespace hotrow::engine
