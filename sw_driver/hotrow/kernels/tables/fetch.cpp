// Rows for coming batches: read when a batch is planned, used only where their place is the same.

#include "store.hpp"

namespace tables {

void Store::start() {
    for (const auto &[number, segment] : segments)
        if (segment->live != segment->expected)
            fail(segment->file.path, "holds " + std::to_string(segment->live) + " newest rows, and "
                 "the manifest says " + std::to_string(segment->expected) + ": copy the folder "
                 "from where it is whole, or open an earlier commit");
    reads_ = std::make_unique<Reads>(block_bytes, ring);
}

Ticket *Store::begin(const uint16_t *table, const uint32_t *row, uint64_t count) {
    auto made = std::make_unique<Ticket>();
    Ticket &ticket = *made;
    ticket.store = this, ticket.count = count;
    ticket.table.assign(table, table + count);
    ticket.row.assign(row, row + count);
    ticket.entry.resize(count);
    ticket.have.assign(count, 0);
    if (count) ticket.layout = tables[table[0]].layout;
    const RowLayout &layout = ticket.layout;
    ticket.data = pages(count * layout.record());
    std::lock_guard<std::mutex> hold(lock);
    check();
    for (uint64_t at = 0; at < count; ++at) {
        const uint32_t entry = ticket.entry[at] = tables[table[at]].index->get(row[at]);
        if (!entry) continue;
        const uint64_t order = order_of(entry);
        if (!in_memory(order)) {
            ticket.order.push_back(static_cast<uint32_t>(at));
        } else if (meta_[order % places_].state != OPEN) {  // a closed block does not change
            const uint8_t *block = buffer(order);
            const uint32_t place = find_row(block, row[at]);
            uint8_t *to = ticket.data.get() + at * layout.record();
            std::memcpy(to, block + layout.row(place), layout.width);
            std::memcpy(to + layout.width, block + layout.state(place), layout.side);
            ticket.have[at] = 1;
            ++tail_hits;
        }
    }
    std::sort(ticket.order.begin(), ticket.order.end(),
              [&](uint32_t a, uint32_t b) { return ticket.entry[a] < ticket.entry[b]; });
    std::vector<Request *> wanted;
    for (uint32_t first = 0; first < ticket.order.size();) {
        const uint32_t entry = ticket.entry[ticket.order[first]];
        uint32_t end = first;
        while (end < ticket.order.size() && ticket.entry[ticket.order[end]] == entry) ++end;
        const Segment *segment = segment_of(entry);
        ticket.parts.emplace_back();
        Ticket::Part &part = ticket.parts.back();
        part.file = &segment->file, part.bytes = block_bytes, part.block = (entry - 1) % bound;
        part.offset = PAGE + uint64_t{part.block} * block_bytes;
        part.ticket = &ticket, part.segment = segment, part.first = first;
        part.count = end - first;
        std::memcpy(part.identity.store, id, 16);
        part.identity.nonce = segment->nonce, part.identity.segment = segment->number;
        wanted.push_back(&part);
        first = end;
    }
    ticket.number = ++tickets_;
    reading_.insert(ticket.number);
    ticket.pending = wanted.size();
    requests += wanted.size(), fetched += count;
    if (!wanted.empty()) reads_->submit(wanted);
    return made.release();
}

void Ticket::Part::complete(const uint8_t *block, size_t got, const char *wrong) noexcept {
    const RowLayout &layout = ticket->layout;
    if (!wrong && got < bytes) wrong = "ends before its last block";
    if (!wrong) wrong = block_fault(block, bytes, identity, this->block);
    for (uint32_t k = first; !wrong && k < first + count; ++k) {
        const uint32_t at = ticket->order[k], place = find_row(block, ticket->row[at]);
        if (place == header_of(block).count || header_of(block).table != ticket->table[at]) {
            wrong = "lacks a row of the index";
            break;
        }
        uint8_t *to = ticket->data.get() + uint64_t{at} * layout.record();
        std::memcpy(to, block + layout.row(place), layout.width);
        std::memcpy(to + layout.width, block + layout.state(place), layout.side);
        ticket->have[at] = 1;
    }
    std::lock_guard<std::mutex> hold(ticket->lock);
    if (wrong && ticket->wrong.empty()) try {
        ticket->wrong = "the file " + file->path + ", block at offset " + std::to_string(offset) +
                        ": " + wrong + ": check the disk, or open an earlier commit";
    } catch (...) {
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
}

void Store::finish(Ticket *ticket, uint8_t *out, int64_t stride, uint8_t *side,
                   int64_t side_stride, const int64_t *at) {
    const auto end = [this](Ticket *which) { cancel(which); };
    std::unique_ptr<Ticket, decltype(end)> owned(ticket, end);
    {
        std::unique_lock<std::mutex> hold(ticket->lock);
        ticket->done.wait(hold, [&] { return !ticket->pending; });
    }
    const RowLayout &layout = ticket->layout;
    std::vector<uint16_t> table;
    std::vector<uint32_t> row;
    std::vector<int64_t> places;
    for (uint64_t k = 0; k < ticket->count; ++k) {
        const int64_t place = at ? at[k] : static_cast<int64_t>(k);
        uint8_t *to = out + place * stride, *state = side ? side + place * side_stride : nullptr;
        const uint8_t *from = ticket->data.get() + k * layout.record();
        {
            std::lock_guard<std::mutex> hold(lock);
            const uint32_t entry = tables[ticket->table[k]].index->get(ticket->row[k]);
            const uint64_t order = entry ? order_of(entry) : 0;
            if (entry && (entry != ticket->entry[k] || !ticket->have[k])) {
                if (in_memory(order)) {
                    const uint8_t *block = buffer(order);
                    const uint32_t found = find_row(block, ticket->row[k]);
                    std::memcpy(to, block + layout.row(found), layout.width);
                    if (state) std::memcpy(state, block + layout.state(found), layout.side);
                    ++tail_hits;
                } else {
                    if (entry == ticket->entry[k] && !ticket->wrong.empty())
                        throw Failure{ticket->wrong};
                    table.push_back(ticket->table[k]);
                    row.push_back(ticket->row[k]);
                    places.push_back(place);
                }
                continue;
            }
            from = entry ? from : nullptr;
        }
        const Base &base = tables[ticket->table[k]].base;
        if (from) {
            std::memcpy(to, from, layout.width);
            if (state) std::memcpy(state, from + layout.width, layout.side);
        } else {
            base.draw(ticket->row[k], to);
            if (state) std::memcpy(state, &base.initial_state, layout.side);
        }
    }
    if (!row.empty())
        finish(begin(table.data(), row.data(), row.size()), out, stride, side, side_stride,
               places.data());
}

void Store::load(uint64_t number, uint64_t own, uint32_t until, uint64_t live) {
    auto made = std::make_unique<Segment>();
    made->file = File::open(path_of(number), writes ? O_RDWR : O_RDONLY);
    made->number = number, made->nonce = own, made->blocks = until, made->slot = take_slot();
    made->named = true, made->expected = live;
    Memory data = pages(size_t{64} * block_bytes);
    const auto &header = *reinterpret_cast<const SegmentHeader *>(data.get());
    if (made->file.read(data.get(), PAGE, 0) < PAGE || header.magic != SEGMENT_MAGIC ||
        header.crc != page_crc(data.get(), PAGE, offsetof(SegmentHeader, crc)) ||
        std::memcmp(header.store, id, 16) || header.number != number || header.nonce != own ||
        header.block_bytes != block_bytes || header.blocks != bound || until > bound)
        fail(made->file.path, "has a damaged header at offset 0, or belongs to another store: "
             "copy it from where it is whole, or open an earlier commit");
    slots_[made->slot] = made.get();
    Segment &segment = *made;
    segments[number] = std::move(made);
    Identity identity{{}, own, number};
    std::memcpy(identity.store, id, 16);
    for (uint32_t first = 0; first < until; first += 64) {
        const uint32_t some = std::min(64u, until - first);
        const uint64_t offset = PAGE + uint64_t{first} * block_bytes;
        const size_t got = segment.file.read(data.get(), size_t{some} * block_bytes, offset);
        for (uint32_t k = 0; k < some; ++k) {
            const uint8_t *block = data.get() + size_t{k} * block_bytes;
            const char *wrong = got < size_t{k + 1} * block_bytes ? "ends before its last block"
                : block_fault(block, block_bytes, identity, first + k);
            const BlockHeader &about = header_of(block);
            if (!wrong && (about.table >= tables.size() ||
                           about.count > tables[about.table].layout.per_block))
                wrong = "has rows of another table";
            for (uint32_t at = 0; !wrong && at < about.count; ++at)
                if (numbers_of(block)[at] >= tables[about.table].rows)
                    wrong = "has rows of another table";
            if (wrong)
                fail(segment.file.path, std::string(wrong) + " at offset " + std::to_string(
                     offset + uint64_t{k} * block_bytes) + ": copy it from where it is whole, or "
                     "open an earlier commit");
            const uint32_t entry = 1 + segment.slot * bound + first + k;
            for (uint32_t at = 0; at < about.count; ++at) {
                Table &table = tables[about.table];
                const uint32_t row = numbers_of(block)[at], before = table.index->get(row);
                table.index->set(row, entry);
                if (before) settle(before, about.table, -1); else ++table.logged;
                settle(entry, about.table, 1);
            }
        }
    }
}

}  // namespace tables
