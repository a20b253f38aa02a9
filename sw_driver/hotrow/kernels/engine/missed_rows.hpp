// The rows of a batch that have no slot, and the list on which they appear.
//
// The miss table keeps the first MISS_WAYS rows of each of its sets. A kept row is listed once, at
// its first owner; another row is listed once per owner. A lookup joins its row's owner in the
// `window` beats after it (hotrow_sim/golden/lookup/combiner.py, miss_table.py).

#pragma once

#include <cstdint>
#include <vector>

#include "geometry.hpp"

namespace hotrow::engine {

class MissedRows {
public:
    explicit MissedRows(const Geometry &g)
        : set_mask_(g.miss_entries / MISS_WAYS - 1), window_(g.window_beats), places_(1024),
          sets_(set_mask_ + 1) {}

    // Forget the rows of the last batch.
    void begin() {
        rows_.clear();
        unkept = listed = 0;
        if (++epoch_ == 0) {  // the numbers of epochs wrapped around
            std::fill(places_.begin(), places_.end(), Place{});
            std::fill(sets_.begin(), sets_.end(), Set{});
            epoch_ = 1;
        }
    }

    bool empty() const { return rows_.empty(); }
    size_t rows() const { return rows_.size(); }
    bool has(uint64_t hash) const { return place_of(hash)->epoch == epoch_; }

    // The list index of a lookup. `listed` grows if the lookup appends its row.
    uint32_t add(uint64_t hash, int64_t beat) {
        Place *place = place_of(hash);
        if (place->epoch != epoch_) {
            if (2 * (rows_.size() + 1) > places_.size()) {
                grow();
                place = place_of(hash);
            }
            *place = {epoch_, static_cast<uint32_t>(rows_.size())};
            Set &set = sets_[hash & set_mask_];
            if (set.epoch != epoch_) set = {epoch_, 0};
            const bool kept = set.rows < MISS_WAYS;
            set.rows += kept;
            unkept += !kept;
            rows_.push_back({hash, beat, listed++, kept});
            return rows_.back().index;
        }
        Entry &row = rows_[place->row];
        if (beat > row.beat + window_) {  // the lookup is an owner
            row.beat = beat;
            if (!row.kept) {
                row.index = listed++;
                ++unkept;
            }
        }
        return row.index;
    }

    uint32_t listed = 0;  // entries of the list
    uint32_t unkept = 0;  // entries of rows that the miss table does not keep

private:
    struct Entry {
        uint64_t hash;
        int64_t beat;  // of the last owner
        uint32_t index;
        bool kept;
    };
    struct Place {
        uint32_t epoch = 0, row = 0;
    };
    struct Set {
        uint32_t epoch = 0, rows = 0;
    };

    const Place *place_of(uint64_t hash) const {
        const size_t mask = places_.size() - 1;
        size_t at = (hash * 0x9E37'79B9'7F4A'7C15) >> 32 & mask;
        while (places_[at].epoch == epoch_ && rows_[places_[at].row].hash != hash)
            at = (at + 1) & mask;
        return &places_[at];
    }
    Place *place_of(uint64_t hash) {
        return const_cast<Place *>(static_cast<const MissedRows *>(this)->place_of(hash));
    }

    void grow() {
        places_.assign(2 * places_.size(), Place{});
        for (uint32_t row = 0; row < rows_.size(); ++row) *place_of(rows_[row].hash) = {epoch_, row};
    }

    uint64_t set_mask_;
    int64_t window_;
    uint32_t epoch_ = 0;
    std::vector<Entry> rows_;
    std::vector<Place> places_;
    std::vector<Set> sets_;
};

}  // namespace hotrow::engine
