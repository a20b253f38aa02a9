// One command ring with its completion ring, served by a thread of its own.
//
// Two locks order the host and the thread. `state` guards the registers of the whole card. `serving`
// is held while a command is fetched, executed and completed: who holds it may change regions,
// tables and the memory map. It is taken before `state`.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "validator.hpp"

namespace hotrow::engine {

// What a command returns, but for its `sequence`.
hotrow_completion completion_of(const Command &, const Outcome &, uint64_t start, uint64_t end);

// What the queues of a card share.
struct Shared {
    const Geometry &geometry;
    Memory &memory;
    Regions &regions;
    Tables &tables;
    std::mutex state;
    std::atomic<int> pausing{0};     // hosts that wait for `serving` of a queue
    std::vector<uint32_t> events;    // by number; guarded by `state`
    std::function<void()> signalled; // called with `state` when an event changes
    std::function<uint64_t()> cycle;
};

class CommandQueue {
public:
    using Execute = std::function<Outcome(const Command &, const Addresses &)>;

    CommandQueue(Queue queue, Shared &shared, const Validator &validator, Execute execute);
    ~CommandQueue() { stop(); }

    // End the thread after the command under way.
    void stop();

    // The registers; the caller holds `state`, and `serving` where a bit 0 of CONTROL changes.
    uint64_t commands = 0, completions = 0;  // packed addresses of the rings
    uint32_t entries_log2 = 0, tail = 0, head = 0, completed = 0;
    uint64_t landed = 0;  // completions since the card was opened
    bool enabled = false, halt_on_error = false;
    void control(uint32_t value);
    bool ring(uint32_t tail);  // false if the doorbell is refused
    uint32_t state() const;
    void restart();

    // Run `work` on the caller's thread in place of a command; false if the queue is not idle, or
    // memory runs out, at which it stalls.
    bool run_idle(const std::function<void()> &work);

    // Wait until COMPLETED differs from a value, or more will not come without the host.
    void wait(uint32_t seen, double seconds);
    void wake() { work_.notify_one(); }

    std::mutex serving;

private:
    struct Running {
        Command command;
        uint64_t start;
    };

    void serve();
    bool step(std::unique_lock<std::mutex> &state);
    std::optional<Outcome> execute(const Command &, std::unique_lock<std::mutex> &state);
    void fetch();
    void stall();
    void complete(hotrow_completion record);
    Status entry(uint64_t ring, uint32_t number, bool write, uint64_t &address) const;
    bool active() const { return enabled && fault_ == Status::OK; }
    bool can_fetch() const { return !offered_ && head != tail && active(); }
    bool can_step() const;
    bool reached(const Command &) const;

    const Queue queue_;
    Shared &shared_;
    const Validator &validator_;
    const Execute execute_;
    bool halted_ = false, waiting_ = false, abort_ = false, closing_ = false;
    Status fault_ = Status::OK, halt_status_ = Status::OK;
    std::optional<Command> offered_;
    std::optional<Running> running_;
    std::condition_variable work_, progress_;
    std::thread thread_;
};

}  // namespace hotrow::engine
