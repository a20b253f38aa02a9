// The index of a commit, from the summaries of its segments, or from their blocks without one.

#include "store.hpp"

namespace tables {

void Store::start() {
    for (const auto &[number, segment] : segments)
        if (!segment->dead && segment->live != segment->expected)
            fail(segment->file.path, "holds " + std::to_string(segment->live) + " newest rows, and "
                 "the manifest says " + std::to_string(segment->expected) + ": copy the folder "
                 "from where it is whole, or open an earlier commit");
    if (reads_) return;
    most_ = block_bytes;
    for (const Table &table : tables) most_ = std::max(most_, table.base.span());
    reads_ = std::make_unique<Reads>(most_, ring);
    if (!writes) return;
    threads_.emplace_back([this] { write_blocks(); });
    threads_.emplace_back([this] { clean_log(); });
}

void Store::load(uint64_t number, uint64_t own, uint32_t until, uint64_t live) {
    std::lock_guard<std::mutex> hold(lock);
    const auto known = segments.find(number);
    if (known == segments.end()) {
        auto made = std::make_unique<Segment>();
        made->file = File::open(path_of(number), writes ? O_RDWR : O_RDONLY);
        made->number = number, made->nonce = own, made->named = true;
        Memory data = pages(PAGE);
        const auto &header = *reinterpret_cast<const SegmentHeader *>(data.get());
        if (made->file.read(data.get(), PAGE, 0) < PAGE || header.magic != SEGMENT_MAGIC ||
            header.crc != page_crc(data.get(), PAGE, offsetof(SegmentHeader, crc)) ||
            std::memcmp(header.store, id, 16) || header.number != number ||
            header.nonce != own || header.block_bytes != block_bytes || header.blocks != bound ||
            until > bound)
            fail(made->file.path, "has a damaged header at offset 0, or belongs to another store: "
                 "copy it from where it is whole, or open an earlier commit");
        made->slot = take_slot();
        slots_[made->slot] = made.get();
        segments[number] = std::move(made);
    }
    Segment &segment = *segments[number];
    if (segment.nonce != own || segment.dead || until < segment.blocks)
        fail(segment.file.path, "is another one than before: open the tables again");
    if (segment.file.size() < PAGE + uint64_t{until} * block_bytes)
        fail(segment.file.path, "ends before its last block, at offset " + std::to_string(
             segment.file.size()) + ": copy it from where it is whole, or open an earlier commit");
    segment.expected = live;
    each_block(segment, segment.blocks, until,
               [&](uint32_t block, uint16_t table, uint64_t own, const uint32_t *rows,
                   uint32_t count) {
        segment.newest = std::max(segment.newest, own);
        take(segment, block, table, rows, count);
    });
    segment.blocks = until;
}

// Blocks in their order, from the summary if it has them all.
void Store::each_block(const Segment &segment, uint32_t first, uint32_t until,
                       const Visit &visit) const {
    if (first < until && !visit_summary(segment, first, until, visit))
        visit_blocks(segment, first, until, visit);
}

// The bytes of a summary, none where it is missing or damaged.
std::vector<uint8_t> Store::read_summary(const Segment &segment) const {
    const uint64_t place = PAGE + uint64_t{bound} * block_bytes, size = segment.file.size();
    if (size < place + PAGE) return {};
    const uint64_t room = size - place;
    Memory page = pages(PAGE);
    const auto &footer = *reinterpret_cast<const Footer *>(page.get());
    if (room % PAGE || segment.file.read(page.get(), PAGE, size - PAGE) < PAGE ||
        footer.magic != FOOTER_MAGIC || footer.offset != place || footer.bytes > room - PAGE ||
        footer.crc != page_crc(page.get(), PAGE, offsetof(Footer, crc)))
        return {};
    Memory data = pages(room);
    if (segment.file.read(data.get(), room, place) < room ||
        footer.summary_crc != summary_crc(data.get(), room - PAGE, identity_of(segment)))
        return {};
    return {data.get(), data.get() + footer.bytes};
}

bool Store::visit_summary(const Segment &segment, uint32_t first, uint32_t until,
                          const Visit &visit) const {
    const std::vector<uint8_t> summary = read_summary(segment);
    std::vector<const uint8_t *> place(bound);
    const uint8_t *at = summary.data(), *end = at + summary.size();
    while (end - at >= static_cast<int64_t>(sizeof(Listed))) {
        Listed listed;
        std::memcpy(&listed, at, sizeof listed);
        if (listed.block >= bound || end - at < listed.bytes() || !fits(listed.table, listed.count,
                                                                      at + sizeof listed))
            return false;
        place[listed.block] = at;
        at += listed.bytes();
    }
    if (std::count(place.begin() + first, place.begin() + until, nullptr)) return false;
    std::vector<uint32_t> rows;
    for (uint32_t block = first; block < until; ++block) {
        Listed listed;
        std::memcpy(&listed, place[block], sizeof listed);
        rows.resize(listed.count);
        std::memcpy(rows.data(), place[block] + sizeof listed, 4 * rows.size());
        visit(block, listed.table, listed.epoch, rows.data(), listed.count);
    }
    return true;
}

void Store::visit_blocks(const Segment &segment, uint32_t first, uint32_t until,
                         const Visit &visit) const {
    const Identity identity = identity_of(segment);
    const uint32_t step = std::max<uint32_t>(1, (1 << 20) / block_bytes);
    Memory data = pages(size_t{step} * block_bytes);
    for (; first < until; first += step) {
        const uint32_t some = std::min(step, until - first);
        const uint64_t offset = PAGE + uint64_t{first} * block_bytes;
        const size_t got = segment.file.read(data.get(), size_t{some} * block_bytes, offset);
        for (uint32_t k = 0; k < some; ++k) {
            const uint8_t *block = data.get() + size_t{k} * block_bytes;
            const char *wrong = got < size_t{k + 1} * block_bytes ? "ends before its last block"
                : block_fault(block, block_bytes, identity, first + k);
            const BlockHeader &about = header_of(block);
            if (!wrong && !fits(about.table, about.count, block + BLOCK_HEADER))
                wrong = "has rows of another table";
            if (wrong)
                fail(segment.file.path, std::string(wrong) + " at offset " + std::to_string(
                     offset + uint64_t{k} * block_bytes) + ": copy it from where it is whole, or "
                     "open an earlier commit");
            visit(first + k, about.table, about.epoch, numbers_of(block), about.count);
        }
    }
}

std::vector<uint32_t> Store::changed(uint16_t table, uint64_t since) {
    std::lock_guard<std::mutex> hold(lock);
    std::vector<uint32_t> found;
    for (const auto &[number, segment] : segments) {
        if (segment->dead || segment->newest <= since) continue;
        const uint32_t first = 1 + segment->slot * bound;
        each_block(*segment, 0, segment->blocks,
                   [&](uint32_t block, uint16_t of, uint64_t own, const uint32_t *rows,
                       uint32_t count) {
            if (of != table || own <= since) return;
            for (uint32_t at = 0; at < count; ++at)
                if (tables[of].index->get(rows[at]) == first + block) found.push_back(rows[at]);
        });
    }
    std::sort(found.begin(), found.end());
    return found;
}

void Store::verify() {
    std::lock_guard<std::mutex> hold(lock);
    for (const auto &[number, segment] : segments) {
        if (segment->dead) continue;
        visit_blocks(*segment, 0, segment->blocks,
                     [](uint32_t, uint16_t, uint64_t, const uint32_t *, uint32_t) {});
        const uint64_t end = PAGE + uint64_t{bound} * block_bytes;
        if (segment->blocks == bound && segment->file.size() > end &&
            read_summary(*segment).empty())
            fail(segment->file.path, "has a damaged summary from offset " + std::to_string(end) +
                 " on: its blocks are whole; copy it from where it is whole");
    }
}

// Whether a block may have so many of these rows, which lie at any address.
bool Store::fits(uint16_t table, uint32_t count, const uint8_t *rows) const {
    if (table >= tables.size() || count > tables[table].layout.per_block) return false;
    for (uint32_t at = 0; at < count; ++at) {
        uint32_t row;
        std::memcpy(&row, rows + 4 * at, 4);
        if (row >= tables[table].rows) return false;
    }
    return true;
}

void Store::take(Segment &segment, uint32_t block, uint16_t table, const uint32_t *rows,
                 uint32_t count) {
    Index &index = *tables[table].index;
    const uint32_t entry = 1 + segment.slot * bound + block;
    for (uint32_t at = 0; at < count; ++at) index.prefetch(rows[at]);
    for (uint32_t at = 0; at < count; ++at) {
        const uint32_t before = index.get(rows[at]);
        index.set(rows[at], entry);
        if (before) settle(before, table, -1);
        settle(entry, table, 1);
    }
}

}  // namespace tables
