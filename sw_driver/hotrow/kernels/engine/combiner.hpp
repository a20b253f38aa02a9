// The combiner: lookups of one row in a few beats are one access of the counters.
//
// The first lookup of a row is an owner. Later ones join it in the `window` beats after its own; the
// next lookup after those is an owner again. Owners are counted in order, each with its number of
// lookups, once no other lookup can join it.

#pragma once

#include <cstdint>
#include <vector>

#include "counters.hpp"
#include "geometry.hpp"

namespace hotrow::engine {

class Combiner {
public:
    explicit Combiner(const Geometry &g)
        : window_(g.window_beats), period_(g.window_beats + 1), places_(2 * PLACES),
          owners_(RING) {}

    // Add the next lookup of a batch. `before`, if not null, receives the count of the row before
    // each owner; it must hold zeros.
    void add(Counters &counters, uint64_t hash, int64_t beat, uint32_t position, uint32_t *before) {
        turn(beat / period_);
        if (Owner *owner = find(hash); owner && beat <= owner->beat + window_) {
            ++owner->amount;
            return;
        }
        counters.prefetch(hash);
        owners_[tail_ % RING] = {hash, beat, position, 1};
        insert(hash, tail_++);
        while (tail_ - head_ > AHEAD && owners_[head_ % RING].beat + window_ < beat)
            count_one(counters, before);
    }

    // Count the remaining owners of the batch and return its number of hits.
    uint64_t finish(Counters &counters, uint32_t *before) {
        while (head_ != tail_) count_one(counters, before);
        epoch_ += 2;
        generation_ = 0;
        const uint64_t hits = hits_;
        hits_ = 0;
        return hits;
    }

private:
    // At most 16 beats of 16 lookups are open at a time, those of one generation or of two.
    static constexpr uint64_t PLACES = 1024, RING = 1024, AHEAD = 64;

    struct Owner {
        uint64_t hash;
        int64_t beat;
        uint32_t position, amount;
    };
    struct Place {
        uint64_t epoch = 0, owner = 0;
    };

    // Begin the generation: forget the owners of the one before the last.
    void turn(int64_t generation) {
        if (generation == generation_) return;
        // After a gap no owner of earlier generations is open.
        epoch_ += generation == generation_ + 1 ? 1 : 2;
        generation_ = generation;
    }

    static uint64_t place_of(uint64_t hash) { return (hash * 0x9E37'79B9'7F4A'7C15) >> 54; }

    Owner *find_in(uint64_t epoch, uint64_t hash) {
        Place *places = places_.data() + (epoch & 1) * PLACES;
        for (uint64_t at = place_of(hash); places[at].epoch == epoch; at = (at + 1) % PLACES) {
            Owner &owner = owners_[places[at].owner % RING];
            if (owner.hash == hash) return &owner;
        }
        return nullptr;
    }

    Owner *find(uint64_t hash) {
        Owner *owner = find_in(epoch_, hash);
        return owner ? owner : find_in(epoch_ - 1, hash);
    }

    void insert(uint64_t hash, uint64_t owner) {
        Place *places = places_.data() + (epoch_ & 1) * PLACES;
        uint64_t at = place_of(hash);
        while (places[at].epoch == epoch_) at = (at + 1) % PLACES;
        places[at] = {epoch_, owner};
    }

    void count_one(Counters &counters, uint32_t *before) {
        const Owner &owner = owners_[head_++ % RING];
        const int64_t found = counters.count(owner.hash, owner.amount);
        hits_ += owner.amount - 1 + (found >= 0);
        if (before) before[owner.position] = static_cast<uint32_t>(found < 0 ? 0 : found);
    }

    int64_t window_, period_, generation_ = 0;
    uint64_t epoch_ = 2, head_ = 0, tail_ = 0, hits_ = 0;
    std::vector<Place> places_;
    std::vector<Owner> owners_;
};

}  // namespace hotrow::engine
