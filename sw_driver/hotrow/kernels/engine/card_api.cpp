// The card for C.

#include "card.hpp"

extern "C" {

using hotrow::engine::Card;

// Null if memory or threads run out.
Card *card_open(const hotrow::engine::Geometry *geometry, int threads) {
    try {
        return new Card(*geometry, threads);
    } catch (...) {
        return nullptr;
    }
}

void card_close(Card *card) { delete card; }

uint32_t card_read_register(Card *card, uint32_t offset) { return card->read_register(offset); }

void card_write_register(Card *card, uint32_t offset, uint32_t value) {
    card->write_register(offset, value);
}

void card_map(Card *card, uint64_t address, uint8_t *data, uint64_t size, int writable) {
    card->map(address, data, size, writable);
}

void card_unmap(Card *card, uint64_t address) { card->unmap(address); }

void card_wait(Card *card, uint32_t queue, uint32_t seen, double seconds) {
    card->wait(queue, seen, seconds);
}

}
