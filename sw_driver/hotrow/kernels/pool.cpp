// Pooled bags of rows, and the gradients of rows from those of pooled bags.

#include "passes.hpp"
#include "row_sums.hpp"

namespace {

// The bags of a batch in an order: feature after feature with lengths, else sample after sample,
// so that consecutive sums are adjacent.
struct Cursor {
    const Bags &bags;
    int64_t feature, sample;

    Cursor(const Bags &bags, int64_t at)
        : bags(bags), feature(bags.lengths.data ? at / bags.samples : at % bags.features),
          sample(bags.lengths.data ? at % bags.samples : at / bags.features) {}

    void advance() {
        if (bags.lengths.data) {
            if (++sample == bags.samples) sample = 0, ++feature;
        } else {
            if (++feature == bags.features) feature = 0, ++sample;
        }
    }

    int64_t bag() const { return feature * bags.samples + sample; }
};

// Sum the rows of bags first .. last in the order of Cursor; return the position of a lookup that
// is no row, or -1. Without lengths the slots lie at the strides of feature and sample.
template <class Element, int WIDTH>
int64_t pool(const Table &table, const Bags &bags, Integers slots, int64_t feature_stride,
             int64_t sample_stride, float *pooled, int64_t first, int64_t last) {
    const auto *rows = static_cast<const typename Element::Stored *>(table.data);
    const int64_t dim = WIDTH ? WIDTH : table.dim;
    const bool jagged = bags.lengths.data;
    int64_t next = jagged ? bags.first_lookup(first) : 0;
    Cursor at(bags, first), ahead(bags, std::min(first + PREFETCH, last - 1));
    for (int64_t each = first; each < last; ++each, at.advance()) {
        float *const sum = pooled + at.sample * bags.row_stride + bags.columns[at.feature];
        const int64_t length = jagged ? bags.lengths[each] : 1;
        const int64_t lookup = jagged ? next : at.bag();
        const int64_t begin =
            jagged ? next : at.feature * feature_stride + at.sample * sample_stride;
        next += length;
        if (jagged) {
            prefetch<1>(sum, PREFETCH, bags.row_stride, dim);
        } else {
            prefetch<0>(rows, slots[ahead.feature * feature_stride +
                                    ahead.sample * sample_stride], table.stride, dim);
            if (each + PREFETCH < last - 1) ahead.advance();
        }
        for (int64_t k = 0; k < length; ++k)
            if (static_cast<uint64_t>(slots[begin + k]) >= static_cast<uint64_t>(table.rows))
                return lookup + k;
        const int64_t divisor = bags.divisor(at.feature, length);
        const Floats by = all(static_cast<float>(divisor));
        const auto take = [&](int64_t d, int64_t n, Floats total) INLINED {
            store(sum + d, divisor > 1 ? total / by : total, n);
        };
        const auto row_at = [&](int64_t k) INLINED {
            if (jagged) {
                const int64_t coming = std::min(begin + k + PREFETCH, bags.lookups - 1);
                prefetch<0>(rows, slots[coming], table.stride, dim);
            }
            return rows + slots[begin + k] * table.stride;
        };
        const float *const weights = bags.weights ? bags.weights + lookup : nullptr;
        if (!length) std::fill(sum, sum + dim, 0.f);
        else if (weights) sum_bag<Element, WIDTH>(length, dim, weights, row_at, take);
        else sum_bag<Element, WIDTH>(length, dim, nullptr, row_at, take);
    }
    return -1;
}

// Sum the gradients of numbers low .. high of those in order of first appearance.
template <int WIDTH>
Sums sum_gradients(const float *gradients, const Bags &bags, const int32_t *numbers,
                   int64_t distinct, int64_t low, int64_t high, int64_t dim, float *sums,
                   float *divided) {
    if (WIDTH) dim = WIDTH;
    Words large{};  // bit 31 where an exponent was all ones
    int64_t i = 0, seen = 0, bag = 0;
    for (int64_t feature = 0; feature < bags.features; ++feature) {
        for (int64_t sample = 0; sample < bags.samples; ++sample, ++bag) {
            const float *from = gradients + sample * bags.row_stride + bags.columns[feature];
            const int64_t length = bags.length(bag), divisor = bags.divisor(feature, length);
            prefetch<0>(from, PREFETCH, bags.row_stride, dim);
            if (divisor > 1) {
                const float by = static_cast<float>(divisor);
                for (int64_t d = 0; d < dim; ++d) divided[d] = from[d] / by;
                from = divided;
            }
            for (int64_t each = 0; each < length; ++each, ++i) {
                if (i + PREFETCH < bags.lookups)
                    prefetch<1>(sums, numbers[i + PREFETCH], dim, dim);
                const int64_t number = numbers[i];
                if (number < 0 || number > seen || number >= distinct) return MALFORMED;
                const bool first = number == seen;
                seen += first;
                if (number < low || number >= high) continue;
                const Words kept = Words{} + (first ? 0 : ~0u);
                float *sum = sums + number * dim;
                const float *weight = bags.weights ? bags.weights + i : nullptr;
                vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
                    const Floats sofar = (Floats)((Words)load(sum + d, n) & kept);
                    const Floats values = load(from + d, n);
                    const Floats total = weight ? fma(all(*weight), values, sofar)
                                                : sofar + values;
                    large |= ((Words)total & 0x7fffffff) + 0x00800000;
                    store(sum + d, total, n);
                });
            }
        }
    }
    uint32_t any = 0;
    for (int lane = 0; lane < LANES; ++lane) any |= large[lane];
    if (seen != distinct) return MALFORMED;
    return any >> 31 ? INFINITE : FINITE;
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
                const int64_t found = pool<decltype(element), decltype(width)::value>(
                    *table, *bags, slots, feature_stride, sample_stride, pooled, first, last);
                if (found >= 0) __atomic_store_n(&wrong, found, __ATOMIC_RELAXED);
            });
        });
    });
    return 1 + wrong;
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Sum the gradients of the lookups of each number, in lookup order.
//
// `numbers` and `counts` are those of `group`. Returns 0, 1 where a sum is not finite, 2 where the
// numbers are not those of `distinct` slots, or -1 where the lengths are not those of the lookups.
extern "C" int64_t pool_backward(const float *gradients, const Bags *bags, const int32_t *numbers,
                                 const int32_t *counts, int64_t distinct, int64_t dim, float *sums,
                                 int threads) try {
    if (!bags->sound()) return -1;
    if (!distinct || !bags->lookups) return distinct || bags->lookups ? MALFORMED : FINITE;
    threads = std::clamp(threads, 1, MOST_THREADS);
    std::vector<int64_t> bounds{0};  // of each thread's numbers: all have as many lookups
    for (int64_t number = 0, sum = 0; number < distinct; ++number) {
        sum += counts[number];
        while (static_cast<int>(bounds.size()) < threads &&
               sum * threads >= bags->lookups * static_cast<int64_t>(bounds.size()))
            bounds.push_back(number + 1);
    }
    bounds.resize(threads, distinct);
    bounds.push_back(distinct);
    PerThread divided(threads, bags->mean ? vector_count(dim) : 0);
    std::atomic<int64_t> found{FINITE};
    with_width(dim, [&](auto width) {
        parallel(threads, threads, [&](int64_t first, int64_t last) {
            const int64_t here = sum_gradients<decltype(width)::value>(
                gradients, *bags, numbers, distinct, bounds[first], bounds[last], dim, sums,
                reinterpret_cast<float *>(divided.take()));
            for (int64_t before = found; before < here;)
                if (found.compare_exchange_weak(before, here)) break;
        });
    });
    return found;
} catch (const std::exception &) {
    return NO_MEMORY;
}
