// The gradients of the rows of a batch, row after row.

#pragma once

#include "row_sums.hpp"

struct GradientLists {
    const float **listed;  // of the lookups, and PREFETCH more
    float *weights;        // of each, or null
    int32_t *ends;         // where those of a row end
    int64_t rows;

    // List the gradients of `bags`, where `ends` are the counts of the rows. `divided` is memory for
    // the gradients of all bags, where there are means.
    void fill(const Bags &bags, const float *gradients, const int32_t *numbers, int64_t dim,
              float *divided) {
        for (int64_t row = 0, sum = 0; row < rows; ++row) {
            const int32_t count = ends[row];
            ends[row] = static_cast<int32_t>(sum);
            sum += count;
        }
        int64_t i = 0, bag = 0;
        for (int64_t feature = 0; feature < bags.features; ++feature) {
            for (int64_t sample = 0; sample < bags.samples; ++sample, ++bag) {
                const float *from = gradients + sample * bags.row_stride + bags.columns[feature];
                const int64_t length = bags.length(bag), divisor = bags.divisor(feature, length);
                if (divisor > 1) {
                    const float by = static_cast<float>(divisor);
                    float *const to = divided + bag * dim;
                    for (int64_t d = 0; d < dim; ++d) to[d] = from[d] / by;
                    from = to;
                }
                for (const int64_t end = i + length; i < end; ++i) {
                    const int32_t at = ends[numbers[i]]++;
                    listed[at] = from;
                    if (weights) weights[at] = bags.weights[i];
                }
            }
        }
        std::fill(listed + i, listed + i + PREFETCH, gradients);
    }

    int64_t begin(int64_t row) const { return row ? ends[row - 1] : 0; }

    // Sum the gradients of a row, as `sum_bag` does the rows of a bag.
    template <int WIDTH, class Take>
    INLINED void sum(int64_t row, int64_t dim, const Take &take) const {
        const int64_t first = begin(row), count = ends[row] - first;
        const float *const *const own = listed + first;
        const auto gradient_at = [&](int64_t j) INLINED {
            prefetch<0>(own[j + PREFETCH], 0, 0, WIDTH);
            return own[j];
        };
        if (weights) return sum_bag<Float32, WIDTH>(count, dim, weights + first, gradient_at, take);
        if constexpr (WIDTH) {
            constexpr int VECTORS = std::max(1, WIDTH / LANES);
            // Pairs of so few are as in the list.
            if (count <= std::min<int64_t>(partial_count(WIDTH), 3)) {
                const auto sum = partial_sums<1, VECTORS, 1>(
                    count, 0, [&](Sum<VECTORS> &sum, int64_t j) INLINED {
                        const float *const gradient = gradient_at(j);
                        each_of<VECTORS>([&](auto v) INLINED {
                            sum.at[v] += load(gradient + v * LANES, LANES);
                        });
                    });
                each_of<VECTORS>([&](auto v) INLINED { take(v * LANES, LANES, sum.at[v]); });
                return;
            }
        }
        sum_bag<Float32, WIDTH>(count, dim, nullptr, gradient_at, take);
    }

    // Call work(first, last), which throws nothing, for spans of the rows, all with as many lookups,
    // on up to `threads` threads.
    template <class Work>
    void parallel(int threads, const Work &work) const {
        const auto row_from = [&](int64_t lookup) {  // whose lists begin there or later
            return lookup ? std::lower_bound(ends, ends + rows, lookup) - ends + 1 : 0;
        };
        ::parallel(rows ? ends[rows - 1] : 0, threads, [&](int64_t first, int64_t last) {
            work(row_from(first), std::min(row_from(last), rows));
        });
    }
};
