// UPDATE: a step of SGD or row-wise Adagrad on listed rows, where they lie.

#include <cmath>
#include <cstring>

#include "../row_steps.hpp"
#include "listed_rows.hpp"
#include "move_engine.hpp"

namespace hotrow::engine {

namespace {

constexpr uint32_t STATE_BYTES = 4;  // of row-wise Adagrad

inline float number_of(uint32_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

struct Updating {
    const Command &command;
    const RowRules &rules;
    const RowShape &shape;
    const CompleteBags &bags;
    const List<uint32_t> &numbers;
    uint32_t tables;
    const Items gradients;
    const Items::Direct direct_gradients = gradients.direct();

    template <class Element, class Gradient, int WIDTH>
    void run(uint64_t first, uint64_t last, Done &done) const {
        ListedRows listed(rules, shape, tables);
        Scratch scratch(shape);
        for (uint64_t at = first; at < last;) {
            const uint64_t next =
                run_direct<Element, Gradient, WIDTH>(listed, at, last, scratch, done);
            if (next == at) run_checked<Element, Gradient, WIDTH>(listed, at++, scratch, done);
            else at = next;
        }
    }

private:
    struct Scratch {
        std::vector<Floats> numbers;  // three of each element
        std::vector<uint8_t> octets;
        std::vector<const uint8_t *> gradients;  // of a row

        explicit Scratch(const RowShape &shape)
            : numbers(3 * vector_count(shape.elements())),
              octets(std::max<uint32_t>(shape.row_bytes, 1)) {}
    };

    // The lists as pointers, which a loop keeps in registers.
    struct Lists {
        const Row *rows;
        const uint32_t *numbers;
        const uint64_t *bags;

        uint64_t first(uint64_t at) const { return bags ? bags[at] : at; }
        uint64_t number(uint64_t k) const { return numbers ? numbers[k] : k; }
    };
    uint64_t number(uint64_t k) const { return numbers.present() ? numbers[k] : k; }

    // Update rows of one table, from `at` on, up to the first that needs a check of its own.
    template <class Element, class Gradient, int WIDTH>
    uint64_t run_direct(ListedRows &listed, uint64_t at, uint64_t last, Scratch &scratch,
                        Done &done) const {
        const Lists lists{rules.rows.data(), numbers.data(), bags.data()};
        const uint32_t table = lists.rows[at].table;
        const auto *const place = listed.place_of(table);
        if (!place || !rules.rows.sound() || !numbers.sound()) return at;
        const bool with_state = command.flags & HOTROW_UPDATE_ADAGRAD;
        const Items::Direct rows = place->direct, states = place->direct_states,
                            gradients = direct_gradients;
        if (!gradients.count) return at;
        const uint64_t known = with_state ? std::min(rows.count, states.count) : rows.count;
        const uint64_t begin = at, row_bytes = shape.row_bytes, uses = lists.first(bags.bags());
        const uint64_t gradient_bytes =
            WIDTH ? WIDTH * sizeof(typename Gradient::Stored) : this->gradients.size();
        for (uint64_t gradient = lists.first(at), end; at < last; ++at, gradient = end) {
            const Row entry = lists.rows[at];
            end = lists.first(at + 1);
            if (entry.table != table || entry.row >= known) break;
            if (at + PREFETCH < last) {
                const Row coming = lists.rows[at + PREFETCH];
                const auto *const there =
                    coming.table == table ? place : listed.place_of(coming.table);
                if (there) fetch<1>(there->direct, coming.row, row_bytes);
                if (there && with_state) fetch<1>(there->direct_states, coming.row, STATE_BYTES);
            }
            if (scratch.gradients.size() < end - gradient) scratch.gradients.resize(end - gradient);
            const uint8_t **const found = scratch.gradients.data();
            uint64_t most = 0;
            for (uint64_t k = gradient; k < end; ++k) {
                const uint64_t number = lists.number(k);
                most = std::max(most, number);
                found[k - gradient] = gradients.at(number);
                fetch<0>(gradients, lists.number(std::min(k + PREFETCH, uses - 1)), gradient_bytes);
            }
            if (most >= gradients.count) break;
            uint8_t *const row = rows.at(entry.row);
            uint8_t *const stored = with_state ? states.at(entry.row) : nullptr;
            const float state = step<Element, Gradient, WIDTH>(
                row, row, stored, found, end - gradient, scratch);
            if (stored) std::memcpy(stored, &state, sizeof state);
        }
        done.entries += at - begin;
        done.bytes += (at - begin) * (row_bytes + (with_state ? STATE_BYTES : 0));
        return at;
    }

    // Where a row is, and its state; `to` is null where they are written in pieces.
    struct Places {
        const uint8_t *from, *state;
        uint8_t *to;
    };

    // Check one row, and update it.
    template <class Element, class Gradient, int WIDTH>
    void run_checked(ListedRows &listed, uint64_t at, Scratch &scratch, Done &done) const {
        Status error;
        uint64_t packed = 0;
        Places found;
        const auto *const place = listed.check(at, Status::OK, error);
        if (!place || !check(*place, at, scratch.gradients, found, error, packed))
            return done.error.note(at, error, packed);
        const float state = step<Element, Gradient, WIDTH>(
            found.from, found.to ? found.to : scratch.octets.data(), found.state,
            scratch.gradients.data(), scratch.gradients.size(), scratch);
        const uint64_t row = rules.rows[at].row;
        const auto stored = [&](const Items &items, uint8_t fault) {
            if (fault) done.error.note(at, fault_status(fault), items.packed(row));
            else done.bytes += items.size();
            return !fault;
        };
        bool whole =
            stored(place->rows, found.to ? 0 : place->rows.write(row, scratch.octets.data()));
        if (found.state)
            whole &= stored(place->states, place->states.write(
                                               row, reinterpret_cast<const uint8_t *>(&state)));
        done.entries += whole;
    }

    // Check the gradients, addresses and memory of a row whose table is right, in this order.
    bool check(const ListedRows::Place &place, uint64_t at, std::vector<const uint8_t *> &pointers,
               Places &found, Status &error, uint64_t &packed) const {
        const auto accept = [&](Status status, uint64_t address) {
            error = status;
            packed = address;
            return status == Status::OK;
        };
        const uint64_t first = bags.first(at), last = bags.first(at + 1);
        for (uint64_t k = first; k < last; ++k) {
            if (numbers.present() && !accept(numbers.status(k), 0)) return false;
            if (!accept(gradients.check(number(k)), gradients.packed(number(k)))) return false;
        }
        const uint64_t row = rules.rows[at].row;
        if (!accept(place.rows.check(row), place.rows.packed(row))) return false;
        const bool with_state = command.flags & HOTROW_UPDATE_ADAGRAD;
        if (with_state && !accept(place.states.check(row), place.states.packed(row))) return false;
        pointers.clear();
        for (uint64_t k = first; k < last; ++k) {
            const uint8_t *const here = gradients.at(number(k));
            if (!here) return accept(Status::DECERR, gradients.packed(number(k)));
            pointers.push_back(here);
        }
        found.to = place.rows.at(row);
        found.from = found.to ? found.to : place.rows.readable(row);
        if (!found.from) return accept(Status::DECERR, place.rows.packed(row));
        found.state = with_state ? place.states.readable(row) : nullptr;
        if (with_state && !found.state) return accept(Status::DECERR, place.states.packed(row));
        return true;
    }

    // Update a row by the sum of its gradients, by row-wise Adagrad where it has a state; return its
    // state.
    template <class Element, class Gradient, int WIDTH>
    float step(const uint8_t *row, uint8_t *result, const uint8_t *stored,
               const uint8_t *const *gradients, uint64_t count, Scratch &scratch) const {
        using Stored = typename Element::Stored;
        const auto *const from = reinterpret_cast<const Stored *>(row);
        auto *const to = reinterpret_cast<Stored *>(result);
        const int64_t elements = shape.elements();
        const float lr = number_of(command.lr);
        Floats *const numbers = scratch.numbers.data();
        float state = 0;
        with_sum<WIDTH>(numbers + 2 * vector_count(elements), [&](const auto &keep) INLINED {
            sum_bag<Gradient, WIDTH>(count, elements, nullptr, [&](int64_t j) INLINED {
                return reinterpret_cast<const typename Gradient::Stored *>(gradients[j]);
            }, keep);
        }, [&](const auto &gradient) INLINED {
            if (!stored) {
                step_sgd<Canonical<Element>, WIDTH>(from, to, elements, lr, gradient);
                return;
            }
            std::memcpy(&state, stored, sizeof state);
            state = step_rowwise_adagrad<Canonical<Element>, WIDTH>(
                from, to, state, elements, lr, number_of(command.eps), gradient, numbers);
        });
        return std::isnan(state) ? number_of(0x7fc00000) : state;
    }
};

}  // namespace

Outcome MoveEngine::update(const Command &command, const Addresses &addresses) {
    const uint32_t bus = geometry_.bus_bytes;
    const bool typed = command.flags & HOTROW_UPDATE_TYPED;
    List<Row> rows;
    List<uint16_t> counts;
    List<uint32_t> numbers;
    rows.read(memory_, addresses.source, command.count, bus);
    counts.read(memory_, addresses.lengths, command.count, bus);
    if (command.flags & HOTROW_UPDATE_LISTED)
        numbers.read(memory_, addresses.targets, command.gradient_count, bus);
    const CompleteBags bags(counts, command.count, command.gradient_count, 1);
    const RowRules rules{regions_, memory_, tables_, rows, true, !typed,
                         std::min(command.stride, geometry_.row_bytes)};
    const RowShape shape = rules.shape(command.flags & HOTROW_UPDATE_ADAGRAD ? STATE_BYTES : ANY_STATE);
    const bool wide = !typed && shape.type;
    const Updating updating{
        command, rules, shape, bags, numbers, geometry_.tables,
        Items(regions_, memory_, command.gradients, command.stride,
              uint64_t{shape.row_bytes} * (wide ? 2 : 1), false, HOTROW_ROW_ALIGNMENT)};
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
