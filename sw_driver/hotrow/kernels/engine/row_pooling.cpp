// POOL: bags of listed rows to one row each.

#include <cstring>

#include "../row_sums.hpp"
#include "listed_rows.hpp"
#include "move_engine.hpp"
#include "validator.hpp"

namespace hotrow::engine {

namespace {

// Pool the rows of a bag to `to`.
template <class Element, int WIDTH>
void pool_bag(const std::vector<const uint8_t *> &rows, const float *weights, int64_t elements,
              bool mean, uint8_t *to) {
    using Stored = typename Element::Stored;
    const int64_t length = static_cast<int64_t>(rows.size());
    if (!length) {
        std::memset(to, 0, elements * sizeof(Stored));
        return;
    }
    const bool divided = mean && length > 1;
    const Floats by = all(static_cast<float>(length));
    const auto row_at = [&](int64_t j) INLINED { return reinterpret_cast<const Stored *>(rows[j]); };
    const auto take = [&](int64_t d, int64_t n, Floats sum) INLINED {
        store<Canonical<Element>>(reinterpret_cast<Stored *>(to) + d, divided ? sum / by : sum, n);
    };
    if (weights) sum_bag<Element, WIDTH>(length, elements, weights, row_at, take);
    else sum_bag<Element, WIDTH>(length, elements, nullptr, row_at, take);
}

struct Pooling {
    const Command &command;
    const RowRules &rules;
    const RowShape &shape;
    const CompleteBags &bags;
    const List<float> &weights;
    const List<uint32_t> &slots;
    const Items places;
    uint32_t tables;

    // Serve the bags first .. last - 1 that belong to a part of the slots.
    template <class Element, int WIDTH, class Mine>
    void run(uint64_t first, uint64_t last, const Mine &mine, Done &done) const {
        ListedRows listed(rules, shape, tables);
        std::vector<const uint8_t *> rows;
        std::vector<uint8_t> result(std::max<uint32_t>(shape.row_bytes, 1));
        const bool sound = rules.rows.sound() && weights.sound();
        for (uint64_t bag = first; bag < last; ++bag) {
            if (!mine(bag)) continue;
            const bool found = (sound && find_direct<Element, WIDTH>(listed, bag, rows)) ||
                               find_rows(listed, bag, rows, done);
            if (found && shape.known) write_bag<Element, WIDTH>(bag, rows, result, done);
        }
    }

private:
    // Find the rows of a bag; false if one needs a check of its own.
    template <class Element, int WIDTH>
    bool find_direct(ListedRows &listed, uint64_t bag, std::vector<const uint8_t *> &rows) const {
        const uint64_t first = bags.first(bag), end = bags.first(bags.bags());
        const uint64_t bytes = WIDTH ? WIDTH * sizeof(typename Element::Stored) : shape.row_bytes;
        const Row *const list = rules.rows.data();
        rows.resize(bags.first(bag + 1) - first);
        for (uint64_t at = 0; at < rows.size();) {
            const uint32_t table = list[first + at].table;
            const auto *const place = listed.place_of(table);
            if (!place) return false;
            const Items::Direct direct = place->direct;
            const uint8_t **const found = rows.data();
            for (const uint64_t last = rows.size(); at < last; ++at) {
                const Row entry = list[first + at],
                          coming = list[std::min(first + at + PREFETCH, end - 1)];
                if (entry.table != table) break;
                if (entry.row >= direct.count) return false;
                found[at] = direct.at(entry.row);
                if (coming.table == table) fetch<0>(direct, coming.row, bytes);
            }
        }
        return true;
    }

    bool find_rows(ListedRows &listed, uint64_t bag, std::vector<const uint8_t *> &rows,
                   Done &done) const {
        rows.clear();
        for (uint64_t at = bags.first(bag); at < bags.first(bag + 1); ++at) {
            Status error;
            const auto *const place =
                listed.check(at, weights.present() ? weights.status(at) : Status::OK, error);
            uint64_t packed = 0;
            if (place) {
                const uint32_t row = rules.rows[at].row;
                error = place->rows.check(row);
                const uint8_t *const here =
                    error == Status::OK ? place->rows.readable(row) : nullptr;
                if (error == Status::OK && !here) error = Status::DECERR;
                if (here) __builtin_prefetch(here);
                rows.push_back(here);
                packed = place->rows.packed(row);
            }
            if (error == Status::OK) continue;
            done.error.note(at, error, packed, bag);
            return false;
        }
        return true;
    }

    template <class Element, int WIDTH>
    void write_bag(uint64_t bag, const std::vector<const uint8_t *> &rows,
                   std::vector<uint8_t> &result, Done &done) const {
        const uint64_t at = bags.first(bag), slot = slots.present() ? slots[bag] : bag;
        Status error = slots.present() ? slots.status(bag) : Status::OK;
        uint64_t packed = 0;
        if (error == Status::OK) {
            error = places.check(slot);
            packed = places.packed(slot);
        }
        if (error == Status::OK) {
            uint8_t *const here = places.at(slot), *const to = here ? here : result.data();
            pool_bag<Element, WIDTH>(rows, weights.present() ? &weights[at] : nullptr,
                                     shape.elements(), command.flags & HOTROW_POOL_MEAN, to);
            error = fault_status(here ? 0 : places.write(slot, to));
        }
        if (error != Status::OK) {
            done.error.note(at, error, packed, bag);
            return;
        }
        ++done.entries;
        done.bytes += shape.row_bytes;
    }
};

// The rows that a batch looks up, column after column. Ids after the last bag, which nothing
// reads, belong to the first column.
void read_batch(const Command &command, const List<uint32_t> &ids, const CompleteBags &bags,
                List<Row> &rows) {
    uint64_t column = 0, bag = 0;  // the column of the bags before `bag`
    uint64_t end = 0;              // the first id after the column
    const uint64_t sum = bags.first(bags.bags());
    rows.derive(ids, command.count, [&](uint32_t id, uint64_t at) {
        while (at >= end && bag < bags.bags()) {
            column = bag / command.bags;
            bag = std::min<uint64_t>(bag + command.bags, bags.bags());
            end = bags.first(bag);
        }
        const uint64_t own = at < sum ? column : 0;
        return Row{id, static_cast<uint32_t>(command.first_table + own)};
    });
}

}  // namespace

Outcome MoveEngine::pool(const Command &command, const Addresses &addresses) {
    const uint32_t bus = geometry_.bus_bytes;
    List<Row> rows;
    List<uint16_t> lengths;
    List<float> weights;
    List<uint32_t> slots;
    const uint64_t bag_number = bag_count(command);
    lengths.read(memory_, addresses.lengths, bag_number, bus);
    if (command.flags & HOTROW_POOL_LISTED) slots.read(memory_, addresses.targets, bag_number, bus);
    if (command.flags & HOTROW_POOL_WEIGHTED)
        weights.read(memory_, addresses.weights, command.count, bus);
    const CompleteBags bags(lengths, bag_number, command.count, 0);
    if (pools_batch(command)) {
        List<uint32_t> ids;
        ids.read(memory_, addresses.source, command.count, bus);
        read_batch(command, ids, bags, rows);
    } else {
        rows.read(memory_, addresses.source, command.count, bus);
    }
    const RowRules rules{regions_, memory_, tables_, rows, false, false,
                         std::min(command.stride, geometry_.row_bytes)};
    const RowShape shape = pools_batch(command) ? rules.shape(ANY_STATE, command.first_table)
                                                : rules.shape(ANY_STATE);
    const Pooling pooling{
        command, rules, shape, bags, weights, slots,
        Items(regions_, memory_, command.destination, command.stride, shape.row_bytes, true,
              HOTROW_ROW_ALIGNMENT),
        geometry_.tables};
    const int parts = parts_for(uint64_t{command.count} * shape.row_bytes);
    std::vector<Done> done(parts);
    workers_.run(parts, [&](int part) {
        with_element(static_cast<int32_t>(shape.type), [&](auto element) {
            with_width(shape.elements(), [&](auto width) {
                using Element = decltype(element);
                constexpr int WIDTH = decltype(width)::value;
                if (parts == 1 || !slots.present())
                    pooling.run<Element, WIDTH>(
                        bags.bags() * part / parts, bags.bags() * (part + 1) / parts,
                        [](uint64_t) { return true; }, done[part]);
                else  // bags with one slot belong to one part, so that the last one wins
                    pooling.run<Element, WIDTH>(
                        0, bags.bags(),
                        [&](uint64_t bag) { return part_of(slots[bag], parts) == part; },
                        done[part]);
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
