// Steps of an optimizer on rows where they lie.

#include "rows.hpp"

namespace {

enum Rule : int32_t { SGD, ROWWISE_ADAGRAD, ADAGRAD, ADAM, PARTIAL_ROWWISE_ADAM };

// `rate` is that of the step, and the others than `eps` are Adam's: what its two moments keep of
// themselves and take of a gradient, and the divisor of the second one's root.
struct Parameters {
    float rate, eps, keeps[2], takes[2], divisor;
};

// Numbers of state of a row.
int64_t columns(Rule rule, int64_t dim) {
    switch (rule) {
        case SGD: return 0;
        case ROWWISE_ADAGRAD: return 1;
        case ADAGRAD: return dim;
        case ADAM: return 2 * dim;
        default: return dim + 1;
    }
}

template <int N>
struct Vector {
    typedef float Type __attribute__((vector_size(4 * N)));
};

// Sum of a vector: the upper half is added to the lower until one element is left.
template <int N>
float halved_sum(typename Vector<N>::Type values) {
    if constexpr (N == 1) {
        return values[0];
    } else {
        typename Vector<N / 2>::Type low, high;
        std::memcpy(&low, &values, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char *>(&values) + sizeof low, sizeof high);
        return halved_sum<N / 2>(low + high);
    }
}

// Mean of the squares of a gradient: the upper half is added to the lower until one element is
// left; an odd middle element waits for the next round. `square` is memory where the width is not
// known: a load of what was stored in other pieces waits for all stores before it.
template <int WIDTH>
float mean_square(const float *gradient, int64_t dim, float *square) {
    if constexpr (WIDTH) {
        Floats parts[WIDTH / LANES];
        for (int part = 0; part < WIDTH / LANES; ++part) {
            const Floats values = load(gradient + part * LANES);
            parts[part] = values * values;
        }
        for (int half = WIDTH / LANES / 2; half; half /= 2)
            for (int part = 0; part < half; ++part) parts[part] += parts[part + half];
        return halved_sum<LANES>(parts[0]) / static_cast<float>(WIDTH);
    }
    for (int64_t d = 0; d < dim; ++d) square[d] = gradient[d] * gradient[d];
    int64_t width = dim;
    while (width > 1) {
        const int64_t half = width / 2;
        for (int64_t d = 0; d < half; ++d) square[d] += square[width - half + d];
        width -= half;
    }
    return square[0] / static_cast<float>(dim);
}

// A step of Adam, whose second moment is that of the row where it is given, else of each element.
template <class Element, int WIDTH>
void adam(const Parameters &by, typename Element::Stored *row, float *state, const float *gradient,
          int64_t dim, const float *of_row) {
    vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
        const Floats values = load(gradient + d, n);
        const Floats first = load(state + d, n) * all(by.keeps[0]) + values * all(by.takes[0]);
        store(state + d, first, n);
        Floats second = of_row ? all(*of_row) : load(state + dim + d, n);
        if (!of_row) {
            second = second * all(by.keeps[1]) + values * values * all(by.takes[1]);
            store(state + dim + d, second, n);
        }
        const Floats root = sqrt(second) / all(by.divisor) + all(by.eps);
        store<Element>(row + d, load<Element>(row + d, n) - first / root * all(by.rate), n);
    });
}

template <class Element, int WIDTH>
void step(Rule rule, typename Element::Stored *row, float *state, const float *gradient,
          int64_t dim, const Parameters &by, float *square) {
    const float lr = by.rate, eps = by.eps;
    if (rule == SGD) {
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            store<Element>(row + d, fma(all(-lr), load(gradient + d, n),
                                        load<Element>(row + d, n)), n);
        });
    } else if (rule == ROWWISE_ADAGRAD) {
        *state += mean_square<WIDTH>(gradient, dim, square);
        const Floats factor = all(1.f / (std::sqrt(*state) + eps) * lr);
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            store<Element>(row + d, load<Element>(row + d, n) - factor * load(gradient + d, n), n);
        });
    } else if (rule == ADAM) {
        adam<Element, WIDTH>(by, row, state, gradient, dim, nullptr);
    } else if (rule == PARTIAL_ROWWISE_ADAM) {
        float *second = state + dim;
        *second = *second * by.keeps[1] + mean_square<WIDTH>(gradient, dim, square) * by.takes[1];
        adam<Element, WIDTH>(by, row, state, gradient, dim, second);
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
// `state` has `columns` numbers a row. `distinct` says that no row occurs
// twice. Returns 0, 1 + i where slots[i] is no
// row, or -1 - i where it occurs before; then no row has changed.
extern "C" int64_t update(const Table *table, float *state, int64_t state_stride, Integers slots,
                          int64_t count, int32_t distinct, const float *gradients, int32_t kind,
                          const Parameters *by, int threads) try {
    const Rule rule = static_cast<Rule>(kind);
    const int64_t beside = columns(rule, table->dim);
    if (!beside) state = nullptr;
    for (int64_t i = 0; i < count; ++i)
        if (static_cast<uint64_t>(slots[i]) >= static_cast<uint64_t>(table->rows)) return 1 + i;
    const int64_t repeated = distinct ? -1 : first_repeated(slots, count);
    if (repeated >= 0) return -1 - repeated;
    const bool mean = rule == ROWWISE_ADAGRAD || rule == PARTIAL_ROWWISE_ADAM;
    PerThread squares(threads, mean ? table->dim : 0);
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
                    if (state) prefetch<1>(state, ahead, state_stride, beside);
                    step<Element, WIDTH>(rule, rows + slot * table->stride,
                                         state ? state + slot * state_stride : nullptr,
                                         gradients + i * dim, dim, *by, square);
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
