// Ids of a batch: checked against their tables, and as rows of one array.

#include "rows.hpp"

namespace {

template <class Id, class Flat>
int64_t flatten(const Id *ids, int64_t features, const int64_t *begin, const int64_t *counts,
                int64_t stride, const int64_t *rows, const int64_t *first, Flat *flat) {
    int64_t position = 0;
    for (int64_t feature = 0; feature < features; ++feature) {
        const Id *from = ids + begin[feature];
        const uint64_t limit = static_cast<uint64_t>(std::max<int64_t>(0, rows[feature]));
        const int64_t base = first ? first[feature] : 0, count = counts[feature];
        uint64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t id = from[i * stride];
            wrong |= static_cast<uint64_t>(id) >= limit;
            if (flat) flat[position + i] = static_cast<Flat>(static_cast<uint64_t>(base) + id);
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

// Check the ids of each feature, and write first[feature] + id for each, feature after feature.
//
// Id i of a feature is at begin[feature] + i * stride, among `size` ids. `flat` may be null, or has
// `room` elements. Returns -1, the position of the first id that is no row, in the order of `flat`,
// or -2 where the features are not within the ids or do not fill the room, or flat rows are not
// within their type.
extern "C" int64_t flatten_ids(Integers ids, int64_t size, int64_t features, const int64_t *begin,
                               const int64_t *counts, int64_t stride, const int64_t *rows,
                               const int64_t *first, void *flat, int64_t room, int32_t flat_wide) {
    if (!ids.holds(size) || !holds(begin, features, 8) || !holds(counts, features, 8) ||
        !holds(rows, features, 8) || room < 0 || (flat && !holds(flat, room, 8)))
        return REFUSED;
    const int64_t most = flat && !flat_wide ? INT32_MAX : INT64_MAX;
    for (int64_t f = 0; f < features; ++f) {
        const int64_t base = first ? first[f] : 0;
        if (counts[f] < 0 || counts[f] > room || base < 0 || base > most ||
            (rows[f] > 0 && rows[f] - 1 > most - base))
            return -2;
        room -= counts[f];
        if (!counts[f]) continue;
        if (begin[f] < 0 || begin[f] >= size || stride < 0 ||
            (stride && counts[f] - 1 > (size - 1 - begin[f]) / stride))
            return -2;
    }
    if (room) return -2;
    const auto run = [&](const auto *from) {
        return flat_wide ? flatten(from, features, begin, counts, stride, rows, first,
                                   static_cast<int64_t *>(flat))
                         : flatten(from, features, begin, counts, stride, rows, first,
                                   static_cast<int32_t *>(flat));
    };
    return ids.wide ? run(static_cast<const int64_t *>(ids.data))
                    : run(static_cast<const int32_t *>(ids.data));
}
