#include "counters.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

namespace hotrow::engine {

namespace {

constexpr int CREDIT_LOG2 = 5;
constexpr uint32_t LARGEST_CREDITED = 3;

}  // namespace

Counters::Counters(const Geometry &g)
    : keys(g), ways(g.counter_ways), sets_log2(log2_of(g.counter_sets)),
      wide(g.key_width() - log2_of(g.counter_sets) > 32),
      limit(static_cast<uint32_t>(low_bits(g.counter_bits))), block_bytes(ways * (wide ? 12 : 8)),
      blocks(sets() * block_bytes), credit(sets() * ways) {}

void Counters::clear() {
    std::memset(blocks.data(), 0, sets() * block_bytes);
    std::memset(credit.data(), 0, sets() * ways);
}

void Counters::decay(uint32_t shift) {
    for (size_t set = 0; set < sets(); ++set) {
        uint32_t *count = counts(set);
        for (int way = 0; way < ways; ++way) count[way] = shift < 32 ? count[way] >> shift : 0;
    }
    if (shift) std::memset(credit.data(), 0, sets() * ways);
}

std::vector<Harvested> Counters::harvest(uint32_t wanted, uint32_t threshold) const {
    const uint32_t least = std::max<uint32_t>(threshold, 1);
    std::vector<uint32_t> ranked;
    for (size_t set = 0; set < sets(); ++set)
        for (int way = 0; way < ways; ++way)
            if (counts(set)[way] >= least) ranked.push_back(counts(set)[way]);
    uint32_t last = least, ties = ~uint32_t{0};  // lowest count taken, and how many rows have it
    if (ranked.size() > wanted) {
        std::nth_element(ranked.begin(), ranked.begin() + (wanted - 1), ranked.end(),
                         std::greater<>());
        last = ranked[wanted - 1];
        ties = wanted - static_cast<uint32_t>(std::count_if(
            ranked.begin(), ranked.end(), [last](uint32_t count) { return count > last; }));
    }
    std::vector<Harvested> found;
    found.reserve(std::min<size_t>(wanted, ranked.size()));
    for (size_t set = 0; set < sets(); ++set) {
        for (int way = 0; way < ways; ++way) {
            const uint32_t count = counts(set)[way];
            if (count < last || (count == last && !ties)) continue;
            ties -= count == last;
            const Row row = keys.row_of(tag(set, way) << sets_log2 | set);
            found.push_back({row.row, row.table, count, 0});
        }
    }
    return found;
}

uint32_t Counters::count_of(uint64_t hash) const {
    const size_t set = hash & low_bits(sets_log2);
    const uint64_t wanted = hash >> sets_log2;
    for (int way = 0; way < ways; ++way)
        if (tag(set, way) == wanted && counts(set)[way]) return counts(set)[way];
    return 0;
}

template <class Tag>
int64_t Counters::count_in(uint64_t hash, uint32_t amount) {
    struct __attribute__((packed)) Packed {
        Tag value;
    };
    const size_t set = hash & low_bits(sets_log2);
    const Tag wanted = static_cast<Tag>(hash >> sets_log2);
    uint32_t *count = counts(set);
    Packed *tags = reinterpret_cast<Packed *>(count + ways);
    uint8_t *credits = credit.data() + set * ways;
    for (int way = 0; way < ways; ++way) {
        if (tags[way].value != wanted || !count[way]) continue;
        const uint32_t before = count[way];
        credits[way] = static_cast<uint8_t>(std::min(before, LARGEST_CREDITED) << CREDIT_LOG2);
        count[way] = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{before} + amount, limit));
        return before;
    }
    const int victim = static_cast<int>(std::min_element(count, count + ways) - count);
    if (credits[victim]) {
        credits[victim] = static_cast<uint8_t>(credits[victim] - std::min<uint32_t>(amount, credits[victim]));
        return -1;
    }
    count[victim] = std::min(amount, limit);
    tags[victim].value = wanted;
    return -1;
}

int64_t Counters::count(uint64_t hash, uint32_t amount) {
    return wide ? count_in<uint64_t>(hash, amount) : count_in<uint32_t>(hash, amount);
}

}  // namespace hotrow::engine
