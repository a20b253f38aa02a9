// Steps of an optimizer on rows where they lie.

#include "row_steps.hpp"

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
          int64_t dim, const Parameters &by, Floats *memory) {
    const float lr = by.rate, eps = by.eps;
    const auto values = [&](int64_t d, int64_t n) { return load(gradient + d, n); };
    if (rule == SGD) {
        step_sgd<Element, WIDTH>(row, row, dim, lr, values);
    } else if (rule == ROWWISE_ADAGRAD) {
        *state = step_rowwise_adagrad<Element, WIDTH>(row, row, *state, dim, lr, eps, values,
                                                      memory);
    } else if (rule == ADAM) {
        adam<Element, WIDTH>(by, row, state, gradient, dim, nullptr);
    } else if (rule == PARTIAL_ROWWISE_ADAM) {
        float *second = state + dim;
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) { memory[d / LANES] = values(d, n); });
        const float mean = mean_square(memory, memory + vector_count(dim), dim);
        *second = *second * by.keeps[1] + mean * by.takes[1];
        adam<Element, WIDTH>(by, row, state, gradient, dim, second);
    } else {
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) {
            const Floats by_loss = load(gradient + d, n);
            const Floats grown = fma(by_loss, by_loss, load(state + d, n));
            store(state + d, grown, n);
            store<Element>(row + d, load<Element>(row + d, n) +
                                        all(-lr) * by_loss / (sqrt(grown) + eps), n);
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
    PerThread memory(threads, mean ? 2 * vector_count(table->dim) : 0);
    with_element(table->type, [&](auto element) {
        with_width(table->dim, [&](auto width) {
            using Element = decltype(element);
            constexpr int WIDTH = decltype(width)::value;
            auto *rows = static_cast<typename Element::Stored *>(table->data);
            parallel(count, threads, [&](int64_t first, int64_t last) {
                const int64_t dim = WIDTH ? WIDTH : table->dim;
                Floats *const vectors = memory.take();
                for (int64_t i = first; i < last; ++i) {
                    const int64_t ahead = slots[std::min(i + PREFETCH, last - 1)], slot = slots[i];
                    prefetch<1>(rows, ahead, table->stride, dim);
                    if (state) prefetch<1>(state, ahead, state_stride, beside);
                    step<Element, WIDTH>(rule, rows + slot * table->stride,
                                         state ? state + slot * state_stride : nullptr,
                                         gradients + i * dim, dim, *by, vectors);
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
