// The tables that the host registers.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace hotrow::engine {

struct Table {
    uint64_t last_row, weights, state;
    uint32_t row_bytes, stride, state_bytes, parts_log2, part, type;
};

class Tables {
public:
    explicit Tables(uint32_t count) : tables_(count), known_(count) {}

    const Table *find(uint32_t number) const {
        return number < tables_.size() && known_[number] ? &tables_[number] : nullptr;
    }
    void set(uint32_t number, const Table &table) {
        tables_[number] = table;
        known_[number] = 1;
    }
    void remove(uint32_t number) { known_[number] = 0; }

private:
    std::vector<Table> tables_;
    std::vector<uint8_t> known_;
};

// What a thread keeps of the tables that its command names.
template <class Kept>
class PerTable {
public:
    explicit PerTable(uint32_t tables) : kept_(tables) {}

    // The entry of a table, made by the first call with make(entry); null if no table has the number.
    template <class Make>
    const Kept *find(uint32_t number, const Make &make) {
        if (number >= kept_.size()) return nullptr;
        if (!kept_[number]) make(*(kept_[number] = std::make_unique<Kept>()));
        return kept_[number].get();
    }

private:
    std::vector<std::unique_ptr<Kept>> kept_;
};

}  // namespace hotrow::engine
