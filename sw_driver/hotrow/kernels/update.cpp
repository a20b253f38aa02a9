// Steps of an optimizer on rows where they lie.

#include "rows.hpp"

namespace {

enum Rule : int32_t { SGD, ROWWISE_ADAGRAD, ADAGRAD };

// Mean of `square`, whose contents it spends: the upper half is added to the lower until one
// element is left; an odd middle element waits for the next round.
template <int WIDTH>
float halved_mean(float *square, int64_t dim) {
    if (WIDTH) dim = WIDTH;
    int64_t width = dim;
    while (width > 1) {
        const int64_t half = width / 2;
        for (int64_t d = 0; d < half; ++d) square[d] += square[width - half + d];
        width -= half;
    }
    return square[0] / static_cast<float>(dim);
}

template <class Element, int WIDTH>
void step(Rule rule, typename Element::Stored *row, float *state, const float *gradient,
          int64_t dim, float lr, float eps, float *square) {
    if (rule == SGD) {
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            store<Element>(row + d, fma(all(-lr), load(gradient + d, n),
                                        load<Element>(row + d, n)), n);
        });
    } else if (rule == ROWWISE_ADAGRAD) {
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            const Floats values = load(gradient + d, n);
            store(square + d, values * values, n);
        });
        *state += halved_mean<WIDTH>(square, dim);
        const Floats factor = all(1.f / (std::sqrt(*state) + eps) * lr);
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            store<Element>(row + d, load<Element>(row + d, n) - factor * load(gradient + d, n), n);
        });
    } else {
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            const Floats values = load(gradient + d, n);
            const Floats grown = fma(values, values, load(state + d, n));
            store(state + d, grown, n);
            store<Element>(row + d, load<Element>(row + d, n) +
                                        all(-lr) * values / (sqrt(grown) + eps), n);
        });
    }
}

}  // namespace

// One step on distinct rows: row slots[i] by gradient i.
//
// `state` has a number per row or, for ADAGRAD, per element. `distinct` says that no row occurs
// twice. Returns 0, 1 + i where slots[i] is no
// row, or -1 - i where it occurs before; then no row has changed.
extern "C" int64_t update(const Table *table, float *state, int64_t state_stride, Integers slots,
                          int64_t count, int32_t distinct, const float *gradients, int32_t rule,
                          float lr, float eps, int threads) try {
    if (rule == SGD) state = nullptr;
    for (int64_t i = 0; i < count; ++i)
        if (static_cast<uint64_t>(slots[i]) >= static_cast<uint64_t>(table->rows)) return 1 + i;
    const int64_t repeated = distinct ? -1 : first_repeated(slots, count);
    if (repeated >= 0) return -1 - repeated;
    PerThread squares(threads, rule == ROWWISE_ADAGRAD ? table->dim : 0);
    with_element(table->type, [&](auto element) {
        with_width(table->dim, [&](auto width) {
            using Element = decltype(element);
            constexpr int WIDTH = decltype(width)::value;
            auto *rows = static_cast<typename Element::Stored *>(table->data);
            parallel(count, threads, [&](int64_t first, int64_t last) {
                const int64_t dim = WIDTH ? WIDTH : table->dim;
                float *const square = squares.take();
                for (int64_t i = first; i < last; ++i) {
                    const int64_t ahead = slots[std::min(i + PREFETCH, last - 1)], slot = slots[i];
                    prefetch<1>(rows, ahead, table->stride, dim);
                    if (state) prefetch<1>(state, ahead, state_stride, 1);
                    step<Element, WIDTH>(static_cast<Rule>(rule), rows + slot * table->stride,
                                         state ? state + slot * state_stride : nullptr,
                                         gradients + i * dim, dim, lr, eps, square);
                }
            });
        });
    });
    return 0;
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Number of the first row of float32[count, dim] with an element that is not finite, or -1.
extern "C" int64_t first_not_finite(const float *rows, int64_t count, int64_t dim) {
    const auto finite = [&](int64_t first, int64_t last) {
        uint32_t large = 0;  // bit 31 where an exponent was all ones
        for (int64_t i = first * dim; i < last * dim; ++i) {
            uint32_t bits;
            std::memcpy(&bits, rows + i, sizeof bits);
            large |= (bits & 0x7fffffff) + 0x00800000;
        }
        return !(large >> 31);
    };
    if (finite(0, count)) return -1;
    int64_t i = 0;
    while (finite(i, i + 1)) ++i;
    return i;
}
