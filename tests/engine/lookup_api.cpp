// The lookup queue's engine by itself, for C: comparisons without rings.

#include "../../sw_driver/hotrow/kernels/engine/lookup_engine.hpp"

namespace hotrow::engine {

struct LookupCard {
    Geometry geometry;
    Memory memory;
    Tables tables;
    Workers workers;
    LookupEngine engine;

    LookupCard(const Geometry &g, int threads)
        : geometry(g), memory(g.bus_bytes), tables(g.tables), workers(threads),
          engine(geometry, memory, tables, workers) {}
};

}  // namespace hotrow::engine

extern "C" {

using hotrow::engine::LookupCard;

LookupCard *lookup_make(const hotrow::engine::Geometry *geometry, int threads) {
    try {
        return new LookupCard(*geometry, threads);
    } catch (...) {
        return nullptr;  // memory or threads ran out
    }
}

void lookup_free(LookupCard *card) { delete card; }

void lookup_map(LookupCard *card, uint64_t address, uint8_t *data, uint64_t size, int writable) {
    card->memory.map(address, data, size, writable);
}

void lookup_table(LookupCard *card, uint32_t number, uint64_t last_row, uint32_t parts_log2,
                  uint32_t part) {
    card->tables.set(number, {last_row, 0, 0, 0, 0, 0, parts_log2, part, 0});
}

void lookup_execute(LookupCard *card, const hotrow::engine::Command *command,
                    const hotrow::engine::Addresses *addresses, hotrow::engine::Outcome *outcome) {
    *outcome = card->engine.execute(*command, *addresses);
}

int lookup_retire(LookupCard *card, uint32_t batch) { return card->engine.retire(batch); }

uint32_t lookup_retired(const LookupCard *card) { return card->engine.retired(); }

}
