// The thread that moves the newest rows out of segments that have few, so that their files can go.

#include "../threads.hpp"
#include "store.hpp"

namespace tables {

uint64_t Store::log_blocks() const {
    uint64_t blocks = 0;
    for (const auto &[number, segment] : segments)
        if (!segment->dead && !segment->kept) blocks += segment->blocks;
    return blocks;
}

double Store::live_blocks() const {
    uint64_t units = 0;
    for (const auto &[number, segment] : segments)
        if (!segment->dead && !segment->kept) units += segment->live_units;
    return static_cast<double>(units) * 0x1p-20;
}

bool Store::crowded() const {
    const auto blocks = static_cast<double>(log_blocks());
    return blocks >= 8.0 * bound && blocks > CAPACITY * live_blocks();
}

// The segment with the smallest live share, among written ones below a number that no kept commit
// needs; null where none would give room.
Segment *Store::choose(uint64_t below) const {
    Segment *found = nullptr;
    double least = 0.9;
    for (const auto &[number, segment] : segments) {
        if (number >= below || segment->dead || segment->kept || segment->damaged ||
            !segment->blocks || !is_written(*segment))
            continue;
        const double share = static_cast<double>(segment->live_units) * 0x1p-20 / segment->blocks;
        if (share < least) least = share, found = segment.get();
    }
    return found;
}

void Store::clean_log() {
    take_exception_memory();
    std::unique_lock<std::mutex> own(cleaner_, std::defer_lock);
    for (;;) {
        {
            Hold hold(lock);
            dirt_.wait(hold, [&] {
                return ending_ || (failed_.empty() && full_.empty() && work_to_clean());
            });
            if (ending_) return;
        }
        own.lock();
        Hold hold(lock);
        Segment *source = work_to_clean() ? choose(UINT64_MAX) : nullptr;
        if (source && failed_.empty() && full_.empty()) {
            try {
                guard([&] { clean_segment(hold, *source); });
            } catch (...) {  // the next call says it
            }
        }
        overfull_ = overfull_ && work_to_clean();
        space_.notify_all();
        hold.unlock();
        own.unlock();
    }
}

void Store::clean() {
    std::lock_guard<std::mutex> own(cleaner_);
    Hold hold(lock);
    // Segments made from here on hold moved rows: their blocks may be short without a gain.
    const uint64_t below = next;
    const uint64_t full = current_ ? current_->first : head_;
    force_ = std::max(force_, full);
    work_.notify_one();
    space_.wait(hold, [&] { return low_ >= full || !failed_.empty(); });
    check();
    for (Segment *source; full_.empty() && (source = choose(below));)
        guard([&] { clean_segment(hold, *source); });
    space_.notify_all();
    if (!full_.empty()) throw Failure{full_};
}

void Store::clean_segment(Hold &hold, Segment &source) {
    if (committed_ > HISTORY) history_ = std::max(history_, committed_ - HISTORY);
    const uint32_t step = std::max<uint32_t>(1, (1 << 20) / block_bytes);
    const Identity identity = identity_of(source);
    const uint64_t begin = moved_blocks_;
    cleaning_ = &source;
    Memory data = pages(size_t{step} * block_bytes);
    for (uint32_t first = 0; first < source.blocks && source.live && !ending_; first += step) {
        const uint32_t some = std::min(step, source.blocks - first);
        const uint64_t offset = PAGE + uint64_t{first} * block_bytes;
        hold.unlock();
        size_t got = 0;
        try {
            got = source.file.read(data.get(), size_t{some} * block_bytes, offset);
        } catch (const Failure &) {
        } catch (...) {
            hold.lock();
            throw;
        }
        uint32_t whole = 0;
        while (whole < some && got >= size_t{whole + 1} * block_bytes &&
               !block_fault(data.get() + size_t{whole} * block_bytes, block_bytes, identity,
                            first + whole))
            ++whole;
        hold.lock();
        if (whole < some) {  // who reads its rows gets the error; all others can be committed
            source.damaged = true;
            cleaning_ = nullptr;
            return;
        }
        for (uint32_t k = 0; k < some; ++k) {
            const uint8_t *block = data.get() + size_t{k} * block_bytes;
            const BlockHeader &header = header_of(block);
            const uint32_t *rows = numbers_of(block), count = header.count;
            const RowLayout &layout = tables[header.table].layout;
            const Index &index = *tables[header.table].index;
            const uint32_t entry = 1 + source.slot * bound + first + k;
            for (uint32_t at = 0; at < count; ++at) index.prefetch(rows[at]);
            for (uint32_t at = 0; at < count; ++at) {
                wait_for_room(hold);
                if (source.kept || !full_.empty()) {  // by a commit, or an append, meanwhile
                    cleaning_ = nullptr;
                    return;
                }
                if (index.get(rows[at]) != entry) continue;
                // Rows keep their epoch; those of long ago share one, and so share blocks. Rows up
                // to a kept commit stay in its segments, and so apart from later ones.
                try {
                    put(header.table, rows[at], MOVED, std::max(header.epoch, history_),
                        block + layout.row(at), block + layout.state(at));
                } catch (const Failure &failure) {
                    if (!failure.full) throw;
                    cleaning_ = nullptr;
                    return;
                }
                ++moved;
            }
            hold.unlock();
            hold.lock();
        }
    }
    cleaning_ = nullptr;
    if (source.live) {  // the store ends, or the index has rows here that the blocks lack
        source.damaged = true;
        return;
    }
    // Short blocks of many epochs do not give room by moving: they become one epoch, or wait.
    if (10 * (moved_blocks_ - begin) >= 9 * uint64_t{source.blocks}) {
        if (history_ < committed_) history_ = committed_; else rest_ = head_ + bound;
    }
    source.dead = true;
    source.reads = tickets_;
    release();  // it may be gone from here on
}

}  // namespace tables
