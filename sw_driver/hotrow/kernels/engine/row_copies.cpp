// GATHER and SCATTER: copies of listed rows, and of their state, to slots or back.

#include <algorithm>
#include <cstring>

#include "move_engine.hpp"

namespace hotrow::engine {

namespace {

constexpr uint32_t LISTED = 1, STATE = 2;
constexpr uint64_t ROW_ALIGNMENT = 16, STATE_ALIGNMENT = 4;
constexpr int BLOCK = 32;  // entries that are checked and prefetched at once

// Rows or states of one table, and their slots.
struct Ends {
    Items source, destination;
    bool source_is_slot = false;

    uint64_t source_number(uint64_t row, uint64_t slot) const { return source_is_slot ? slot : row; }
    uint64_t destination_number(uint64_t row, uint64_t slot) const {
        return source_is_slot ? row : slot;
    }
};

struct TableEnds {
    const Table *table = nullptr;
    bool met = false, fits = false, with_state = false;
    Ends rows, states;
};

struct Copy {
    const Ends *ends;
    const uint8_t *from;
    uint8_t *to;
    uint64_t position, source, destination;  // of the items
    bool ends_entry;                         // the last copy of its entry
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
            int copies = 0;
            for (int taken = 0; taken < BLOCK && at < last; ++at)
                if (mine(at)) copies += prepare(at, copies_ + copies), ++taken;
            for (int copy = 0; copy < copies; ++copy) perform(copies_[copy]);
        }
    }

private:
    TableEnds *ends_of(uint32_t number) {
        TableEnds *const found = &ends_[number < ends_.size() ? number : 0];
        if (number >= ends_.size()) return nullptr;
        if (!found->met) make(number, *found);
        return found->table ? found : nullptr;
    }

    void make(uint32_t number, TableEnds &ends) {
        const Table *const table = ends.table = tables_.find(number);
        ends.met = true;
        if (!table) return;
        const bool scatters = command_.opcode == Opcode::SCATTER;
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
                              table->row_bytes, ROW_ALIGNMENT);
        ends.with_state = (command_.flags & STATE) && table->state_bytes;
        if (ends.with_state)
            ends.states = make_ends(table->state, table->state_bytes,
                                    scatters ? command_.state_rows : command_.state_destination,
                                    table->state_bytes, table->state_bytes, STATE_ALIGNMENT);
    }

    // Check an entry; return the number of its copies, 0 if it is refused.
    int prepare(uint64_t at, Copy *copies) {
        const Row entry = rows_[at];
        const auto refuse = [&](Status status, uint64_t packed = 0) {
            done_.error.note(at, status, packed);
            return 0;
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
        int count = 0;
        for (const Ends *part : {&ends->rows, &ends->states}) {
            if (part == &ends->states && !ends->with_state) break;
            const uint64_t source = part->source_number(entry.row, slot);
            const uint64_t destination = part->destination_number(entry.row, slot);
            Status status = part->source.check(source);
            if (status != Status::OK) return refuse(status, part->source.packed(source));
            status = part->destination.check(destination);
            if (status != Status::OK) return refuse(status, part->destination.packed(destination));
            const uint8_t *const from = part->source.at(source);
            uint8_t *const to = part->destination.at(destination);
            __builtin_prefetch(from);
            __builtin_prefetch(to, 1);
            copies[count++] = {part, from, to, at, source, destination, false};
        }
        copies[count - 1].ends_entry = true;
        return count;
    }

    void perform(const Copy &copy) {
        const uint64_t size = copy.ends->source.size();
        uint8_t fault = 0;
        if (copy.from && copy.to) {
            copy_bytes(copy.to, copy.from, size);
        } else if (!copy.from) {
            fault = FAULT_DECERR;
            done_.error.note(copy.position, Status::DECERR, copy.ends->source.packed(copy.source));
        } else {
            fault = copy.ends->destination.write(copy.destination, copy.from);
            if (fault)
                done_.error.note(copy.position, fault_status(fault),
                                 copy.ends->destination.packed(copy.destination));
        }
        whole_ &= !fault;
        if (!fault) done_.bytes += size;
        if (!copy.ends_entry) return;
        done_.entries += whole_;
        whole_ = true;
    }

    const Command &command_;
    const Geometry &geometry_;
    const Memory &memory_;
    const Regions &regions_;
    const Tables &tables_;
    const List<Row> &rows_;
    const List<uint32_t> &slots_;
    Done &done_;
    std::vector<TableEnds> ends_;  // by table
    Copy copies_[2 * BLOCK];
    bool whole_ = true;  // no copy of the entry had a fault so far
};

}  // namespace

Outcome MoveEngine::copy_rows(const Command &command, const Addresses &addresses) {
    const uint64_t count = command.count;
    List<Row> rows;
    List<uint32_t> slots;
    rows.read(memory_, addresses.source, count, geometry_.bus_bytes);
    if (command.flags & LISTED) slots.read(memory_, addresses.targets, count, geometry_.bus_bytes);
    const int parts = parts_for(count * command.stride);
    std::vector<Done> done(parts);
    workers_.run(parts, [&](int part) {
        RowCopies copies(command, geometry_, memory_, regions_, tables_, rows, slots, done[part]);
        const uint64_t first = count * part / parts, last = count * (part + 1) / parts;
        const bool scatters = command.opcode == Opcode::SCATTER;
        if (parts == 1 || (!scatters && !slots.present() && !(command.flags & STATE))) {
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
