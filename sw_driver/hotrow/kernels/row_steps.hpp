// Steps of an optimizer on a row as the card takes them, for the passes and for the engine.

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
