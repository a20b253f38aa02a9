// The log's end: rows go to open blocks in memory, of which each has rows of one table and epoch.

#include "store.hpp"

#include <cstdio>

namespace tables {

Store::Store(std::string where, const uint8_t *store, uint32_t bytes, uint32_t blocks,
             uint64_t tail, uint64_t own, uint64_t following, uint64_t number, uint64_t history,
             bool uring, bool trains)
    : folder(std::move(where)), block_bytes(bytes), bound(blocks), nonce(own), next(following),
      epoch(number), ring(uring), writes(trains),
      places_(trains ? std::max<uint64_t>(16, tail / bytes) : 0), history_(history) {
    std::memcpy(id, store, 16);
    spare_ = "the tables in " + folder + " ran out of memory: open their last commit";
    if (writes) tail_ = pages(places_ * block_bytes);
    meta_.resize(places_);
}

Store::~Store() {
    {
        std::lock_guard<std::mutex> hold(lock);
        ending_ = true;
    }
    work_.notify_all(), dirt_.notify_all(), space_.notify_all();
    for (std::thread &thread : threads_) thread.join();
    reads_.reset();
    for (const File &spare : spares_) ::unlink(spare.path.c_str());
}

void Store::add(Table table) {
    tables.push_back(std::move(table));
    open_.resize(tables.size());
}

std::string Store::path_of(uint64_t number) const {
    char name[40];
    std::snprintf(name, sizeof name, "/seg-%08llu.log", static_cast<unsigned long long>(number));
    return folder + name;
}

Identity Store::identity_of(const Segment &segment) const {
    Identity identity{{}, segment.nonce, segment.number};
    std::memcpy(identity.store, id, 16);
    return identity;
}

uint64_t Store::index_bytes() const {
    uint64_t bytes = 0;
    for (const Table &table : tables) bytes += table.index->bytes();
    return bytes;
}

// What the next call says, and who waits.
void Store::broken(const std::string &message) noexcept {
    if (failed_.empty()) try {
        failed_ = message;
    } catch (const std::bad_alloc &) {
        failed_.swap(spare_);
    }
    work_.notify_all(), space_.notify_all();
}

uint32_t Store::take_slot() {
    const uint64_t slot = std::find(slots_.begin(), slots_.end(), nullptr) - slots_.begin();
    if ((slot + 1) * bound >> 32) fail(folder, "would need more than 2^32 blocks: use more stores");
    if (slot == slots_.size()) slots_.push_back(nullptr);
    return static_cast<uint32_t>(slot);
}

void Store::new_segment(uint8_t kind) {
    auto made = std::make_unique<Segment>();
    made->slot = take_slot(), made->number = next, made->nonce = nonce, made->first = head_;
    made->file = next_file(path_of(next), kind);
    Memory page = pages(PAGE);
    std::memset(page.get(), 0, PAGE);
    auto &header = *reinterpret_cast<SegmentHeader *>(page.get());
    header.magic = SEGMENT_MAGIC, header.version = VERSION, header.nonce = nonce;
    header.number = next, header.block_bytes = block_bytes, header.blocks = bound;
    std::memcpy(header.store, id, 16);
    header.crc = page_crc(page.get(), PAGE, offsetof(SegmentHeader, crc));
    made->file.write(page.get(), PAGE, 0);
    written += PAGE;
    made->unsynced = true;
    current_ = slots_[made->slot] = made.get();
    segments.emplace(next++, std::move(made));
    overfull_ = work_to_clean() &&
                static_cast<double>(log_blocks()) > 2.5 * live_blocks() + 2.0 * bound;
    dirt_.notify_all();
}

void Store::settle(uint32_t entry, uint16_t table, int sign) {
    Segment &segment = *segment_of(entry);
    segment.live += sign;
    segment.live_units += sign * static_cast<int64_t>((1u << 20) / tables[table].layout.per_block);
}

void Store::close_block(uint16_t table, size_t at) {
    meta_[open_[table][at].order % places_].state = CLOSED;
    open_[table].erase(open_[table].begin() + static_cast<int64_t>(at));
    --opens_;
    if (++closed_ % std::max<uint64_t>(1, (1 << 16) / block_bytes) == 0) work_.notify_one();
}

void Store::close_oldest() {
    std::pair<uint64_t, uint16_t> oldest{UINT64_MAX, 0};
    for (uint16_t table = 0; table < tables.size(); ++table)
        for (const Place &place : open_[table]) oldest = std::min(oldest, {place.order, table});
    close_blocks(oldest.first + 1);
}

void Store::close_blocks(uint64_t until) {
    for (uint16_t table = 0; table < tables.size(); ++table)
        for (size_t at = open_[table].size(); at-- > 0;)
            if (open_[table][at].order < until) close_block(table, at);
}

// Room for one more block in memory; others may change the index meanwhile.
void Store::wait_for_room(Hold &hold) {
    if (head_ - low_ < places_ / 2) return;
    ++waiting_;
    while (failed_.empty() && !ending_ && head_ - low_ >= places_ / 2) {
        close_blocks(head_ - places_ / 2 + 1);
        work_.notify_one();
        space_.wait(hold);
    }
    --waiting_;
    check();
    if (ending_) throw Failure{"the tables in " + folder + " are closed: open them"};
}

// The caller has waited for room.
void Store::put(uint16_t table, uint32_t row, uint8_t kind, uint64_t own, const uint8_t *data,
                const uint8_t *side) {
    Table &of = tables[table];
    const RowLayout &layout = of.layout;
    const uint32_t before = of.index->get(row);
    std::vector<Place> &open = open_[table];
    size_t at = 0;
    while (at < open.size() && !(open[at].kind == kind && open[at].epoch == own)) ++at;
    // The newest copy of a row is in the last block that has it.
    if (at < open.size() && before && order_of(before) > open[at].order) {
        close_block(table, at);
        at = open.size();
    }
    if (at == open.size()) {
        if (opens_ >= std::min<uint64_t>(places_ / 4, 32 + 18 * tables.size()))
            close_oldest();
        if (!current_ || current_->blocks == bound) {
            close_blocks(head_);
            new_segment(kind);
        }
        at = open.size();
        uint8_t *block = buffer(head_);
        std::memset(block, 0, block_bytes);
        BlockHeader &header = header_of(block);
        header.magic = BLOCK_MAGIC, header.nonce = nonce, header.segment = current_->number;
        header.block = current_->blocks, header.epoch = own, header.table = table;
        header.kind = kind, header.version = VERSION, header.row_bytes = layout.record();
        meta_[head_ % places_] = {current_, current_->blocks++, OPEN};
        open.push_back({kind, own, head_++});
        ++opens_;
        moved_blocks_ += kind == MOVED;
    }
    const uint64_t order = open[at].order;
    const Buffer &meta = meta_[order % places_];
    uint8_t *block = buffer(order);
    BlockHeader &header = header_of(block);
    const uint32_t entry = 1 + meta.segment->slot * bound + meta.block;
    uint32_t place = header.count;
    if (before == entry) {
        place = find_row(block, row);
    } else {
        of.index->set(row, entry);
        if (before) settle(before, table, -1);
        settle(entry, table, 1);
        numbers_of(block)[header.count++] = row;
    }
    std::memcpy(block + layout.row(place), data, layout.width);
    if (layout.side) std::memcpy(block + layout.state(place), side, layout.side);
    if (header.count == layout.per_block) close_block(table, at);
}

void Store::append(uint64_t view, const int64_t *flat, uint64_t count, const uint8_t *from,
                   int64_t stride, const uint8_t *side) {
    std::vector<uint16_t> table(count);
    std::vector<uint32_t> row(count);
    place(view, flat, count, table.data(), row.data());
    for (uint64_t first = 0; first < count; first += GROUP) {
        Hold hold(lock);
        while (overfull_ && failed_.empty() && full_.empty() && work_to_clean()) space_.wait(hold);
        check();
        const uint64_t end = std::min(count, first + GROUP);
        for (uint64_t k = first; k < end; ++k) tables[table[k]].index->prefetch(row[k]);
        guard([&] {
            for (uint64_t k = first; k < end; ++k) {
                wait_for_room(hold);
                put(table[k], row[k], TRAINED, epoch, from + static_cast<int64_t>(k) * stride,
                    side ? side + 4 * k : nullptr);
                trained += tables[table[k]].layout.record();
            }
        });
    }
}

}  // namespace tables
