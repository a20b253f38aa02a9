#include "store.hpp"

#include <cstdio>

namespace tables {

Store::Store(std::string where, const uint8_t *store, uint32_t bytes, uint32_t blocks,
             uint64_t tail, uint64_t own, uint64_t following, uint64_t number, bool uring,
             bool trains)
    : folder(std::move(where)), block_bytes(bytes), bound(blocks), nonce(own), next(following),
      epoch(number), ring(uring), writes(trains),
      places_(trains ? std::max<uint64_t>(16, tail / bytes) : 0) {
    std::memcpy(id, store, 16);
    if (writes) tail_ = pages(places_ * block_bytes);
    meta_.resize(places_);
}

Store::~Store() { reads_.reset(); }

void Store::add(Table table) { tables.push_back(std::move(table)); }

std::string Store::path_of(uint64_t number) const {
    char name[40];
    std::snprintf(name, sizeof name, "/seg-%08llu.log", static_cast<unsigned long long>(number));
    return folder + name;
}

uint64_t Store::index_bytes() const {
    uint64_t bytes = 0;
    for (const Table &table : tables) bytes += table.index->bytes();
    return bytes;
}

uint64_t Store::log_blocks() const {
    uint64_t blocks = 0;
    for (const auto &[number, segment] : segments)
        if (!segment->dead && !segment->kept) blocks += segment->blocks;
    return blocks;
}

double Store::live_blocks() const {
    double blocks = 0;
    for (const Table &table : tables)
        blocks += static_cast<double>(table.logged) / table.layout.per_block;
    return blocks;
}

uint32_t Store::take_slot() {
    const uint64_t slot = std::find(slots_.begin(), slots_.end(), nullptr) - slots_.begin();
    if ((slot + 1) * bound >> 32) fail(folder, "would need more than 2^32 blocks: call fold()");
    if (slot == slots_.size()) slots_.push_back(nullptr);
    return static_cast<uint32_t>(slot);
}

void Store::new_segment() {
    auto made = std::make_unique<Segment>();
    made->slot = take_slot(), made->number = next, made->nonce = nonce, made->first = head_;
    const std::string path = path_of(next);
    const uint64_t bytes = PAGE + uint64_t{bound} * block_bytes;
    if (const int error = before(CREATE, path, 0, nullptr, bytes))
        fail(path, std::string("could not be made: ") + std::strerror(error) +
             ": make space, and open the tables at their last commit");
    made->file = File::open(path, O_RDWR | O_CREAT | O_EXCL);
    if (const int error = posix_fallocate(made->file.fd(), 0, static_cast<off_t>(bytes)))
        fail(path, "needs " + std::to_string(bytes) + " bytes: " + std::strerror(error) +
             ": make space, and open the tables at their last commit");
    Memory page = pages(PAGE);
    std::memset(page.get(), 0, PAGE);
    auto &header = *reinterpret_cast<SegmentHeader *>(page.get());
    header.magic = SEGMENT_MAGIC, header.version = VERSION, header.nonce = nonce;
    header.number = next, header.block_bytes = block_bytes, header.blocks = bound;
    std::memcpy(header.store, id, 16);
    header.crc = page_crc(page.get(), PAGE, offsetof(SegmentHeader, crc));
    made->file.write(page.get(), PAGE, 0);
    made->unsynced = true;
    current_ = slots_[made->slot] = made.get();
    segments.emplace(next++, std::move(made));
}

void Store::settle(uint32_t entry, uint16_t table, int sign) {
    Segment &segment = *segment_of(entry);
    segment.live += sign;
    segment.live_bytes += sign * static_cast<int64_t>(tables[table].layout.record() + 4);
}

void Store::close_block(size_t at) {
    meta_[open_[at].order % places_].state = CLOSED;
    open_.erase(open_.begin() + static_cast<int64_t>(at));
}

// Write closed blocks, neighbours together.
void Store::flush(bool all) {
    uint64_t closed = 0;
    for (uint64_t at = low_; at < head_; ++at) closed += meta_[at % places_].state == CLOSED;
    if (!closed || (!all && closed * block_bytes < 1 << 18 && head_ - low_ < places_ / 2)) return;
    for (uint64_t at = low_; at < head_;) {
        if (meta_[at % places_].state != CLOSED) {
            ++at;
            continue;
        }
        uint64_t end = at;
        Segment *segment = meta_[at % places_].segment;
        while (end < head_ && meta_[end % places_].state == CLOSED &&
               meta_[end % places_].segment == segment && (end == at || end % places_) &&
               (end - at + 1) * block_bytes <= 1 << 20) {
            uint8_t *block = buffer(end++);
            header_of(block).crc = block_crc(block, block_bytes, id);
        }
        const uint64_t bytes = (end - at) * block_bytes;
        segment->unsynced = true;
        segment->file.write(buffer(at), bytes,
                            PAGE + uint64_t{meta_[at % places_].block} * block_bytes);
        written += bytes;
        for (; at < end; ++at) meta_[at % places_].state = WRITTEN;
    }
    while (low_ < head_ && meta_[low_ % places_].state == WRITTEN) ++low_;
}

// Room for one more block: in memory, and in a segment.
void Store::make_room() {
    while (head_ - low_ >= places_ / 2) {
        for (size_t at = open_.size(); at-- > 0;)
            if (open_[at].order + places_ / 2 <= head_) close_block(at);
        flush(false);
    }
    if (current_ && current_->blocks < bound) return;
    while (!open_.empty()) close_block(0);
    flush(false);
    new_segment();
}

void Store::put(uint16_t table, uint32_t row, uint8_t kind, uint64_t own, const uint8_t *data,
                const uint8_t *side) {
    Table &of = tables[table];
    const RowLayout &layout = of.layout;
    const uint32_t before = of.index->get(row);
    size_t at = 0;
    while (at < open_.size() && !(open_[at].table == table && open_[at].kind == kind &&
                                  open_[at].epoch == own))
        ++at;
    // The newest copy of a row is in the last block that has it.
    if (at < open_.size() && before && order_of(before) > open_[at].order) {
        close_block(at);
        at = open_.size();
    }
    if (at == open_.size()) {
        if (open_.size() >= 32 + 2 * tables.size()) close_block(0);
        make_room();
        at = open_.size();
        uint8_t *block = buffer(head_);
        std::memset(block, 0, block_bytes);
        BlockHeader &header = header_of(block);
        header.magic = BLOCK_MAGIC, header.nonce = nonce, header.segment = current_->number;
        header.block = current_->blocks, header.epoch = own, header.table = table;
        header.kind = kind, header.version = VERSION, header.row_bytes = layout.record();
        meta_[head_ % places_] = {current_, current_->blocks++, OPEN};
        open_.push_back({table, kind, own, head_++});
    }
    const uint64_t order = open_[at].order;
    const Buffer &meta = meta_[order % places_];
    uint8_t *block = buffer(order);
    BlockHeader &header = header_of(block);
    const uint32_t entry = 1 + meta.segment->slot * bound + meta.block;
    uint32_t place = header.count;
    if (before == entry) {
        place = find_row(block, row);
    } else {
        of.index->set(row, entry);
        if (before) settle(before, table, -1); else ++of.logged;
        settle(entry, table, 1);
        numbers_of(block)[header.count++] = row;
    }
    std::memcpy(block + layout.row(place), data, layout.width);
    if (layout.side) std::memcpy(block + layout.state(place), side, layout.side);
    if (header.count == layout.per_block) close_block(at);
}

void Store::append(uint64_t view, const int64_t *flat, uint64_t count, const uint8_t *from,
                   int64_t stride, const uint8_t *side) {
    std::vector<uint16_t> table(count);
    std::vector<uint32_t> row(count);
    place(view, flat, count, table.data(), row.data());
    for (uint64_t first = 0; first < count; first += GROUP) {
        std::lock_guard<std::mutex> hold(lock);
        check();
        try {
            const uint64_t end = std::min(count, first + GROUP);
            for (uint64_t k = first; k < end; ++k) tables[table[k]].index->prefetch(row[k]);
            for (uint64_t k = first; k < end; ++k) {
                put(table[k], row[k], TRAINED, epoch, from + static_cast<int64_t>(k) * stride,
                    side ? side + 4 * k : nullptr);
                trained += tables[table[k]].layout.record();
            }
            flush(false);
        } catch (const Failure &failure) {
            failed_ = failure.message;
            throw;
        } catch (...) {
            failed_ = "the tables in " + folder + " ran out of memory: open their last commit";
            throw;
        }
    }
    for (uint64_t bytes = 0; bytes < 4 * count * 64 + (1 << 18); bytes += 1 << 18)
        if (!clean(UINT64_MAX, false)) break;
}

uint64_t Store::cut() {
    std::lock_guard<std::mutex> hold(lock);
    check();
    taken.clear();
    try {
        while (!open_.empty()) close_block(0);
        flush(true);
        for (const auto &[number, segment] : segments) {
            if (segment->dead || !segment->blocks) continue;
            if (segment->unsynced) segment->file.sync();
            segment->unsynced = false;
            segment->named = true;
            taken.insert(taken.end(), {number, segment->nonce, segment->blocks, segment->live});
        }
        ++epoch;
    } catch (const Failure &failure) {
        failed_ = failure.message;
        throw;
    }
    return taken.size();
}

// Let the dead segments go that the last commit does not name, when reads begun before have ended.
// A file that another commit names stays.
void Store::release() {
    for (auto at = segments.begin(); at != segments.end();) {
        Segment &segment = *at->second;
        if (!segment.dead || segment.named ||
            (!reading_.empty() && *reading_.begin() <= segment.reads)) {
            ++at;
            continue;
        }
        if (writes && !segment.kept && !before(UNLINK, segment.file.path))
            ::unlink(segment.file.path.c_str());
        slots_[segment.slot] = nullptr;
        at = segments.erase(at);
    }
}

void Store::named(const std::set<uint64_t> &last, const std::set<uint64_t> &kept) {
    std::lock_guard<std::mutex> hold(lock);
    for (auto &[number, segment] : segments)
        segment->named = last.count(number), segment->kept = kept.count(number);
    release();
}

std::vector<uint64_t> Store::numbers() {
    std::lock_guard<std::mutex> hold(lock);
    std::vector<uint64_t> found;
    for (const auto &[number, segment] : segments) found.push_back(number);
    return found;
}

// Takes 64 blocks of the segment with the smallest live share.
bool Store::clean(uint64_t below, bool forced) {
    std::lock_guard<std::mutex> hold(lock);
    check();
    if (!cleaning_) {
        release();
        const double blocks = static_cast<double>(log_blocks());
        if (!forced && (blocks <= 2.25 * live_blocks() || blocks < 8.0 * bound)) return false;
        double least = 0.9;
        for (const auto &[number, segment] : segments) {
            if (number >= below || segment->dead || segment->kept || segment.get() == current_ ||
                !segment->blocks ||
                (segment->first && segment->first + segment->blocks > low_))
                continue;
            const double share = static_cast<double>(segment->live_bytes) /
                                 (static_cast<double>(segment->blocks) * block_bytes);
            if (share < least) least = share, cleaning_ = segment.get();
        }
        cleaned_ = 0;
        if (!cleaning_) return false;
    }
    Segment &source = *cleaning_;
    try {
        const uint32_t until = std::min(source.blocks, cleaned_ + 64);
        Memory data = pages(size_t{until - cleaned_} * block_bytes);
        const uint64_t offset = PAGE + uint64_t{cleaned_} * block_bytes;
        if (source.live)
            source.file.read(data.get(), size_t{until - cleaned_} * block_bytes, offset);
        Identity identity{{}, source.nonce, source.number};
        std::memcpy(identity.store, id, 16);
        for (uint32_t number = cleaned_; source.live && number < until; ++number) {
            const uint8_t *block = data.get() + uint64_t{number - cleaned_} * block_bytes;
            if (const char *wrong = block_fault(block, block_bytes, identity, number))
                fail(source.file.path, std::string(wrong) + " at offset " + std::to_string(
                     PAGE + uint64_t{number} * block_bytes) + ": open an earlier commit");
            const BlockHeader &header = header_of(block);
            const RowLayout &layout = tables[header.table].layout;
            const uint32_t entry = 1 + source.slot * bound + number;
            for (uint32_t at = 0; at < header.count; ++at) {
                const uint32_t row = numbers_of(block)[at];
                if (tables[header.table].index->get(row) != entry) continue;
                put(header.table, row, MOVED, header.epoch, block + layout.row(at),
                    block + layout.state(at));
                ++moved;
            }
        }
        cleaned_ = until;
    } catch (const Failure &failure) {
        failed_ = failure.message;
        throw;
    }
    if (cleaned_ == source.blocks || !source.live) {
        source.dead = true;
        source.reads = tickets_;
        cleaning_ = nullptr;
        release();
    }
    return true;
}

}  // namespace tables
