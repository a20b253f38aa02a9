// Pooled bags of rows, and the gradients of rows from those of pooled bags.

#include <memory>

#include "gradient_lists.hpp"
#include "passes.hpp"

namespace {

// Slots as they lie, feature after feature or at strides.
template <class Slot>
struct Slots {
    const Slot *data;
    int64_t feature_stride, sample_stride;
};

// Sum the rows of bags first .. last of one row each, sample after sample, so that consecutive sums
// are adjacent; return the position of a lookup that is no row, or -1.
template <class Element, int WIDTH, class Slot>
int64_t pool_ones(const Table &table, const Bags &bags, const Slots<Slot> &slots, float *pooled,
                  int64_t first, int64_t last) {
    const auto *rows = static_cast<const typename Element::Stored *>(table.data);
    const int64_t dim = WIDTH ? WIDTH : table.dim, features = bags.features;
    int64_t feature = first % features, sample = first / features;
    for (int64_t at = first; at < last; ++sample, feature = 0) {
        const Slot *const here = slots.data + sample * slots.sample_stride;
        float *const row_of_sums = pooled + sample * bags.row_stride;
        for (; feature < features && at < last; ++feature, ++at) {
            const int64_t coming = at + PREFETCH < last ? feature + PREFETCH : feature;
            prefetch<0>(rows, coming < features
                ? here[coming * slots.feature_stride]
                : here[coming % features * slots.feature_stride +
                       coming / features * slots.sample_stride], table.stride, dim);
            const int64_t slot = here[feature * slots.feature_stride];
            const int64_t lookup = feature * bags.samples + sample;
            if (static_cast<uint64_t>(slot) >= static_cast<uint64_t>(table.rows)) return lookup;
            const auto *const row = rows + slot * table.stride;
            float *const to = row_of_sums + bags.columns[feature];
            vectors<WIDTH>(dim, [&](int64_t d, int64_t n) INLINED {
                const Floats values = load<Element>(row + d, n);
                store(to + d, bags.weights ? fma(all(bags.weights[lookup]), values, Floats{})
                                           : Floats{} + values, n);
            });
        }
    }
    return -1;
}

// As `pool_ones`, of bags with lengths, feature after feature.
template <class Element, int WIDTH, class Slot>
int64_t pool_lengths(const Table &table, const Bags &bags, const Slot *slots, float *pooled,
                     int64_t first, int64_t last) {
    const auto *rows = static_cast<const typename Element::Stored *>(table.data);
    const int64_t dim = WIDTH ? WIDTH : table.dim;
    int64_t next = bags.first_lookup(first);
    for (int64_t bag = first; bag < last; ++bag) {
        const int64_t feature = bag / bags.samples, sample = bag % bags.samples;
        float *const sum = pooled + sample * bags.row_stride + bags.columns[feature];
        const int64_t length = bags.lengths[bag], begin = next;
        next += length;
        prefetch<1>(sum, PREFETCH, bags.row_stride, dim);
        for (int64_t k = begin; k < next; ++k)
            if (static_cast<uint64_t>(slots[k]) >= static_cast<uint64_t>(table.rows)) return k;
        const int64_t divisor = bags.divisor(feature, length);
        const Floats by = all(static_cast<float>(divisor));
        const auto take = [&](int64_t d, int64_t n, Floats total) INLINED {
            store(sum + d, divisor > 1 ? total / by : total, n);
        };
        const auto row_at = [&](int64_t k) INLINED {
            const int64_t coming = std::min(begin + k + PREFETCH, bags.lookups - 1);
            prefetch<0>(rows, slots[coming], table.stride, dim);
            return rows + slots[begin + k] * table.stride;
        };
        if (!length) std::fill(sum, sum + dim, 0.f);
        else if (bags.weights)
            sum_bag<Element, WIDTH>(length, dim, bags.weights + begin, row_at, take);
        else sum_bag<Element, WIDTH>(length, dim, nullptr, row_at, take);
    }
    return -1;
}

}  // namespace

// Sum the rows of each bag in the card's order; a mean is the sum divided by the bag's length.
//
// Slots lie as in `group`, feature after feature. Returns 0; 1 + i where lookup i is no row; -1
// where the lengths are not those of the lookups.
extern "C" int64_t pool_forward(const Table *table, const Bags *bags, Integers slots,
                                int64_t feature_stride, int64_t sample_stride, float *pooled,
                                int threads) try {
    if (!bags->sound()) return -1;
    int64_t wrong = -1;
    with_element(table->type, [&](auto element) {
        with_width(table->dim, [&](auto width) {
            parallel(bags->features * bags->samples, threads, [&](int64_t first, int64_t last) {
                using Element = decltype(element);
                constexpr int WIDTH = decltype(width)::value;
                const int64_t found = with_type(slots, [&](const auto *data) {
                    return bags->lengths.data
                        ? pool_lengths<Element, WIDTH>(*table, *bags, data, pooled, first, last)
                        : pool_ones<Element, WIDTH>(
                              *table, *bags, Slots<std::decay_t<decltype(*data)>>{
                                  data, feature_stride, sample_stride}, pooled, first, last);
                });
                if (found >= 0) __atomic_store_n(&wrong, found, __ATOMIC_RELAXED);
            });
        });
    });
    return 1 + wrong;
} catch (const std::exception &) {
    return NO_MEMORY;
}

Sums sum_lists(const float *gradients, const Bags &bags, const int32_t *numbers, int32_t *counts,
               int64_t distinct, int64_t dim, float *sums, int threads) {
    const std::unique_ptr<const float *[]> listed(new const float *[bags.lookups + PREFETCH]);
    const std::unique_ptr<float[]> weights(bags.weights ? new float[bags.lookups] : nullptr);
    const std::unique_ptr<float[]> divided(
        bags.mean ? new float[bags.features * bags.samples * dim] : nullptr);
    GradientLists lists{listed.get(), weights.get(), counts, distinct};
    lists.fill(bags, gradients, numbers, dim, divided.get());
    std::atomic<bool> finite{true};
    with_width(dim, [&](auto width) {
        lists.parallel(threads, [&](int64_t first, int64_t last) {
            Words large{};  // bit 31 where an exponent was all ones
            for (int64_t row = first; row < last; ++row)
                lists.sum<decltype(width)::value>(row, dim, [&](int64_t d, int64_t n,
                                                                Floats sum) INLINED {
                    large |= ((Words)sum & 0x7fffffff) + 0x00800000;
                    store(sums + row * dim + d, sum, n);
                });
            uint32_t any = 0;
            for (int lane = 0; lane < LANES; ++lane) any |= large[lane];
            if (any >> 31) finite = false;
        });
    });
    return finite ? FINITE : INFINITE;
}

// Sum the gradients of the lookups of each number, as `sum_bag` does rows, in lookup order.
//
// `numbers` are those of `group`. Returns 0, 1 where a sum is not finite, 2 where the numbers are not
// those of `distinct` slots, or -1 where the lengths are not those of the lookups.
extern "C" int64_t pool_backward(const float *gradients, const Bags *bags, const int32_t *numbers,
                                 int64_t distinct, int64_t dim, float *sums, int threads) try {
    if (!bags->sound()) return -1;
    std::vector<int32_t> counts(distinct);
    int64_t seen = 0;
    for (int64_t i = 0; i < bags->lookups; ++i) {
        if (numbers[i] < 0 || numbers[i] > seen || numbers[i] >= distinct) return MALFORMED;
        seen += !counts[numbers[i]]++;
    }
    if (seen != distinct) return MALFORMED;
    return sum_lists(gradients, *bags, numbers, counts.data(), distinct, dim, sums, threads);
} catch (const std::exception &) {
    return NO_MEMORY;
}
