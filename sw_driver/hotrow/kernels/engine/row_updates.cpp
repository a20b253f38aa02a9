// UPDATE: a step of SGD or row-wise Adagrad on listed rows, where they lie.

#include <cmath>
#include <cstring>

#include "listed_rows.hpp"
#include "move_engine.hpp"

namespace hotrow::engine {

namespace {

constexpr uint32_t LISTED = 1, TYPED = 2, ADAGRAD = 4, STATE_BYTES = 4;
constexpr uint64_t ROW_ALIGNMENT = 16;
constexpr int BLOCK = 32;  // rows that are checked and prefetched at once

inline float number_of(uint32_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

// One row, its gradients and its state.
struct Step {
    const uint8_t *row;
    uint8_t *to;
    const uint8_t *const *gradients;
    uint64_t count, elements;

    // The sum of the gradients of elements d .. d + n - 1, starting from the first.
    template <class Gradient>
    Floats sum(int64_t d, int64_t n) const {
        using Stored = typename Gradient::Stored;
        Floats sum = load<Gradient>(reinterpret_cast<const Stored *>(gradients[0]) + d, n);
        for (uint64_t k = 1; k < count; ++k)
            sum = sum + load<Gradient>(reinterpret_cast<const Stored *>(gradients[k]) + d, n);
        return sum;
    }
};

// w = fma(-lr, g, w)
template <class Element, class Gradient, int WIDTH>
void sgd(const Step &step, float lr) {
    using Stored = typename Element::Stored;
    const auto *const from = reinterpret_cast<const Stored *>(step.row);
    auto *const to = reinterpret_cast<Stored *>(step.to);
    vectors<WIDTH>(static_cast<int64_t>(step.elements), [&](int64_t d, int64_t n) {
        const Floats weights = load<Element>(from + d, n);
        store<Element>(to + d, canonical(fma(all(-lr), step.sum<Gradient>(d, n), weights)), n);
    });
}

// s = s + q / D, w = fma(-(lr / (sqrt(s) + eps)), g, w); q is the pairwise sum of the squares.
template <class Element, class Gradient, int WIDTH>
float adagrad(const Step &step, float state, float lr, float eps, float *sums, float *squares) {
    using Stored = typename Element::Stored;
    const auto *const from = reinterpret_cast<const Stored *>(step.row);
    auto *const to = reinterpret_cast<Stored *>(step.to);
    const int64_t elements = static_cast<int64_t>(step.elements);
    vectors<WIDTH>(elements, [&](int64_t d, int64_t n) {
        const Floats sum = step.sum<Gradient>(d, n);
        store(sums + d, sum, n);
        store(squares + d, sum * sum, n);
    });
    state += pairwise_sum(squares, step.elements) / static_cast<float>(elements);
    const float factor = -(lr / (std::sqrt(state) + eps));
    vectors<WIDTH>(elements, [&](int64_t d, int64_t n) {
        const Floats weights = load<Element>(from + d, n);
        store<Element>(to + d, canonical(fma(all(factor), load(sums + d, n), weights)), n);
    });
    return state;
}

struct Updating {
    const Command &command;
    const RowRules &rules;
    const RowShape &shape;
    const CompleteBags &bags;
    const List<uint32_t> &numbers;
    const Items gradients;
    uint32_t tables;

    template <class Element, class Gradient, int WIDTH>
    void run(uint64_t first, uint64_t last, Done &done) const {
        ListedRows listed(rules, shape, tables);
        std::vector<const uint8_t *> pointers;
        std::vector<float> numbers_of_row(2 * std::max<uint32_t>(shape.elements(), 1));
        std::vector<uint8_t> octets(std::max<uint32_t>(shape.row_bytes, 1));
        Prepared prepared[BLOCK];
        for (uint64_t at = first; at < last;) {
            int count = 0;
            pointers.clear();
            for (; at < last && count < BLOCK; ++at)
                count += prepare(listed, at, pointers, prepared[count], done);
            for (int row = 0; row < count; ++row)
                perform<Element, Gradient, WIDTH>(prepared[row], pointers, numbers_of_row.data(),
                                                  octets.data(), done);
        }
    }

private:
    struct Prepared {
        const ListedRows::Place *place;
        uint64_t at, row, pointer;  // position, row, first of the row's gradient pointers
        const uint8_t *from, *state;
        uint8_t *to;
    };

    bool prepare(ListedRows &listed, uint64_t at, std::vector<const uint8_t *> &pointers,
                 Prepared &prepared, Done &done) const {
        Status error;
        uint64_t packed = 0;
        const auto *const place = listed.check(at, Status::OK, error);
        const uint64_t pointer = pointers.size();
        const bool taken = place && check(*place, at, pointers, prepared, error, packed);
        if (taken) {
            prepared.place = place;
            prepared.at = at;
            prepared.pointer = pointer;
        } else {
            done.error.note(at, error, packed);
            pointers.resize(pointer);
        }
        return taken;
    }

    // Check the gradients, addresses and memory of a row whose table is right, in this order.
    bool check(const ListedRows::Place &place, uint64_t at, std::vector<const uint8_t *> &pointers,
               Prepared &prepared, Status &error, uint64_t &packed) const {
        const auto accept = [&](Status status, uint64_t address) {
            error = status;
            packed = address;
            return status == Status::OK;
        };
        for (uint64_t k = bags.first[at]; k < bags.first[at + 1]; ++k) {
            if (numbers.present() && !accept(numbers.status(k), 0)) return false;
            const uint64_t number = numbers.present() ? numbers[k] : k;
            if (!accept(gradients.check(number), gradients.packed(number))) return false;
        }
        const uint64_t row = prepared.row = rules.rows[at].row;
        if (!accept(place.rows.check(row), place.rows.packed(row))) return false;
        const bool with_state = command.flags & ADAGRAD;
        if (with_state && !accept(place.states.check(row), place.states.packed(row))) return false;
        for (uint64_t k = bags.first[at]; k < bags.first[at + 1]; ++k) {
            const uint64_t number = numbers.present() ? numbers[k] : k;
            const uint8_t *const here = gradients.at(number);
            if (!here) return accept(Status::DECERR, gradients.packed(number));
            __builtin_prefetch(here);
            pointers.push_back(here);
        }
        prepared.to = place.rows.at(row);
        prepared.from = prepared.to ? prepared.to : place.rows.readable(row);
        if (!prepared.from) return accept(Status::DECERR, place.rows.packed(row));
        __builtin_prefetch(prepared.from, 1);
        prepared.state = with_state ? place.states.readable(row) : nullptr;
        if (with_state && !prepared.state)
            return accept(Status::DECERR, place.states.packed(row));
        return true;
    }

    template <class Element, class Gradient, int WIDTH>
    void perform(const Prepared &row, const std::vector<const uint8_t *> &pointers, float *numbers,
                 uint8_t *octets, Done &done) const {
        const Step step{row.from, row.to ? row.to : octets, pointers.data() + row.pointer,
                        bags.first[row.at + 1] - bags.first[row.at], shape.elements()};
        const float lr = number_of(command.lr);
        float state = 0;
        if (row.state) {
            std::memcpy(&state, row.state, sizeof state);
            state = adagrad<Element, Gradient, WIDTH>(step, state, lr, number_of(command.eps),
                                                      numbers, numbers + step.elements);
            if (std::isnan(state)) state = number_of(0x7fc00000);
        } else {
            sgd<Element, Gradient, WIDTH>(step, lr);
        }
        const auto stored = [&](const Items &items, uint8_t fault) {
            if (fault) done.error.note(row.at, fault_status(fault), items.packed(row.row));
            else done.bytes += items.size();
            return !fault;
        };
        const Items &rows = row.place->rows, &states = row.place->states;
        bool whole = stored(rows, row.to ? 0 : rows.write(row.row, octets));
        if (row.state)
            whole &= stored(states,
                            states.write(row.row, reinterpret_cast<const uint8_t *>(&state)));
        done.entries += whole;
    }
};

}  // namespace

Outcome MoveEngine::update(const Command &command, const Addresses &addresses) {
    const uint32_t bus = geometry_.bus_bytes;
    const bool typed = command.flags & TYPED;
    List<Row> rows;
    List<uint16_t> counts;
    List<uint32_t> numbers;
    rows.read(memory_, addresses.source, command.count, bus);
    counts.read(memory_, addresses.lengths, command.count, bus);
    if (command.flags & LISTED)
        numbers.read(memory_, addresses.targets, command.gradient_count, bus);
    const CompleteBags bags(counts, command.count, command.gradient_count, 1);
    const RowRules rules{regions_, memory_, tables_, rows, true, !typed,
                         std::min(command.stride, geometry_.row_bytes)};
    const RowShape shape = rules.shape(command.flags & ADAGRAD ? STATE_BYTES : ANY_STATE);
    const bool wide = !typed && shape.type;
    const Updating updating{
        command, rules, shape, bags, numbers,
        Items(regions_, memory_, command.gradients, command.stride,
              uint64_t{shape.row_bytes} * (wide ? 2 : 1), false, ROW_ALIGNMENT),
        geometry_.tables};
    const uint64_t count = bags.bags();
    const int parts = parts_for(2 * count * shape.row_bytes);
    std::vector<Done> done(parts);
    workers_.run(parts, [&](int part) {
        const uint64_t first = count * part / parts, last = count * (part + 1) / parts;
        with_element(static_cast<int32_t>(shape.type), [&](auto element) {
            with_width(shape.elements(), [&](auto width) {
                using Element = decltype(element);
                constexpr int WIDTH = decltype(width)::value;
                if (wide) updating.run<Element, Float32, WIDTH>(first, last, done[part]);
                else updating.run<Element, Element, WIDTH>(first, last, done[part]);
            });
        });
    });
    Outcome outcome = total(done);
    if (outcome.status == Status::OK) {
        outcome.status = bags.ended.status;
        outcome.error_index = bags.ended.error_index;
    }
    return outcome;
}

}  // namespace hotrow::engine
