// A card in software: registers, two queues with their engines, and the host's memory.

#pragma once

#include <array>
#include <chrono>

#include "command_queue.hpp"
#include "lookup_engine.hpp"
#include "move_engine.hpp"

namespace hotrow::engine {

class Card {
public:
    // `threads` share the work of a command of each queue.
    Card(const Geometry &, int threads);
    ~Card() {
        lookup_queue_.stop();
        move_queue_.stop();
    }

    uint32_t read_register(uint32_t offset);
    void write_register(uint32_t offset, uint32_t value);
    void map(uint64_t address, uint8_t *data, uint64_t size, bool writable);
    void unmap(uint64_t address);
    // Retire batches, and execute MARKs and a PLAN, whose lists are pointers of the host, on the
    // caller's thread; returns how many have completions, 0 if other commands are under way.
    int64_t plan(uint32_t retired, const Command *, int64_t count, hotrow_completion *, Places &);
    void wait(uint32_t queue, uint32_t seen, double seconds) { queue_of(queue).wait(seen, seconds); }

private:
    // Keeps both queues between two commands.
    class Pause {
    public:
        explicit Pause(Card &card) : card_(card) {
            ++card_.shared_.pausing;
            lookup_ = std::unique_lock<std::mutex>(card_.lookup_queue_.serving);
            move_ = std::unique_lock<std::mutex>(card_.move_queue_.serving);
            --card_.shared_.pausing;
        }

    private:
        Card &card_;
        std::unique_lock<std::mutex> lookup_, move_;
    };

    bool known(uint32_t offset) const;
    uint32_t read_queue(const CommandQueue &, uint32_t offset) const;
    void write_queue(uint32_t queue, uint32_t offset, uint32_t value);
    bool changes_maps(uint32_t offset, uint32_t value);
    void commit_region(bool valid, bool writable);
    void commit_table(bool valid);
    uint32_t &stored(uint32_t offset) { return stored_[offset / 4]; }
    uint64_t wide(uint32_t low) const {
        return uint64_t{stored_[low / 4 + 1]} << 32 | stored_[low / 4];
    }
    CommandQueue &queue_of(uint32_t queue) { return queue ? move_queue_ : lookup_queue_; }

    const Geometry geometry_;
    const std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
    Memory memory_;
    Regions regions_;
    Tables tables_;
    Workers lookup_workers_, move_workers_;
    LookupEngine lookups_;
    MoveEngine moves_;
    Validator validator_;
    std::array<uint32_t, 128> stored_{};
    uint32_t fault_ = 0, cycle_high_ = 0;
    std::array<uint64_t, 2> interrupts_seen_{};
    Shared shared_;
    CommandQueue lookup_queue_, move_queue_;
};

}  // namespace hotrow::engine
