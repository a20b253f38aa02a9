// Ids of a batch: checked against their tables, feature after feature.

#include "passes.hpp"

namespace {

template <class Id, class Flat>
int64_t flatten(const Id *ids, int64_t features, const int64_t *begin, const int64_t *counts,
                int64_t stride, const int64_t *rows, const int64_t *first, Flat *flat) {
    int64_t position = 0;
    for (int64_t feature = 0; feature < features; ++feature) {
        const Id *from = ids + begin[feature];
        const uint64_t limit = static_cast<uint64_t>(std::max<int64_t>(0, rows[feature]));
        const int64_t count = counts[feature];
        const uint64_t base = first ? static_cast<uint64_t>(first[feature]) : 0;
        uint64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t id = from[i * stride];
            wrong |= static_cast<uint64_t>(id) >= limit;
            flat[position + i] = static_cast<Flat>(base + static_cast<uint64_t>(id));
        }
        if (wrong)
            for (int64_t i = 0; i < count; ++i)
                if (static_cast<uint64_t>(static_cast<int64_t>(from[i * stride])) >= limit)
                    return position + i;
        position += count;
    }
    return -1;
}

}  // namespace

// Check the ids of each feature, and write them, feature after feature, with `first` of the feature
// added, or 0 where it is null.
//
// Id i of a feature is at begin[feature] + i * stride, among `size` ids. `flat` has `room` elements.
// Returns -1, the position of the first id that is no row, in the order of `flat`, or -2 where the
// features are not within the ids or do not fill the room, or rows not within the type of `flat`.
extern "C" int64_t flatten_ids(Integers ids, int64_t size, int64_t features, const int64_t *begin,
                               const int64_t *counts, int64_t stride, const int64_t *rows,
                               const int64_t *first, void *flat, int64_t room,
                               int32_t flat_wide) {
    for (int64_t f = 0; f < features; ++f) {
        const int64_t end = (first ? first[f] : 0) + std::max<int64_t>(0, rows[f]);
        if (counts[f] < 0 || counts[f] > room || (!flat_wide && end > int64_t{INT32_MAX} + 1))
            return -2;
        room -= counts[f];
        if (!counts[f]) continue;
        if (begin[f] < 0 || begin[f] >= size || stride < 0 ||
            (stride && counts[f] - 1 > (size - 1 - begin[f]) / stride))
            return -2;
    }
    if (room) return -2;
    const auto run = [&](const auto *from, auto *to) {
        return flatten(from, features, begin, counts, stride, rows, first, to);
    };
    const auto write = [&](const auto *from) {
        return flat_wide ? run(from, static_cast<int64_t *>(flat))
                         : run(from, static_cast<int32_t *>(flat));
    };
    return ids.wide ? write(static_cast<const int64_t *>(ids.data))
                    : write(static_cast<const int32_t *>(ids.data));
}
