// The rows that a POOL or UPDATE lists, checked against the tables.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../rows.hpp"
#include "lists.hpp"
#include "lookup_keys.hpp"
#include "regions.hpp"
#include "tables.hpp"

namespace hotrow::engine {

constexpr uint32_t ANY_STATE = ~0u;

// The first listed row, or column of a batch, sets the shape. If the first bus word has a fault, or
// the table is unknown or does not fit the card, every row is refused.
struct RowShape {
    uint32_t row_bytes = 0, type = 0;
    bool known = false;
    uint32_t state_bytes = ANY_STATE;  // that every row must have

    uint32_t elements() const { return row_bytes / (type ? 2 : 4); }
};

// What a command needs to check a row.
struct RowRules {
    const Regions &regions;
    const Memory &memory;
    const Tables &tables;
    const List<Row> &rows;
    bool write, wide_gradients;  // 16-bit rows have fp32 gradients, twice as long
    uint64_t longest;            // bytes of a row or gradient

    bool fits(const Table &table) const {
        const uint64_t bytes = uint64_t{table.row_bytes} * (wide_gradients && table.type ? 2 : 1);
        return bytes && bytes <= longest;
    }

    RowShape shape(uint32_t state_bytes) const { return shape(state_bytes, rows[0].table); }
    RowShape shape(uint32_t state_bytes, uint32_t first_table) const {
        RowShape shape;
        const Table *const table = tables.find(first_table);
        shape.state_bytes = state_bytes;
        if (rows.status(0) != Status::OK || !table || !fits(*table)) return shape;
        shape.row_bytes = table->row_bytes;
        shape.type = table->type;
        shape.known = table->type <= 2;
        return shape;
    }
};

// The tables of a command as one thread meets them.
class ListedRows {
public:
    struct Place {
        const Table *table = nullptr;
        bool fits = false, alike = false;
        Items rows, states;
        // The rows, and their states, that need no check of their own; none if the table is refused.
        Items::Direct direct, direct_states;
    };

    ListedRows(const RowRules &rules, const RowShape &shape, uint32_t tables)
        : rules_(rules), shape_(shape), places_(tables) {}

    // The table of a row, or null with the row's error. `operand` is the fault of its operand.
    const Place *check(uint64_t at, Status operand, Status &error) {
        const Row entry = rules_.rows[at];
        error = rules_.rows.status(at);
        if (error != Status::OK) return nullptr;
        const Place *const place = place_of(entry.table);
        error = !place                                ? Status::TABLE_UNKNOWN
                : entry.row > place->table->last_row ? Status::ROW_OUT_OF_RANGE
                : operand != Status::OK              ? operand
                : !place->fits                       ? Status::STRIDE
                : !place->alike                      ? Status::ROW_SHAPE
                                                      : Status::OK;
        return error == Status::OK ? place : nullptr;
    }

    // The table with a number, or null.
    const Place *place_of(uint32_t number) {
        const Place *const place = places_.find(number, [&](Place &made) { make(number, made); });
        return place && place->table ? place : nullptr;
    }

private:
    void make(uint32_t number, Place &place) {
        const Table *const table = place.table = rules_.tables.find(number);
        if (!table) return;
        place.fits = rules_.fits(*table);
        place.alike = shape_.known && table->row_bytes == shape_.row_bytes &&
                      table->type == shape_.type &&
                      (shape_.state_bytes == ANY_STATE || table->state_bytes == shape_.state_bytes);
        place.rows = Items(rules_.regions, rules_.memory, table->weights, table->stride,
                           table->row_bytes, rules_.write);
        place.states = Items(rules_.regions, rules_.memory, table->state, table->state_bytes,
                             table->state_bytes, true);
        if (!place.fits || !place.alike) return;
        place.direct = place.rows.direct();
        place.direct.count = std::min(place.direct.count, table->last_row + 1);
        place.direct_states = place.states.direct();
    }

    const RowRules &rules_;
    const RowShape &shape_;
    PerTable<Place> places_;
};

// Prefetch `size` bytes of an item, of any number: it is checked where it is used.
template <int WRITE>
inline void fetch(const Items::Direct &items, uint64_t number, uint64_t size) {
    prefetch<WRITE>(items.data, static_cast<int64_t>(number), static_cast<int64_t>(items.stride),
                    static_cast<int64_t>(size));
}

// Elements that are stored with one NaN.
template <class Element>
struct Canonical : Element {
    static typename Element::Vector narrow(Floats values) {
        const Words bits = (Words)values;
        const Words nan = (Words)((bits & 0x7fffffff) > 0x7f800000);
        return Element::narrow((Floats)((bits & ~nan) | (nan & 0x7fc00000)));
    }
};

}  // namespace hotrow::engine
