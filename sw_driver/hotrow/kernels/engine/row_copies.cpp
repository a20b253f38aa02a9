// GATHER and SCATTER: copies of listed rows, and of their state, to slots or back.

#include <algorithm>
#include <cstring>

#include "move_engine.hpp"

namespace hotrow::engine {

namespace {

constexpr uint64_t AHEAD = 16;  // entries that are fetched before their turn

// Rows or states of one table, and their slots.
struct Ends {
    Items source, destination;
    bool source_is_slot = false;
    Items::Direct from = source.direct(), to = destination.direct();

    uint64_t source_number(uint64_t row, uint64_t slot) const { return source_is_slot ? slot : row; }
    uint64_t destination_number(uint64_t row, uint64_t slot) const {
        return source_is_slot ? row : slot;
    }
    // Whether the copy needs no check of its own.
    bool direct(uint64_t row, uint64_t slot) const {
        return source_number(row, slot) < from.count && destination_number(row, slot) < to.count;
    }
    void fetch(uint64_t row, uint64_t slot) const {
        const uint8_t *const read = from.at(source_number(row, slot));
        const uint8_t *const written = to.at(destination_number(row, slot));
        for (uint64_t line = 0; line < source.size(); line += 64) {
            __builtin_prefetch(read + line);
            __builtin_prefetch(written + line, 1);
        }
    }
};

struct TableEnds {
    const Table *table = nullptr;
    bool fits = false, with_state = false;
    Ends rows, states;
};

void copy_bytes(uint8_t *to, const uint8_t *from, uint64_t size) {
    switch (size) {
        case 4: std::memcpy(to, from, 4); break;
        case 16: std::memcpy(to, from, 16); break;
        case 32: std::memcpy(to, from, 32); break;
        case 64: std::memcpy(to, from, 64); break;
        case 128: std::memcpy(to, from, 128); break;
        default: std::memmove(to, from, size);
    }
}

// The copies of one thread.
class RowCopies {
public:
    RowCopies(const Command &command, const Geometry &geometry, const Memory &memory,
              const Regions &regions, const Tables &tables, const List<Row> &rows,
              const List<uint32_t> &slots, Done &done)
        : command_(command), geometry_(geometry), memory_(memory), regions_(regions),
          tables_(tables), rows_(rows), slots_(slots), done_(done), ends_(geometry.tables) {}

    // Serve the entries first .. last - 1 that belong to a part of the destinations.
    template <class Mine>
    void run(uint64_t first, uint64_t last, const Mine &mine) {
        for (uint64_t at = first; at < last;) {
            const uint64_t next = run_direct(at, last, mine);
            if (next == at && mine(at)) check(at);
            at = next + (next == at);
        }
    }

private:
    const TableEnds *ends_of(uint32_t number) {
        const TableEnds *const ends =
            ends_.find(number, [&](TableEnds &made) { make(number, made); });
        return ends && ends->table ? ends : nullptr;
    }

    void make(uint32_t number, TableEnds &ends) {
        const Table *const table = ends.table = tables_.find(number);
        if (!table) return;
        const bool scatters = opcode_of(command_) == Opcode::SCATTER;
        const auto make_ends = [&](uint64_t base, uint64_t stride, uint64_t slots,
                                   uint64_t slot_stride, uint64_t size, uint64_t alignment) {
            const Items in_table(regions_, memory_, base, stride, size, scatters);
            const Items in_slots(regions_, memory_, slots, slot_stride, size, !scatters, alignment);
            return scatters ? Ends{in_slots, in_table, true} : Ends{in_table, in_slots, false};
        };
        ends.fits = table->row_bytes &&
                    table->row_bytes <= std::min(command_.stride, geometry_.row_bytes);
        ends.rows = make_ends(table->weights, table->stride,
                              scatters ? command_.rows : command_.destination, command_.stride,
                              table->row_bytes, HOTROW_ROW_ALIGNMENT);
        ends.with_state = (command_.flags & HOTROW_GATHER_STATE) && table->state_bytes;
        if (ends.with_state)
            ends.states = make_ends(table->state, table->state_bytes,
                                    scatters ? command_.state_rows : command_.state_destination,
                                    table->state_bytes, table->state_bytes, HOTROW_STATE_ALIGNMENT);
    }

    // Copy rows of one table, from `at` on, up to the first that needs a check of its own.
    template <class Mine>
    uint64_t run_direct(uint64_t at, uint64_t last, const Mine &mine) {
        const Row *const listed = rows_.data();
        const uint32_t *const slots = slots_.data();
        const uint32_t table = listed[at].table;
        const TableEnds *const ends = ends_of(table);
        if (!ends || !ends->fits || !rows_.sound() || !slots_.sound()) return at;
        const Ends rows = ends->rows, states = ends->states;
        const uint64_t last_row = ends->table->last_row, row_bytes = rows.source.size();
        const bool with_state = ends->with_state;
        uint64_t copies = 0;
        for (; at < last; ++at) {
            const Row entry = listed[at];
            const uint64_t slot = slots ? slots[at] : at;
            if (entry.table != table || entry.row > last_row || !rows.direct(entry.row, slot) ||
                (with_state && !states.direct(entry.row, slot)))
                break;
            if (at + AHEAD < last)
                fetch(listed[at + AHEAD], slots ? slots[at + AHEAD] : at + AHEAD, table, *ends);
            if (!mine(at)) continue;
            copy(rows, entry.row, slot, row_bytes);
            if (with_state) copy(states, entry.row, slot, states.source.size());
            ++copies;
        }
        done_.entries += copies;
        done_.bytes += copies * (row_bytes + (with_state ? states.source.size() : 0));
        return at;
    }

    static void copy(const Ends &ends, uint64_t row, uint64_t slot, uint64_t size) {
        copy_bytes(ends.to.at(ends.destination_number(row, slot)),
                   ends.from.at(ends.source_number(row, slot)), size);
    }

    // Fetch a row and its slot. The ends are those of `table`, which the row may have.
    void fetch(Row entry, uint64_t slot, uint32_t table, const TableEnds &known) {
        const TableEnds *const ends = entry.table == table ? &known : ends_of(entry.table);
        if (!ends) return;
        ends->rows.fetch(entry.row, slot);
        if (ends->with_state) ends->states.fetch(entry.row, slot);
    }

    // Check an entry, and copy it.
    void check(uint64_t at) {
        const Row entry = rows_[at];
        const auto refuse = [&](Status status, uint64_t packed = 0) {
            done_.error.note(at, status, packed);
        };
        const Status fault = rows_.status(at);
        if (fault != Status::OK) return refuse(fault);
        const TableEnds *const ends = ends_of(entry.table);
        if (!ends) return refuse(Status::TABLE_UNKNOWN);
        if (entry.row > ends->table->last_row) return refuse(Status::ROW_OUT_OF_RANGE);
        uint64_t slot = at;
        if (slots_.present()) {
            if (slots_.status(at) != Status::OK) return refuse(slots_.status(at));
            slot = slots_[at];
        }
        if (!ends->fits) return refuse(Status::STRIDE);
        const Ends *const parts[] = {&ends->rows, &ends->states};
        const int count = 1 + ends->with_state;
        for (int part = 0; part < count; ++part) {
            const Items &source = parts[part]->source, &destination = parts[part]->destination;
            const uint64_t from = parts[part]->source_number(entry.row, slot);
            const uint64_t to = parts[part]->destination_number(entry.row, slot);
            if (const Status status = source.check(from); status != Status::OK)
                return refuse(status, source.packed(from));
            if (const Status status = destination.check(to); status != Status::OK)
                return refuse(status, destination.packed(to));
        }
        bool whole = true;
        for (int part = 0; part < count; ++part)
            whole &= copy_checked(*parts[part], at, entry.row, slot);
        done_.entries += whole;
    }

    // Copy accepted items in pieces, where that is needed; return false after a fault.
    bool copy_checked(const Ends &ends, uint64_t at, uint64_t row, uint64_t slot) {
        const uint64_t source = ends.source_number(row, slot);
        const uint64_t destination = ends.destination_number(row, slot);
        const uint8_t *const from = ends.source.at(source);
        uint8_t *const to = ends.destination.at(destination);
        if (!from) {
            done_.error.note(at, Status::DECERR, ends.source.packed(source));
            return false;
        }
        if (to) copy_bytes(to, from, ends.source.size());
        const uint8_t fault = to ? 0 : ends.destination.write(destination, from);
        if (fault) done_.error.note(at, fault_status(fault), ends.destination.packed(destination));
        else done_.bytes += ends.source.size();
        return !fault;
    }

    const Command &command_;
    const Geometry &geometry_;
    const Memory &memory_;
    const Regions &regions_;
    const Tables &tables_;
    const List<Row> &rows_;
    const List<uint32_t> &slots_;
    Done &done_;
    PerTable<TableEnds> ends_;
};

}  // namespace

Outcome MoveEngine::copy_rows(const Command &command, const Addresses &addresses) {
    const uint64_t count = command.count;
    List<Row> rows;
    List<uint32_t> slots;
    rows.read(memory_, addresses.source, count, geometry_.bus_bytes);
    if (command.flags & HOTROW_GATHER_LISTED) slots.read(memory_, addresses.targets, count, geometry_.bus_bytes);
    const int parts = parts_for(count * command.stride);
    std::vector<Done> done(parts);
    workers_.run(parts, [&](int part) {
        RowCopies copies(command, geometry_, memory_, regions_, tables_, rows, slots, done[part]);
        const uint64_t first = count * part / parts, last = count * (part + 1) / parts;
        const bool scatters = opcode_of(command) == Opcode::SCATTER;
        if (parts == 1 || (!scatters && !slots.present() && !(command.flags & HOTROW_GATHER_STATE))) {
            copies.run(first, last, [](uint64_t) { return true; });
        } else {  // entries with one destination belong to one part, so that the last one wins
            copies.run(0, count, [&](uint64_t at) {
                const uint64_t slot = slots.present() ? slots[at] : at;
                return part_of(scatters ? rows[at].row : slot, parts) == part;
            });
        }
    });
    return total(done);
}

}  // namespace hotrow::engine
