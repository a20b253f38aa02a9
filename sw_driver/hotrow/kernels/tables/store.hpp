// Tables' rows on disk: a base, a log of blocks that is only appended, and the index over both.
//
// Calls come from any thread. One thread writes closed blocks, another one moves the newest rows out
// of segments that have few; both hold the lock only to look at the index and to copy rows.

#pragma once

#include "base.hpp"
#include "index.hpp"
#include "reads.hpp"

#include <functional>
#include <map>
#include <set>

namespace tables {

struct Table {
    uint64_t rows;
    RowLayout layout;
    Base base;
    std::unique_ptr<Index> index;
};

// Tables whose rows take the same bytes in memory, by flat rows: row r of the t-th one is
// first[t] + r, ascending.
struct View {
    std::vector<uint16_t> table;
    std::vector<int64_t> first;
};

struct Segment {
    File file;
    uint64_t number, nonce, first = 0;  // place of block 0 in the order of this opening; 0: before
    uint32_t slot, blocks = 0, written = 0;
    uint64_t live = 0, live_units = 0;  // newest rows, and what they fill, in 2^-20 blocks
    uint64_t expected = 0, newest = 0;  // live rows by the manifest; last epoch of a block
    bool unsynced = false, dead = false, damaged = false;
    bool named = false, kept = false;   // by the last commit or one under way; by a kept one
    uint64_t reads = 0;                 // reads begun before it died have smaller numbers
    std::vector<uint8_t> summary;       // of the blocks that were written
};

enum State : uint8_t { EMPTY, OPEN, CLOSED, WRITING, WRITTEN };

struct Buffer {  // of a block in memory
    Segment *segment;
    uint32_t block;
    State state = EMPTY;
};

struct Place {  // of an open block of a table
    uint8_t kind;
    uint64_t epoch, order;
};

class Store;

struct Ticket {
    struct Part : Request {  // some rows of `order` or `based`
        Ticket *ticket;
        uint32_t first, count;
        void end(const char *wrong) noexcept;
    };
    struct BlockPart final : Part {
        Identity identity;
        uint32_t block;
        void complete(const uint8_t *data, size_t got, const char *wrong) noexcept override;
    };
    struct BasePart final : Part {
        const BaseFile *base;
        bool state;
        void complete(const uint8_t *data, size_t got, const char *wrong) noexcept override;
    };
    Store *store;
    uint64_t number, count;
    uint64_t stride = 0;  // bytes from row to row of `data`
    std::vector<uint16_t> table;
    std::vector<uint32_t> row, entry;
    std::vector<uint32_t> order, based;     // positions to read, by block, and by row of a base
    std::vector<uint8_t> have, have_state;  // whether `data` has a row, and the state of one of a base
    Memory data;
    std::deque<BlockPart> parts;
    std::deque<BasePart> base_parts;
    std::mutex lock;
    std::condition_variable done;
    size_t pending = 0;
    std::string wrong;

    void keep(uint64_t at, const uint8_t *block, uint32_t place);
};

class Store {
  public:
    Store(std::string folder, const uint8_t *id, uint32_t block_bytes, uint32_t blocks,
          uint64_t tail, uint64_t nonce, uint64_t next, uint64_t epoch, uint64_t history, bool ring,
          bool writes);
    ~Store();

    void add(Table table);
    // Take the first blocks of a segment of a commit into the index, those after the ones it has.
    void load(uint64_t number, uint64_t nonce, uint32_t blocks, uint64_t live);
    // Begin to serve, once all segments of a commit are loaded.
    void start();
    uint64_t add(View view);
    // Any thread may begin, finish, cancel and append, in any order.
    Ticket *begin(uint64_t view, const int64_t *flat, uint64_t count);
    // Write a ticket's rows, as they are now, `stride` bytes apart.
    void finish(Ticket *ticket, uint8_t *out, int64_t stride, uint8_t *side);
    void cancel(Ticket *ticket);
    void append(uint64_t view, const int64_t *flat, uint64_t count, const uint8_t *from,
                int64_t stride, const uint8_t *side);
    // Close the epoch, write and force all blocks, for a commit that is kept or not. The numbers in `taken` are counted: number,
    // nonce, blocks and live rows of each segment, and the first epoch that is kept apart.
    uint64_t cut(bool keep);
    // Segments of the open commit, of which the number is, and of the last one; those of commits that
    // are kept.
    void named(uint64_t commit, const std::set<uint64_t> &last, const std::set<uint64_t> &kept);
    std::vector<uint64_t> numbers();
    // Rows of a table whose newest copy is of an epoch after one, of a store that is only read.
    std::vector<uint32_t> changed(uint16_t table, uint64_t since);
    // Read all blocks, and throw at the first that is damaged.
    void verify();
    // Move the newest rows out of all segments that have few.
    void clean();
    // Hold files for so many rows that only a full disk takes, and as many as before where 0.
    void reserve(uint64_t rows);
    // Throw where the disk is full, and what is appended goes to files held for that.
    void check_room();

    std::string folder;
    uint8_t id[16];
    uint32_t block_bytes, bound;
    uint64_t nonce, next, epoch;
    bool ring, writes;
    std::vector<Table> tables;
    std::vector<uint64_t> taken;
    std::vector<uint32_t> taken_rows;
    std::atomic<uint64_t> requests{0}, fetched{0}, tail_hits{0}, written{0}, trained{0}, moved{0};
    std::map<uint64_t, std::unique_ptr<Segment>> segments;
    std::mutex lock;
    uint64_t index_bytes() const;
    uint64_t read_nanoseconds() const { return reads_ ? reads_->nanoseconds.load() : 0; }
    uint64_t log_blocks() const;  // without what commits that are kept have
    double live_blocks() const;

  private:
    using Hold = std::unique_lock<std::mutex>;
    static constexpr uint64_t GROUP = 64;  // rows for which the lock is taken once
    static constexpr double CAPACITY = 2.25;
    static constexpr uint64_t HISTORY = 16;  // epochs that stay apart when their rows move

    const View &view(uint64_t number) {
        std::lock_guard<std::mutex> hold(lock);
        return views_[number];
    }
    void place(uint64_t view, const int64_t *flat, uint64_t count, uint16_t *table, uint32_t *row);
    Ticket *begin(std::vector<uint16_t> table, std::vector<uint32_t> row);
    void look_up(Ticket &ticket, uint64_t first, uint64_t end);
    std::vector<Request *> plan(Ticket &ticket);
    void plan_base(Ticket &ticket, bool state, std::vector<Request *> &wanted);
    void finish(Ticket *ticket, uint8_t *out, int64_t stride, uint8_t *side, const int64_t *at);

    std::string path_of(uint64_t number) const;
    uint8_t *buffer(uint64_t order) { return tail_.get() + order % places_ * block_bytes; }
    Segment *segment_of(uint32_t entry) const { return slots_[(entry - 1) / bound]; }
    uint64_t order_of(uint32_t entry) const {
        const Segment *segment = segment_of(entry);
        return segment->first ? segment->first + (entry - 1) % bound : 0;
    }
    bool in_memory(uint64_t order) const { return order && order + places_ > head_; }
    // Whether it takes no more blocks, and all are in its file.
    bool is_written(const Segment &segment) const {
        return &segment != current_ && (!segment.first || segment.first + segment.blocks <= low_);
    }
    Identity identity_of(const Segment &segment) const;
    uint32_t take_slot();
    void new_segment(uint8_t kind);
    File new_file(const std::string &path) const;
    File next_file(const std::string &path, uint8_t kind);
    void wait_for_room(Hold &hold);
    void put(uint16_t table, uint32_t row, uint8_t kind, uint64_t epoch, const uint8_t *data,
             const uint8_t *side);
    void close_block(uint16_t table, size_t at);
    void close_blocks(uint64_t until);  // those before a place in the order
    void close_oldest();
    void settle(uint32_t entry, uint16_t table, int sign);
    void release();
    void check() const { if (!failed_.empty()) throw Failure{failed_}; }
    // Run a part of the work that must not end half done: a failure is final.
    template <class Work> void guard(const Work &work);
    void broken(const std::string &message) noexcept;

    bool find_run(uint64_t &first, uint64_t &end) const;
    void write_blocks();
    void write_run(Hold &hold, uint64_t first, uint64_t end);
    void finish_segment(Hold &hold, Segment &segment);

    bool crowded() const;
    bool work_to_clean() const { return head_ >= rest_ && crowded() && choose(UINT64_MAX); }
    void clean_log();
    Segment *choose(uint64_t below) const;
    void clean_segment(Hold &hold, Segment &source);

    // Block, table, epoch, and rows.
    using Visit = std::function<void(uint32_t, uint16_t, uint64_t, const uint32_t *, uint32_t)>;
    void each_block(const Segment &segment, uint32_t first, uint32_t until,
                    const Visit &visit) const;
    std::vector<uint8_t> read_summary(const Segment &segment) const;
    bool visit_summary(const Segment &segment, uint32_t first, uint32_t until,
                       const Visit &visit) const;
    void visit_blocks(const Segment &segment, uint32_t first, uint32_t until,
                      const Visit &visit) const;
    bool fits(uint16_t table, uint32_t count, const uint8_t *rows) const;
    void take(Segment &segment, uint32_t block, uint16_t table, const uint32_t *rows,
              uint32_t count);

    std::deque<View> views_;
    std::vector<Segment *> slots_;
    std::vector<Buffer> meta_;
    std::vector<std::vector<Place>> open_;  // of each table
    size_t opens_ = 0, closed_ = 0;
    Memory tail_;
    uint64_t places_, head_ = 1, low_ = 1;  // next block, first that is not written
    Segment *current_ = nullptr, *cleaning_ = nullptr;
    std::set<uint64_t> reading_;
    uint64_t tickets_ = 0;
    std::string failed_, full_, spare_;  // what the next call says; the last without memory
    std::vector<File> spares_;             // held for a full disk
    uint64_t held_ = 1, made_ = 0;         // spares to hold; those made so far
    std::unique_ptr<Reads> reads_;
    uint32_t most_ = 0;  // bytes of a read

    std::condition_variable work_, space_, dirt_;  // of the writer, of who waits for it, the cleaner
    bool ending_ = false, overfull_ = false;
    uint64_t waiting_ = 0, force_ = 0;     // threads without room; order below which all is written
    std::mutex cleaner_;                   // taken before the lock
    uint64_t rest_ = 0;                    // place in the order until which nothing is cleaned
    uint64_t moved_blocks_ = 0;
    uint64_t committed_ = 0, history_;     // open commit; epochs up to it may become one
    std::vector<std::thread> threads_;
};

template <class Work> void Store::guard(const Work &work) {
    try {
        work();
    } catch (const Failure &failure) {
        broken(failure.message);
        throw;
    } catch (...) {
        broken(spare_);
        throw;
    }
}

}  // namespace tables
