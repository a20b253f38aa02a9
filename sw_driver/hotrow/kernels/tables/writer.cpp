// The thread that writes closed blocks, commits, and the files of segments.

#include "../threads.hpp"
#include "store.hpp"

namespace tables {

// The first closed blocks that lie one after the other in memory and in a segment, of 64 KiB or
// more unless someone waits for them.
bool Store::find_run(uint64_t &first, uint64_t &end) const {
    const uint64_t most = std::max<uint64_t>(1, (1 << 20) / block_bytes);
    const uint64_t enough = std::max<uint64_t>(1, (1 << 16) / block_bytes);
    const bool urgent = waiting_ || low_ < force_ || head_ - low_ >= places_ / 4;
    for (first = low_; first < head_; first = std::max(end, first + 1)) {
        end = first;
        const Segment *segment = meta_[first % places_].segment;
        while (end < head_ && end - first < most && meta_[end % places_].state == CLOSED &&
               meta_[end % places_].segment == segment && (end == first || end % places_))
            ++end;
        if (end - first >= (urgent ? 1 : enough)) return true;
    }
    return false;
}

void Store::write_blocks() {
    take_exception_memory();
    Hold hold(lock);
    for (;;) {
        uint64_t first = 0, end = 0;
        work_.wait(hold, [&] {
            return ending_ || (failed_.empty() && find_run(first, end));
        });
        if (ending_) return;
        try {
            guard([&] { write_run(hold, first, end); });
        } catch (...) {  // the next call says it
        }
        space_.notify_all();
    }
}

void Store::write_run(Hold &hold, uint64_t first, uint64_t end) {
    Segment &segment = *meta_[first % places_].segment;
    const uint64_t offset = PAGE + uint64_t{meta_[first % places_].block} * block_bytes;
    for (uint64_t at = first; at < end; ++at) meta_[at % places_].state = WRITING;
    hold.unlock();
    try {
        std::vector<uint8_t> &summary = segment.summary;  // of this thread alone
        for (uint64_t at = first; at < end; ++at) {
            uint8_t *block = buffer(at);
            header_of(block).crc = block_crc(block, block_bytes, id);
            add_to_summary(summary, block);
        }
        segment.file.write(buffer(first), (end - first) * block_bytes, offset);
    } catch (...) {
        hold.lock();
        throw;
    }
    hold.lock();
    written += (end - first) * block_bytes;
    segment.unsynced = true;  // only now: a commit meanwhile has not forced these blocks
    segment.written += static_cast<uint32_t>(end - first);
    for (uint64_t at = first; at < end; ++at) meta_[at % places_].state = WRITTEN;
    // The summary comes before the segment counts as written, and so may be cleaned and removed.
    if (segment.written == bound) finish_segment(hold, segment);
    while (low_ < head_ && meta_[low_ % places_].state == WRITTEN) ++low_;
    dirt_.notify_all();
}

// Write the summary of a full segment. Without one, the segment's blocks are read where it is used.
void Store::finish_segment(Hold &hold, Segment &segment) {
    hold.unlock();
    uint64_t bytes = 0;
    try {
        const std::vector<uint8_t> &summary = segment.summary;
        const uint64_t room = (summary.size() + PAGE - 1) / PAGE * PAGE;
        Memory data = pages(room + PAGE);
        std::memset(data.get(), 0, room + PAGE);
        std::memcpy(data.get(), summary.data(), summary.size());
        auto &footer = *reinterpret_cast<Footer *>(data.get() + room);
        footer.magic = FOOTER_MAGIC, footer.bytes = summary.size();
        footer.offset = PAGE + uint64_t{bound} * block_bytes;
        footer.summary_crc = summary_crc(data.get(), room, identity_of(segment));
        footer.crc = page_crc(data.get() + room, PAGE, offsetof(Footer, crc));
        segment.file.write(data.get(), room + PAGE, footer.offset);
        bytes = room + PAGE;
    } catch (const Failure &) {
    } catch (const std::bad_alloc &) {
    }
    std::vector<uint8_t>().swap(segment.summary);
    hold.lock();
    written += bytes;
    segment.unsynced = true;
}

uint64_t Store::cut(bool keep) {
    Hold hold(lock);
    check();
    taken.clear();
    close_blocks(head_);
    const uint64_t end = head_;
    std::vector<Segment *> held;
    for (const auto &[number, segment] : segments) {
        if (segment->dead || !segment->blocks) continue;
        if (!segment->live && segment.get() != cleaning_ && is_written(*segment)) {
            segment->dead = true, segment->reads = tickets_;
            continue;
        }
        segment->named = true;
        segment->kept |= keep;
        held.push_back(segment.get());
        taken.insert(taken.end(), {number, segment->nonce, segment->blocks, segment->live});
    }
    taken.push_back(history_);
    ++epoch;
    force_ = end;
    work_.notify_one();
    space_.wait(hold, [&] { return low_ >= end || !failed_.empty(); });
    check();
    const std::vector<Segment *> all = held;
    held.erase(std::remove_if(held.begin(), held.end(), [](Segment *each) {
        return !std::exchange(each->unsynced, false);
    }), held.end());
    hold.unlock();
    guard([&] {
        try {
            for (Segment *segment : held) segment->file.sync();
            for (Segment *segment : all) segment->file.check_named();
        } catch (...) {
            hold.lock();
            throw;
        }
    });
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

void Store::named(uint64_t commit, const std::set<uint64_t> &last,
                  const std::set<uint64_t> &kept) {
    std::lock_guard<std::mutex> hold(lock);
    for (auto &[number, segment] : segments) {
        segment->named = last.count(number), segment->kept = kept.count(number);
        if (!writes && !segment->named && !segment->dead)
            segment->dead = true, segment->reads = tickets_;
    }
    committed_ = commit;
    release();
    dirt_.notify_all(), space_.notify_all();
}

std::vector<uint64_t> Store::numbers() {
    std::lock_guard<std::mutex> hold(lock);
    std::vector<uint64_t> found;
    for (const auto &[number, segment] : segments) found.push_back(number);
    return found;
}

}  // namespace tables
