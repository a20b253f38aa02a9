// Rows for coming batches: read when a batch is planned, used only where their place is the same.

#include "store.hpp"

namespace tables {

uint64_t Store::add(View view) {
    std::lock_guard<std::mutex> hold(lock);
    views_.push_back(std::move(view));
    return views_.size() - 1;
}

void Store::place(uint64_t view, const int64_t *flat, uint64_t count, uint16_t *table,
                  uint32_t *row) {
    const View &of = this->view(view);
    size_t near = 0;
    for (uint64_t at = 0; at < count; ++at) {
        if (flat[at] < of.first[near] ||
            flat[at] - of.first[near] >= static_cast<int64_t>(tables[of.table[near]].rows)) {
            const auto after = std::upper_bound(of.first.begin(), of.first.end(), flat[at]);
            near = after == of.first.begin() ? 0 : after - of.first.begin() - 1;
            if (flat[at] < of.first[near] ||
                flat[at] - of.first[near] >= static_cast<int64_t>(tables[of.table[near]].rows))
                throw Failure{"expected rows of a table, of which the last ends at " +
                              std::to_string(of.first.back() + static_cast<int64_t>(
                                  tables[of.table.back()].rows)) + ", got " +
                              std::to_string(flat[at]) + " at position " + std::to_string(at)};
        }
        table[at] = of.table[near], row[at] = static_cast<uint32_t>(flat[at] - of.first[near]);
    }
}

Ticket *Store::begin(uint64_t view, const int64_t *flat, uint64_t count) {
    std::vector<uint16_t> table(count);
    std::vector<uint32_t> row(count);
    place(view, flat, count, table.data(), row.data());
    return begin(std::move(table), std::move(row));
}

Ticket *Store::begin(std::vector<uint16_t> table, std::vector<uint32_t> row) {
    auto made = std::make_unique<Ticket>();
    Ticket &ticket = *made;
    const uint64_t count = row.size();
    ticket.store = this, ticket.count = count;
    ticket.table = std::move(table), ticket.row = std::move(row);
    ticket.entry.resize(count);
    ticket.have.assign(count, 0);
    if (count) {
        const RowLayout &layout = tables[ticket.table[0]].layout;
        ticket.stride = layout.wide + layout.side;  // those of all its tables
    }
    ticket.data = pages(count * ticket.stride);
    {
        std::lock_guard<std::mutex> hold(lock);
        check();
        ticket.number = ++tickets_;
        reading_.insert(ticket.number);  // segments that it finds keep their files and numbers
    }
    try {
        for (uint64_t first = 0; first < count; first += GROUP)
            look_up(ticket, first, std::min(count, first + GROUP));
        const std::vector<Request *> wanted = plan(ticket);
        ticket.pending = wanted.size();
        requests += wanted.size(), fetched += count;
        if (!wanted.empty()) reads_->submit(wanted);
    } catch (...) {
        std::lock_guard<std::mutex> hold(lock);
        reading_.erase(ticket.number);
        throw;
    }
    return made.release();
}

// Copy rows that lie in closed blocks in memory, which do not change, and list those to read.
void Store::look_up(Ticket &ticket, uint64_t first, uint64_t end) {
    std::lock_guard<std::mutex> hold(lock);
    for (uint64_t at = first; at < end; ++at)
        tables[ticket.table[at]].index->prefetch(ticket.row[at]);
    for (uint64_t at = first; at < end; ++at) {
        const uint32_t entry = tables[ticket.table[at]].index->get(ticket.row[at]);
        ticket.entry[at] = entry;
        if (!entry) {
            if (!tables[ticket.table[at]].base.files.empty())
                ticket.based.push_back(static_cast<uint32_t>(at));
            continue;
        }
        const uint64_t order = order_of(entry);
        if (!in_memory(order)) {
            ticket.order.push_back(static_cast<uint32_t>(at));
        } else if (meta_[order % places_].state != OPEN) {
            const uint8_t *block = buffer(order);
            ticket.keep(at, block, find_row(block, ticket.row[at]));
            ++tail_hits;
        }
    }
}

// One request for each block that has rows of a ticket.
std::vector<Request *> Store::plan(Ticket &ticket) {
    std::sort(ticket.order.begin(), ticket.order.end(),
              [&](uint32_t a, uint32_t b) { return ticket.entry[a] < ticket.entry[b]; });
    std::vector<Request *> wanted;
    std::lock_guard<std::mutex> hold(lock);
    for (uint32_t first = 0; first < ticket.order.size();) {
        const uint32_t entry = ticket.entry[ticket.order[first]];
        uint32_t end = first;
        while (end < ticket.order.size() && ticket.entry[ticket.order[end]] == entry) ++end;
        const Segment *segment = segment_of(entry);
        ticket.parts.emplace_back();
        Ticket::BlockPart &part = ticket.parts.back();
        part.file = &segment->file, part.bytes = block_bytes, part.block = (entry - 1) % bound;
        part.offset = PAGE + uint64_t{part.block} * block_bytes;
        part.ticket = &ticket, part.first = first, part.count = end - first;
        part.identity = identity_of(*segment);
        wanted.push_back(&part);
        first = end;
    }
    if (!ticket.based.empty()) {
        std::sort(ticket.based.begin(), ticket.based.end(), [&](uint32_t a, uint32_t b) {
            return std::pair(ticket.table[a], ticket.row[a]) <
                   std::pair(ticket.table[b], ticket.row[b]);
        });
        plan_base(ticket, false, wanted);
        ticket.have_state.assign(ticket.count, 0);
        plan_base(ticket, true, wanted);
    }
    return wanted;
}

// One request for rows of a base, or for their state, in pages that touch.
void Store::plan_base(Ticket &ticket, bool state, std::vector<Request *> &wanted) {
    for (uint32_t first = 0; first < ticket.based.size();) {
        const uint32_t at = ticket.based[first];
        const Base &base = tables[ticket.table[at]].base;
        const BaseFile &file = base.file_of(base.whole(ticket.row[at]));
        uint32_t last = first;
        if (state && !file.state) {
            const RowLayout &layout = tables[ticket.table[at]].layout;
            std::memcpy(ticket.data.get() + at * ticket.stride + layout.width,
                        &base.initial_state, layout.side);
            ticket.have_state[at] = 1;
            ++first;
            continue;
        }
        const auto place = [&](uint32_t row) {
            const uint64_t here = base.whole(row) - file.first;
            return state ? file.state + 4 * here : file.offset + base.from_bytes * here;
        };
        const uint64_t bytes = state ? 4 : base.used();
        const uint64_t begin = place(ticket.row[at]) / PAGE * PAGE;
        uint64_t end = begin;
        for (; last < ticket.based.size(); ++last) {
            const uint32_t next = ticket.based[last];
            if (ticket.table[next] != ticket.table[at] ||
                base.whole(ticket.row[next]) - file.first >= file.rows)
                break;
            const uint64_t from = place(ticket.row[next]), until = (from + bytes + PAGE - 1) /
                                                                   PAGE * PAGE;
            if (last > first && (from / PAGE * PAGE > end || until - begin > most_)) break;
            end = until;
        }
        ticket.base_parts.emplace_back();
        Ticket::BasePart &part = ticket.base_parts.back();
        part.file = &file.file, part.offset = begin, part.base = &file;
        part.bytes = static_cast<uint32_t>(end - begin);
        part.ticket = &ticket, part.first = first, part.count = last - first, part.state = state;
        wanted.push_back(&part);
        first = last;
    }
}

// Keep a row of a block for `finish`.
void Ticket::keep(uint64_t at, const uint8_t *block, uint32_t place) {
    const RowLayout &layout = store->tables[table[at]].layout;
    uint8_t *to = data.get() + at * stride;
    std::memcpy(to, block + layout.row(place), layout.width);
    std::memcpy(to + layout.width, block + layout.state(place), layout.side);
    have[at] = 1;
}

void Ticket::BlockPart::complete(const uint8_t *data, size_t got, const char *wrong) noexcept {
    if (!wrong && got < bytes) wrong = "ends before its last block";
    if (!wrong) wrong = block_fault(data, bytes, identity, block);
    for (uint32_t k = first; !wrong && k < first + count; ++k) {
        const uint32_t at = ticket->order[k], place = find_row(data, ticket->row[at]);
        if (place == header_of(data).count || header_of(data).table != ticket->table[at]) {
            wrong = "lacks a row of the index";
            break;
        }
        ticket->keep(at, data, place);
    }
    end(wrong);
}

void Ticket::BasePart::complete(const uint8_t *data, size_t got, const char *wrong) noexcept {
    for (uint32_t k = first; !wrong && k < first + count; ++k) {
        const uint32_t at = ticket->based[k];
        const Table &table = ticket->store->tables[ticket->table[at]];
        const uint64_t row = table.base.whole(ticket->row[at]) - base->first;
        const uint64_t from = (state ? base->state + 4 * row
                                     : base->offset + table.base.from_bytes * row) - offset;
        if (from + (state ? 4 : table.base.used()) > got) {
            wrong = "ends before its last row";
            break;
        }
        uint8_t *to = ticket->data.get() + uint64_t{at} * ticket->stride;
        if (state) std::memcpy(to + table.layout.width, data + from, 4);
        else table.base.convert(data + from, to);
        (state ? ticket->have_state : ticket->have)[at] = 1;
    }
    end(wrong);
}

void Ticket::Part::end(const char *reason) noexcept {
    std::lock_guard<std::mutex> hold(ticket->lock);
    if (reason && ticket->wrong.empty()) try {
        ticket->wrong = "the file " + file->path + ", at offset " + std::to_string(offset) + ": " +
                        reason + ": check the disk, or open an earlier commit";
    } catch (...) {
        ticket->wrong = "out of memory";  // which a string holds in itself
    }
    if (!--ticket->pending) ticket->done.notify_all();
}

void Store::cancel(Ticket *ticket) {
    {
        std::unique_lock<std::mutex> hold(ticket->lock);
        ticket->done.wait(hold, [&] { return !ticket->pending; });
    }
    std::lock_guard<std::mutex> hold(lock);
    reading_.erase(ticket->number);
    delete ticket;
    release();
}

void Store::finish(Ticket *ticket, uint8_t *out, int64_t stride, uint8_t *side) {
    finish(ticket, out, stride, side, nullptr);
}

// Rows go to places `at` of the output.
void Store::finish(Ticket *ticket, uint8_t *out, int64_t stride, uint8_t *side,
                   const int64_t *at) {
    const auto end = [this](Ticket *which) { cancel(which); };
    std::unique_ptr<Ticket, decltype(end)> owned(ticket, end);
    {
        std::unique_lock<std::mutex> hold(ticket->lock);
        ticket->done.wait(hold, [&] { return !ticket->pending; });
    }
    std::vector<uint16_t> table;
    std::vector<uint32_t> row;
    std::vector<int64_t> places;
    enum Source : uint8_t { DONE, READ, DRAWN };
    const auto place_of = [&](uint64_t k) { return at ? at[k] : static_cast<int64_t>(k); };
    const auto state_of = [&](uint64_t k) { return side ? side + 4 * place_of(k) : nullptr; };
    for (uint64_t first = 0; first < ticket->count; first += GROUP) {
        const uint64_t last = std::min(ticket->count, first + GROUP);
        Source from[GROUP];
        {
            std::lock_guard<std::mutex> hold(lock);
            for (uint64_t k = first; k < last; ++k)
                tables[ticket->table[k]].index->prefetch(ticket->row[k]);
            for (uint64_t k = first; k < last; ++k) {
                const uint32_t entry = tables[ticket->table[k]].index->get(ticket->row[k]);
                const uint64_t order = entry ? order_of(entry) : 0;
                from[k - first] = DONE;
                if (!entry) {
                    const Base &base = tables[ticket->table[k]].base;
                    from[k - first] = base.files.empty() ? DRAWN : READ;
                    if (!base.files.empty() && !(ticket->have[k] && ticket->have_state[k]))
                        throw Failure{ticket->wrong};
                } else if (entry == ticket->entry[k] && ticket->have[k]) {
                    from[k - first] = READ;  // what was read is still the newest
                } else if (in_memory(order)) {
                    const RowLayout &layout = tables[ticket->table[k]].layout;
                    const uint8_t *block = buffer(order);
                    const uint32_t found = find_row(block, ticket->row[k]);
                    layout.give(block + layout.row(found), block + layout.state(found),
                                out + place_of(k) * stride, state_of(k));
                    ++tail_hits;
                } else {
                    if (entry == ticket->entry[k] && !ticket->wrong.empty())
                        throw Failure{ticket->wrong};
                    table.push_back(ticket->table[k]);
                    row.push_back(ticket->row[k]);
                    places.push_back(place_of(k));
                }
            }
        }
        for (uint64_t k = first; k < last; ++k) {
            const RowLayout &layout = tables[ticket->table[k]].layout;
            uint8_t *to = out + place_of(k) * stride, *state = state_of(k);
            if (from[k - first] == READ) {
                const uint8_t *data = ticket->data.get() + k * ticket->stride;
                layout.give(data, data + layout.width, to, state);
            } else if (from[k - first] == DRAWN) {
                const Base &base = tables[ticket->table[k]].base;
                base.draw(ticket->row[k], to);
                std::memset(to + layout.width, 0, layout.wide - layout.width);
                if (state) std::memcpy(state, &base.initial_state, layout.side);
            }
        }
    }
    if (!row.empty())
        finish(begin(std::move(table), std::move(row)), out, stride, side, places.data());
}

}  // namespace tables
