#include "command_queue.hpp"

#include <chrono>
#include <cstring>

#include "../threads.hpp"
#include "workers.hpp"

namespace hotrow::engine {

namespace {

constexpr uint32_t HALF_RANGE = uint32_t{1} << 31;

static_assert(sizeof(hotrow_completion) == sizeof(Command));

}  // namespace

CommandQueue::CommandQueue(Queue queue, Shared &shared, const Validator &validator, Execute execute)
    : queue_(queue), shared_(shared), validator_(validator), execute_(std::move(execute)),
      thread_([this] { serve(); }) {}

void CommandQueue::stop() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard<std::mutex> guard(shared_.state);
        closing_ = true;
        work_.notify_one();
    }
    thread_.join();
}

void CommandQueue::restart() {
    tail = head = completed = 0;
    halted_ = waiting_ = abort_ = false;
    fault_ = halt_status_ = Status::OK;
    offered_.reset();
    running_.reset();
}

void CommandQueue::control(uint32_t value) {
    if ((value & HOTROW_REG_LOOKUP_CONTROL_ENABLE_MASK) && !enabled) restart();
    enabled = value & HOTROW_REG_LOOKUP_CONTROL_ENABLE_MASK;
    halt_on_error = value & HOTROW_REG_LOOKUP_CONTROL_HALT_ON_ERROR_MASK;
    abort_ = waiting_ && (value & HOTROW_REG_LOOKUP_CONTROL_ABORT_MASK);
    if (value & HOTROW_REG_LOOKUP_CONTROL_RESUME_MASK) {
        halted_ = false;
        halt_status_ = Status::OK;
    }
    wake();
}

bool CommandQueue::ring(uint32_t value) {
    const bool sized = entries_log2 >= 1 && entries_log2 <= 16;
    if (!enabled || !sized || tail - completed > value - completed ||
        value - completed > uint32_t{1} << entries_log2)
        return false;
    tail = value;
    wake();
    return true;
}

uint32_t CommandQueue::state() const {
    const bool faulted = fault_ != Status::OK;
    return running_.has_value() * HOTROW_REG_LOOKUP_STATE_BUSY_MASK |
           halted_ * HOTROW_REG_LOOKUP_STATE_HALTED_MASK |
           waiting_ * HOTROW_REG_LOOKUP_STATE_WAITING_MASK |
           faulted * HOTROW_REG_LOOKUP_STATE_FAULTED_MASK |
           static_cast<uint32_t>(faulted ? fault_ : halt_status_)
               << HOTROW_REG_LOOKUP_STATE_STATUS_SHIFT;
}

void CommandQueue::wait(uint32_t seen, double seconds) {
    std::unique_lock<std::mutex> state(shared_.state);
    progress_.wait_for(state, std::chrono::duration<double>(seconds), [&] {
        const bool idle = !running_ && !offered_ && head == tail;
        const bool waits = waiting_ && !can_step();  // not for an event that has come
        return completed != seen || halted_ || waits || !active() || idle;
    });
}

bool CommandQueue::reached(const Command &command) const {
    return shared_.events[command.event] - command.value < HALF_RANGE;
}

bool CommandQueue::can_step() const {
    if (running_) return !waiting_ || abort_ || reached(running_->command);
    return can_fetch() || (offered_ && !halted_ && active());
}

void CommandQueue::serve() {
    use_default_rounding();
    const bool ready = take_exception_memory();
    std::unique_lock<std::mutex> state(shared_.state);
    if (!ready) return stall();
    while (true) {
        work_.wait(state, [&] { return closing_ || can_step(); });
        if (closing_) return;
        state.unlock();
        while (shared_.pausing.load()) std::this_thread::yield();
        {
            const std::lock_guard<std::mutex> serve(serving);
            state.lock();
            while (can_step() && !closing_ && !shared_.pausing.load()) {
                try {
                    step(state);
                } catch (const std::exception &) {
                    stall();
                }
            }
        }
    }
}

bool CommandQueue::run_idle(const std::function<void()> &work) {
    while (shared_.pausing.load()) std::this_thread::yield();
    const std::lock_guard<std::mutex> serve(serving);
    {
        const std::lock_guard<std::mutex> state(shared_.state);
        if (!active() || halted_ || running_ || offered_ || head != tail) return false;
    }
    try {
        work();
        return true;
    } catch (const std::exception &) {
        const std::lock_guard<std::mutex> state(shared_.state);
        stall();
        return false;
    }
}

// Advance the current or the next command.
bool CommandQueue::step(std::unique_lock<std::mutex> &state) {
    fetch();
    if (!running_) {
        if (!offered_ || halted_ || !active()) return false;
        running_ = {*offered_, shared_.cycle()};
        offered_.reset();
        fetch();  // the hardware also fetches one command ahead
    }
    const Running running = *running_;
    const std::optional<Outcome> outcome = execute(running.command, state);
    if (!outcome) return false;
    running_.reset();
    waiting_ = abort_ = false;
    if (halt_on_error && outcome->status != Status::OK) {
        halted_ = true;
        halt_status_ = outcome->status;
    }
    complete(completion_of(running.command, *outcome, running.start, shared_.cycle()));
    progress_.notify_all();
    return true;
}

// The outcome of a command, nothing while it waits for an event. Releases `state` for long work.
std::optional<Outcome> CommandQueue::execute(const Command &command,
                                             std::unique_lock<std::mutex> &state) {
    Addresses addresses;
    Outcome outcome = validator_.validate(command, queue_, addresses);
    if (outcome.status != Status::OK) return outcome;
    switch (opcode_of(command)) {
        case Opcode::NOP: case Opcode::FENCE: return outcome;
        case Opcode::SIGNAL:
            shared_.events[command.event] = command.value;
            shared_.signalled();
            return outcome;
        case Opcode::WAIT:
            if (reached(command)) return outcome;
            waiting_ = true;
            progress_.notify_all();
            if (!abort_) return std::nullopt;
            outcome.status = Status::ABORTED;
            return outcome;
        default: break;
    }
    state.unlock();
    bool failed = false;
    try {
        outcome = execute_(command, addresses);
    } catch (const std::exception &) {
        failed = true;  // memory ran out
    }
    state.lock();
    if (failed) {
        stall();
        return std::nullopt;
    }
    return outcome;
}

void CommandQueue::stall() {
    fault_ = Status::STALLED;
    running_.reset();
    progress_.notify_all();
}

// Read the next command, if there is one and the buffer is empty.
void CommandQueue::fetch() {
    if (!can_fetch()) return;
    uint64_t address;
    fault_ = entry(commands, head, false, address);
    if (fault_ == Status::OK) {
        Command command;
        if (const uint8_t *here = shared_.memory.view(address, sizeof command)) {
            std::memcpy(&command, here, sizeof command);
        } else {
            std::vector<uint8_t> octets, faults;
            shared_.memory.read(address, sizeof command, octets, faults);
            for (const uint8_t fault : faults)
                if (fault && fault_ == Status::OK) fault_ = fault_status(fault);
            std::memcpy(&command, octets.data(), sizeof command);
        }
        if (fault_ == Status::OK) {
            ++head;
            offered_ = command;
        }
    }
    if (fault_ != Status::OK) progress_.notify_all();
}

hotrow_completion completion_of(const Command &command, const Outcome &outcome, uint64_t start,
                                uint64_t end) {
    hotrow_completion record{};
    record.tag = command.tag;
    record.opcode = command.opcode;
    record.status = static_cast<uint8_t>(outcome.status);
    record.start = start;
    record.end = end;
    record.error_index = outcome.error_index;
    record.error_address = outcome.error_address;
    record.lookups = outcome.lookups;
    record.hits = outcome.hits;
    record.misses = outcome.misses;
    record.unique = outcome.unique;
    record.popular = outcome.popular;
    record.entries = outcome.entries;
    record.refused = outcome.refused;
    record.bytes = outcome.bytes;
    record.evictions = outcome.evictions;
    record.bypasses = outcome.bypasses;
    record.wait_for = outcome.wait_for;
    return record;
}

void CommandQueue::complete(hotrow_completion record) {
    record.sequence = completed + 1;
    uint64_t address;
    Status status = entry(completions, completed, true, address);
    if (status == Status::OK)
        status = fault_status(shared_.memory.write(address, &record, sizeof record));
    if (status != Status::OK) {
        fault_ = status;
        return;
    }
    ++completed;
    ++landed;
}

// Status and byte address of an entry; the entries of both rings have one size.
Status CommandQueue::entry(uint64_t ring, uint32_t number, bool write, uint64_t &address) const {
    const uint32_t place = entries_log2 < 32 ? number & ((uint32_t{1} << entries_log2) - 1) : number;
    const uint64_t offset = (ring & OFFSET_MASK) + uint64_t{sizeof(Command)} * place;
    const Region *const region = shared_.regions.find(ring >> OFFSET_WIDTH);
    address = (region ? region->base : 0) + offset;
    if (!region || offset + sizeof(Command) > region->size) return Status::REGION;
    if (write && !region->writable) return Status::READ_ONLY;
    return address % HOTROW_LIST_ALIGNMENT ? Status::MISALIGNED : Status::OK;
}

}  // namespace hotrow::engine
