// The tables that the host registers.

#pragma once

#include <cstdint>
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

}  // namespace hotrow::engine
