// Steps of an optimizer on rows; those of SGD and row-wise Adagrad are the card's.

#pragma once

#include "row_sums.hpp"

// w = fma(-lr, g, w); `gradient(d, n)` are elements d .. d + n - 1 of g.
template <class Element, int WIDTH, class Gradient>
inline void step_sgd(const typename Element::Stored *from, typename Element::Stored *to,
                     int64_t dim, float lr, const Gradient &gradient) {
    const Floats factor = all(-lr);
    vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
        store<Element>(to + d, fma(factor, gradient(d, n), load<Element>(from + d, n)), n);
    });
}

// Mean of the squares of `dim` numbers, which are `values`, zeros after them; `squares` is memory of
// as many vectors.
inline float mean_square(const Floats *values, Floats *squares, int64_t dim) {
    const int64_t count = vector_count(dim);
#pragma GCC unroll 16
    for (int64_t v = 0; v < count; ++v) squares[v] = values[v] * values[v];
    return pairwise_sum(squares, count) / static_cast<float>(dim);
}

// s = s + q / D, w = fma(-(lr / (sqrt(s) + eps)), g, w), q the pairwise sum of the squares of g;
// returns s. `memory` is of 2 * vector_count(dim) vectors, where the width is not known.
template <class Element, int WIDTH, class Gradient>
inline float step_rowwise_adagrad(const typename Element::Stored *from,
                                  typename Element::Stored *to, float state, int64_t dim, float lr,
                                  float eps, const Gradient &gradient, Floats *memory) {
    Floats own[WIDTH ? 2 * (WIDTH / LANES) : 1];
    Floats *const values = WIDTH ? own : memory;
    if (WIDTH) dim = WIDTH;
    vectors<WIDTH>(dim, [&](int64_t d, int64_t n) { values[d / LANES] = gradient(d, n); });
    state += mean_square(values, values + vector_count(dim), dim);
    const Floats factor = all(-(lr / (std::sqrt(state) + eps)));
    vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
        store<Element>(to + d, fma(factor, values[d / LANES], load<Element>(from + d, n)), n);
    });
    return state;
}

enum Rule : int32_t { SGD, ROWWISE_ADAGRAD, ADAGRAD, ADAM, PARTIAL_ROWWISE_ADAM };

// `rate` is that of the step, and the others than `eps` are Adam's: what its two moments keep of
// themselves and take of a gradient, and the divisor of the second one's root.
struct Parameters {
    float rate, eps, keeps[2], takes[2], divisor;
};

// Numbers of state of a row.
inline int64_t columns(Rule rule, int64_t dim) {
    switch (rule) {
        case SGD: return 0;
        case ROWWISE_ADAGRAD: return 1;
        case ADAGRAD: return dim;
        case ADAM: return 2 * dim;
        default: return dim + 1;
    }
}

// A step of Adam, whose second moment is that of the row where it is given, else of each element.
template <class Element, int WIDTH, class Gradient>
void adam(const Parameters &by, typename Element::Stored *row, float *state,
          const Gradient &gradient, int64_t dim, const float *of_row) {
    vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
        const Floats values = gradient(d, n);
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

// `gradient(d, n)` are elements d .. d + n - 1; `memory` as for `step_rowwise_adagrad`.
template <class Element, int WIDTH, class Gradient>
void step(Rule rule, typename Element::Stored *row, float *state, const Gradient &gradient,
          int64_t dim, const Parameters &by, Floats *memory) {
    const float lr = by.rate, eps = by.eps;
    if (rule == SGD) {
        step_sgd<Element, WIDTH>(row, row, dim, lr, gradient);
    } else if (rule == ROWWISE_ADAGRAD) {
        *state = step_rowwise_adagrad<Element, WIDTH>(row, row, *state, dim, lr, eps, gradient,
                                                      memory);
    } else if (rule == ADAM) {
        adam<Element, WIDTH>(by, row, state, gradient, dim, nullptr);
    } else if (rule == PARTIAL_ROWWISE_ADAM) {
        float *second = state + dim;
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) { memory[d / LANES] = gradient(d, n); });
        const float mean = mean_square(memory, memory + vector_count(dim), dim);
        *second = *second * by.keeps[1] + mean * by.takes[1];
        adam<Element, WIDTH>(by, row, state, gradient, dim, second);
    } else {
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            const Floats values = gradient(d, n);
            const Floats grown = fma(values, values, load(state + d, n));
            store(state + d, grown, n);
            store<Element>(row + d, load<Element>(row + d, n) +
                                        all(-lr) * values / (sqrt(grown) + eps), n);
        });
    }
}

// Step on distinct rows, row slot_at(i) by what gradient_of(width, i, sums, take) gives `take`: a
// gradient as for `step`. `sums` is memory of vector_count(dim) vectors. `split(work)` calls
// work(first, last) for spans of the numbers i, on up to `threads` threads.
template <class Split, class SlotAt, class GradientOf>
void step_rows(const Table &table, float *state, int64_t state_stride, Rule rule,
               const Parameters &by, int threads, const Split &split, const SlotAt &slot_at,
               const GradientOf &gradient_of) {
    const int64_t beside = columns(rule, table.dim), room = vector_count(table.dim);
    if (!beside) state = nullptr;
    PerThread memory(threads, 3 * room);
    with_element(table.type, [&](auto element) {
        with_width(table.dim, [&](auto width) {
            using Element = decltype(element);
            constexpr int WIDTH = decltype(width)::value;
            auto *rows = static_cast<typename Element::Stored *>(table.data);
            split([&](int64_t first, int64_t last) {
                const int64_t dim = WIDTH ? WIDTH : table.dim;
                Floats *const own = memory.take();
                for (int64_t i = first; i < last; ++i) {
                    const int64_t ahead = slot_at(std::min(i + PREFETCH, last - 1));
                    const int64_t slot = slot_at(i);
                    prefetch<1>(rows, ahead, table.stride, dim);
                    if (state) prefetch<1>(state, ahead, state_stride, beside);
                    gradient_of(width, i, own + 2 * room, [&](const auto &gradient) INLINED {
                        step<Element, WIDTH>(rule, rows + slot * table.stride,
                                             state ? state + slot * state_stride : nullptr,
                                             gradient, dim, by, own);
                    });
                }
            });
        });
    });
}
