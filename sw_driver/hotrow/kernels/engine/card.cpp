#include "card.hpp"

namespace hotrow::engine {

namespace {

constexpr uint32_t ADDRESS_MASK = 0xFFC;  // the slave decodes 12 address bits without the lowest two
constexpr uint32_t LOOKUP = HOTROW_REG_LOOKUP_COMMANDS_LOW, MOVE = HOTROW_REG_MOVE_COMMANDS_LOW;
constexpr uint32_t QUEUE_SPACE = MOVE - LOOKUP;

// Registers of a queue, relative to its first.
constexpr uint32_t COMMANDS_LOW = 0, COMMANDS_HIGH = HOTROW_REG_LOOKUP_COMMANDS_HIGH - LOOKUP,
                   COMPLETIONS_LOW = HOTROW_REG_LOOKUP_COMPLETIONS_LOW - LOOKUP,
                   COMPLETIONS_HIGH = HOTROW_REG_LOOKUP_COMPLETIONS_HIGH - LOOKUP,
                   ENTRIES = HOTROW_REG_LOOKUP_ENTRIES - LOOKUP,
                   QUEUE_CONTROL = HOTROW_REG_LOOKUP_CONTROL - LOOKUP,
                   TAIL = HOTROW_REG_LOOKUP_TAIL - LOOKUP, HEAD = HOTROW_REG_LOOKUP_HEAD - LOOKUP,
                   COMPLETED = HOTROW_REG_LOOKUP_COMPLETED - LOOKUP,
                   STATE = HOTROW_REG_LOOKUP_STATE - LOOKUP;

bool is_queue(uint32_t offset) { return offset >= LOOKUP; }
uint32_t queue_number(uint32_t offset) { return (offset - LOOKUP) / QUEUE_SPACE; }

}  // namespace

Card::Card(const Geometry &geometry, int threads)
    : geometry_(geometry), memory_(geometry.bus_bytes), regions_(geometry.handles),
      tables_(geometry.tables), lookup_workers_(threads), move_workers_(threads),
      lookups_(geometry_, memory_, tables_, lookup_workers_),
      moves_(geometry_, memory_, regions_, tables_, move_workers_),
      validator_(geometry_, regions_, tables_),
      shared_{geometry_, memory_, regions_, tables_, {}, {0},
              std::vector<uint32_t>(geometry.events),
              [this] { lookup_queue_.wake(), move_queue_.wake(); },
              [this] {
                  const std::chrono::duration<double, std::micro> since =
                      std::chrono::steady_clock::now() - opened_;
                  return static_cast<uint64_t>(since.count() * geometry_.clock_mhz);
              }},
      lookup_queue_(Queue::LOOKUP, shared_, validator_,
                    [this](const Command &command, const Addresses &addresses) {
                        return lookups_.execute(command, addresses);
                    }),
      move_queue_(Queue::MOVE, shared_, validator_,
                  [this](const Command &command, const Addresses &addresses) {
                      return moves_.execute(command, addresses);
                  }) {}

void Card::map(uint64_t address, uint8_t *data, uint64_t size, bool writable) {
    const Pause pause(*this);
    memory_.map(address, data, size, writable);
}

void Card::unmap(uint64_t address) {
    const Pause pause(*this);
    memory_.unmap(address);
}

int64_t Card::plan(uint32_t retired, const Command *commands, int64_t count,
                   hotrow_completion *completions, Places &places) {
    int64_t done = 0;
    lookup_queue_.run_idle([&] {
        if (!lookups_.retire(retired)) return;
        for (Status status = Status::OK; done < count && status == Status::OK; ++done) {
            const Command &command = commands[done];
            const uint64_t start = shared_.cycle();
            Outcome outcome = validator_.check_operands(command, Queue::LOOKUP);
            if (outcome.status == Status::OK) {
                Addresses lists{command.source, command.lengths, 0,
                                {command.slots}, {command.fill_slots}, {command.victim_slots},
                                {command.fills}, {command.victims}, &places};
                outcome = lookups_.execute(command, lists);
            }
            status = outcome.status;
            completions[done] = completion_of(command, outcome, start, shared_.cycle());
        }
    });
    return done;
}

// Whether there is such a register, and the entry that it acts on.
bool Card::known(uint32_t offset) const {
    const auto from_to = [&](uint32_t first, uint32_t last) {
        return offset >= first && offset <= last;
    };
    const auto selected = [&](uint32_t selector) { return stored_[selector / 4]; };
    switch (offset) {
        case HOTROW_REG_PLAN_RETIRED: case HOTROW_REG_PLAN_WINDOW: return geometry_.planner;
        case HOTROW_REG_REGION_COMMIT:
            return selected(HOTROW_REG_REGION_HANDLE) < geometry_.handles;
        case HOTROW_REG_TABLE_COMMIT: return selected(HOTROW_REG_TABLE_NUMBER) < geometry_.tables;
        case HOTROW_REG_EVENT_VALUE: return selected(HOTROW_REG_EVENT_SELECT) < geometry_.events;
        default: break;
    }
    return from_to(HOTROW_REG_IDENTITY, HOTROW_REG_VERSION) ||
           from_to(HOTROW_REG_BUS_BYTES, HOTROW_REG_CARD_MEMORY_LOG2) ||
           from_to(HOTROW_REG_CONTROL, HOTROW_REG_PLAN_WINDOW) ||
           from_to(HOTROW_REG_REGION_HANDLE, HOTROW_REG_TABLE_FORMAT) ||
           from_to(LOOKUP, LOOKUP + STATE) || from_to(MOVE, MOVE + STATE);
}

uint32_t Card::read_register(uint32_t offset) {
    offset &= ADDRESS_MASK;
    const std::lock_guard<std::mutex> guard(shared_.state);
    if (!known(offset)) {
        fault_ |= HOTROW_REG_FAULT_UNKNOWN_MASK;
        return 0;
    }
    if (is_queue(offset)) return read_queue(queue_of(queue_number(offset)), offset);
    const Geometry &g = geometry_;
    switch (offset) {
        case HOTROW_REG_IDENTITY: return HOTROW_IDENTITY;
        case HOTROW_REG_VERSION: return HOTROW_VERSION;
        case HOTROW_REG_BUS_BYTES: return g.bus_bytes;
        case HOTROW_REG_HANDLES: return g.handles;
        case HOTROW_REG_TABLES: return g.tables;
        case HOTROW_REG_COUNTER_SETS: return g.counter_sets;
        case HOTROW_REG_COUNTER_WAYS: return g.counter_ways;
        case HOTROW_REG_COUNTER_BITS: return g.counter_bits;
        case HOTROW_REG_DIRECTORY_CHOICES: return g.directory_choices;
        case HOTROW_REG_DIRECTORY_SETS: return g.directory_sets;
        case HOTROW_REG_DIRECTORY_WAYS: return g.directory_ways;
        case HOTROW_REG_DIRECTORY_PARTITIONS: return g.directory_partitions;
        case HOTROW_REG_BATCH_SAMPLES: return g.batch_samples;
        case HOTROW_REG_MISS_ENTRIES: return g.miss_entries;
        case HOTROW_REG_ROW_BYTES: return g.row_bytes;
        case HOTROW_REG_EVENTS: return g.events;
        case HOTROW_REG_CLOCK_MHZ: return g.clock_mhz;
        case HOTROW_REG_ARITHMETIC: return g.arithmetic;
        case HOTROW_REG_PLANNER: return g.planner;
        case HOTROW_REG_BATCH_LOOKUPS: return g.batch_lookups;
        case HOTROW_REG_LOOKUP_LANES: return g.lookup_lanes;
        case HOTROW_REG_ADDRESS_WIDTH: return g.address_width;
        case HOTROW_REG_CARD_MEMORY_LOG2: return g.card_memory_log2;
        case HOTROW_REG_STATUS: return HOTROW_REG_STATUS_READY_MASK;
        case HOTROW_REG_FAULT: return fault_;
        case HOTROW_REG_INTERRUPT:
            return uint32_t{lookup_queue_.landed != interrupts_seen_[0]} |
                   uint32_t{move_queue_.landed != interrupts_seen_[1]} << 1;
        case HOTROW_REG_CYCLE_LOW: {
            const uint64_t cycle = shared_.cycle();
            cycle_high_ = static_cast<uint32_t>(cycle >> 32);
            return static_cast<uint32_t>(cycle);
        }
        case HOTROW_REG_CYCLE_HIGH: return cycle_high_;
        case HOTROW_REG_EVENT_VALUE: return shared_.events[stored(HOTROW_REG_EVENT_SELECT)];
        case HOTROW_REG_PLAN_RETIRED: return lookups_.retired();
        case HOTROW_REG_PLAN_WINDOW: return g.sweep_batches();
        case HOTROW_REG_REGION_COMMIT: case HOTROW_REG_TABLE_COMMIT: return 0;
        default: return stored(offset);
    }
}

uint32_t Card::read_queue(const CommandQueue &queue, uint32_t offset) const {
    switch ((offset - LOOKUP) % QUEUE_SPACE) {
        case QUEUE_CONTROL: return uint32_t{queue.enabled} | uint32_t{queue.halt_on_error} << 1;
        case TAIL: return queue.tail;
        case HEAD: return queue.head;
        case COMPLETED: return queue.completed;
        case STATE: return queue.state();
        default: return stored_[offset / 4];
    }
}

// Whether a write must come between two commands.
bool Card::changes_maps(uint32_t offset, uint32_t value) {
    switch (offset) {
        case HOTROW_REG_REGION_COMMIT: case HOTROW_REG_TABLE_COMMIT: return true;
        case HOTROW_REG_CONTROL: return value & HOTROW_REG_CONTROL_SOFT_RESET_MASK;
        case HOTROW_REG_LOOKUP_CONTROL: case HOTROW_REG_MOVE_CONTROL: {
            const std::lock_guard<std::mutex> guard(shared_.state);
            return queue_of(queue_number(offset)).enabled != (value & 1);
        }
        default: return false;
    }
}

void Card::write_register(uint32_t offset, uint32_t value) {
    offset &= ADDRESS_MASK;
    std::optional<Pause> pause;
    if (changes_maps(offset, value)) pause.emplace(*this);
    const std::lock_guard<std::mutex> guard(shared_.state);
    if (!known(offset)) {
        fault_ |= HOTROW_REG_FAULT_UNKNOWN_MASK;
        return;
    }
    if (is_queue(offset)) return write_queue(queue_number(offset), offset, value);
    switch (offset) {
        case HOTROW_REG_CONTROL:
            if (value & HOTROW_REG_CONTROL_SOFT_RESET_MASK)
                for (CommandQueue *queue : {&lookup_queue_, &move_queue_}) {
                    queue->enabled = false;
                    queue->restart();
                }
            stored(offset) = value & 6;
            break;
        case HOTROW_REG_FAULT: fault_ &= ~value; break;
        case HOTROW_REG_INTERRUPT:
            if (value & 1) interrupts_seen_[0] = lookup_queue_.landed;
            if (value & 2) interrupts_seen_[1] = move_queue_.landed;
            break;
        case HOTROW_REG_EVENT_VALUE:
            shared_.events[stored(HOTROW_REG_EVENT_SELECT)] = value;
            shared_.signalled();
            break;
        case HOTROW_REG_PLAN_RETIRED:
            if (!lookups_.retire(value)) fault_ |= HOTROW_REG_FAULT_RETIREMENT_MASK;
            break;
        case HOTROW_REG_REGION_COMMIT: commit_region(value & 1, value & 2); break;
        case HOTROW_REG_TABLE_COMMIT: commit_table(value & 1); break;
        case HOTROW_REG_TIMEOUT: case HOTROW_REG_EVENT_SELECT: stored(offset) = value; break;
        default:
            if (offset >= HOTROW_REG_REGION_HANDLE) stored(offset) = value;
    }
}

void Card::write_queue(uint32_t number, uint32_t offset, uint32_t value) {
    CommandQueue &queue = queue_of(number);
    const uint32_t first = number ? MOVE : LOOKUP;
    switch (offset - first) {
        case QUEUE_CONTROL: queue.control(value); break;
        case TAIL:
            if (!queue.ring(value)) fault_ |= 1u << number;
            break;
        case HEAD: case COMPLETED: case STATE: break;
        default:
            stored(offset) = value;
            queue.entries_log2 = stored(first + ENTRIES);
            queue.commands = wide(first + COMMANDS_LOW);
            queue.completions = wide(first + COMPLETIONS_LOW);
    }
}

void Card::commit_region(bool valid, bool writable) {
    const uint32_t handle = stored(HOTROW_REG_REGION_HANDLE);
    if (!valid) return regions_.remove(handle);
    const uint64_t addresses =
        geometry_.address_width < 64 ? (uint64_t{1} << geometry_.address_width) - 1 : ~uint64_t{0};
    regions_.set(handle, {wide(HOTROW_REG_REGION_BASE_LOW) & ~uint64_t{15} & addresses,
                          wide(HOTROW_REG_REGION_SIZE_LOW) & OFFSET_MASK, writable});
}

void Card::commit_table(bool valid) {
    const uint32_t number = stored(HOTROW_REG_TABLE_NUMBER);
    if (!valid) return tables_.remove(number);
    const uint32_t row = stored(HOTROW_REG_TABLE_ROW), format = stored(HOTROW_REG_TABLE_FORMAT);
    const uint32_t partition = stored(HOTROW_REG_TABLE_PARTITION);
    Table table{};
    table.last_row = std::min<uint64_t>(stored(HOTROW_REG_TABLE_LAST_ROW),
                                        (uint64_t{1} << geometry_.row_width()) - 1);
    table.weights = wide(HOTROW_REG_TABLE_WEIGHTS_LOW);
    table.row_bytes = row & 0x1FF0;
    table.stride = row >> 16 & ~15u;
    table.state = wide(HOTROW_REG_TABLE_STATE_LOW);
    table.state_bytes = format & 0x3C;
    table.type = format >> 8 & 3;
    // More parts than the directory has count as one.
    table.parts_log2 = partition & 7;
    if (uint64_t{1} << table.parts_log2 > geometry_.directory_partitions) table.parts_log2 = 0;
    table.part = partition >> 8 & low_bits(table.parts_log2);
    tables_.set(number, table);
}

}  // namespace hotrow::engine
