// A map from 64-bit ids to rows: an index by linear probing over the rows' own ids.
//
// Row 0 belongs to no id. The index names the row of each id, and 32 bits of the id's hash, from
// which its home follows; an id that leaves moves later entries back, so that no marks of removed
// entries remain (Knuth, The Art of Computer Programming, volume 3, 6.4, algorithm R).

#include "mixed.hpp"
#include "rows.hpp"

namespace {

constexpr int BLOCK = 64;       // ids whose memory is fetched together
constexpr int SKETCH_ROWS = 4;  // counters of an id in the sketch
constexpr uint32_t MOST = 1u << 31;

struct Row {
    uint64_t id;
    uint32_t count;
    uint32_t last;  // batch of the last lookup; 0: the row is free
};

struct Entry {
    int32_t row;  // 0: empty
    uint32_t hash;
};

struct Map {
    Row *state;
    Entry *index;
    int32_t *free;  // the last one leaves first
    int64_t rows, buckets, free_count, fresh, used;  // a bucket stays empty: every search ends
    uint64_t seed;

    uint32_t hash(uint64_t id) const { return static_cast<uint32_t>(mixed(id ^ seed) >> 32); }
    int64_t home(uint32_t hash) const { return (static_cast<uint64_t>(hash) * buckets) >> 32; }
    int64_t next(int64_t bucket) const { return bucket + 1 == buckets ? 0 : bucket + 1; }

    // The first bucket from `bucket` on that is empty or has this hash.
    int64_t candidate(uint32_t hash, int64_t bucket) const {
        while (index[bucket].row && index[bucket].hash != hash) bucket = next(bucket);
        return bucket;
    }

    // The bucket of an id, or the empty one where its search ends.
    int64_t bucket_of(uint64_t id, uint32_t hash, int64_t bucket) const {
        bucket = candidate(hash, bucket);
        while (index[bucket].row && state[index[bucket].row].id != id)
            bucket = candidate(hash, next(bucket));
        return bucket;
    }

    // Whether the id had no row before.
    bool insert(uint64_t id, int32_t row) {
        const uint32_t key = hash(id);
        const int64_t bucket = bucket_of(id, key, home(key));
        if (index[bucket].row) return false;
        index[bucket] = {row, key};
        return true;
    }

    void remove(uint64_t id) {
        const uint32_t key = hash(id);
        int64_t hole = bucket_of(id, key, home(key));
        for (int64_t at = next(hole); index[at].row; at = next(at)) {
            // An entry moves to the hole unless its home lies after the hole, up to the entry.
            const int64_t from = home(index[at].hash);
            const bool after = hole <= at ? hole < from && from <= at : hole < from || from <= at;
            if (after) continue;
            index[hole] = index[at];
            hole = at;
        }
        index[hole] = {};
    }
};

struct Order {  // rows that expire first come first
    const Row *state;
    bool by_count;

    bool operator()(int32_t a, int32_t b) const {
        const Row &x = state[a], &y = state[b];
        const uint64_t one = key(x), other = key(y);
        return one != other ? one < other : a < b;
    }
    uint64_t key(const Row &row) const {
        const uint64_t count = std::min(row.count, MOST), last = row.last;
        return by_count ? count << 32 | last : last << 32 | count;
    }
};

}  // namespace

// Rows of some ids, 0 for an id without one. With a batch other than 0 each is counted in its row.
// Returns how many have no row.
extern "C" int64_t id_map_find(const Map *map, const uint64_t *ids, int64_t count, uint32_t batch,
                               int64_t *rows, int threads) try {
    const bool shared = threads > 1;
    int64_t missing = 0;
    parallel(count, threads, [&](int64_t first, int64_t last) {
        uint32_t hashes[BLOCK];
        int64_t buckets[BLOCK], without = 0;
        for (int64_t base = first; base < last; base += BLOCK) {
            const int n = static_cast<int>(std::min<int64_t>(BLOCK, last - base));
            for (int i = 0; i < n; ++i) {
                hashes[i] = map->hash(ids[base + i]);
                buckets[i] = map->home(hashes[i]);
                __builtin_prefetch(map->index + buckets[i]);
            }
            for (int i = 0; i < n; ++i) {
                buckets[i] = map->candidate(hashes[i], buckets[i]);
                __builtin_prefetch(map->state + map->index[buckets[i]].row, 1);
            }
            for (int i = 0; i < n; ++i) {
                const int64_t bucket = map->bucket_of(ids[base + i], hashes[i], buckets[i]);
                const int32_t row = map->index[bucket].row;
                rows[base + i] = row;
                without += !row;
                if (!batch || !row) continue;
                Row &found = map->state[row];
                if (!shared) {
                    found.count += found.count < MOST;
                    found.last = batch;
                } else {
                    if (__atomic_load_n(&found.count, __ATOMIC_RELAXED) < MOST)
                        __atomic_fetch_add(&found.count, 1, __ATOMIC_RELAXED);
                    __atomic_store_n(&found.last, batch, __ATOMIC_RELAXED);
                }
            }
        }
        __atomic_fetch_add(&missing, without, __ATOMIC_RELAXED);
    });
    return missing;
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Build the index from the rows. Returns 0, or a row whose id another row has, too. Memory that is
// still zero is not written: a map of many rows and few ids stays small.
extern "C" int64_t id_map_rebuild(Map *map) {
    for (Entry *entry = map->index; entry < map->index + map->buckets; ++entry)
        if (entry->row || entry->hash) *entry = {};
    for (int64_t row = 1; row < map->fresh; ++row)
        if (map->state[row].last && !map->insert(map->state[row].id, static_cast<int32_t>(row)))
            return row;
    return 0;
}

// Give rows to distinct ids that have none, in their order, and list them. Returns how many: all,
// unless the rows end; or -1 - i where id i has a row, or the free row for it is none.
extern "C" int64_t id_map_add(Map *map, const uint64_t *ids, const uint32_t *counts, int64_t count,
                              uint32_t batch, int64_t *rows) {
    for (int64_t i = 0; i < count; ++i) {
        if (i + PREFETCH < count)
            __builtin_prefetch(map->index + map->home(map->hash(ids[i + PREFETCH])), 1);
        if (!map->free_count && map->fresh >= map->rows) return i;
        const int32_t row = map->free_count ? map->free[map->free_count - 1]
                                            : static_cast<int32_t>(map->fresh);
        if (row < 1 || row >= map->rows || map->state[row].last || !map->insert(ids[i], row))
            return -1 - i;
        map->free_count ? --map->free_count : ++map->fresh;
        map->state[row] = {ids[i], std::min(counts[i], MOST), batch};
        rows[i] = row;
        ++map->used;
    }
    return count;
}

// Free at most `most` of the rows that no batch after `done` looked up, and that were last looked
// up before `before` or have a count below `below`; list them and their ids, in the order in which
// rows expire. A freed row keeps its count until it is given. Returns how many.
extern "C" int64_t id_map_expire(Map *map, uint32_t done, uint32_t before, uint32_t below,
                                 int32_t by_count, int64_t most, int64_t *rows, uint64_t *ids) try {
    std::vector<int32_t> found;
    for (int64_t row = 1; row < map->fresh; ++row) {
        const Row &state = map->state[row];
        if (state.last && state.last <= done &&
            (state.last < before || std::min(state.count, MOST) < below))
            found.push_back(static_cast<int32_t>(row));
    }
    const Order order{map->state, by_count != 0};
    if (static_cast<int64_t>(found.size()) > most) {
        std::nth_element(found.begin(), found.begin() + most, found.end(), order);
        found.resize(most);
    }
    std::sort(found.begin(), found.end(), order);
    for (size_t i = 0; i < found.size(); ++i) {
        Row &state = map->state[found[i]];
        map->remove(state.id);
        rows[i] = found[i];
        ids[i] = state.id;
        state.id = 0;
        state.last = 0;
        map->free[map->free_count++] = found[i];
        --map->used;
    }
    return static_cast<int64_t>(found.size());
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Add the counts of distinct ids to a sketch of SKETCH_ROWS rows of `width` counters each, and
// write the estimate of each id: never below what was added for it (G. Cormode and S.
// Muthukrishnan, "An improved data stream summary", 2005; with conservative update, C. Estan and
// G. Varghese, 2002).
extern "C" int64_t id_map_count(uint16_t *sketch, int64_t width, uint64_t seed,
                                const uint64_t *ids, const uint32_t *counts, int64_t count,
                                uint32_t *estimates) {
    for (int64_t i = 0; i < count; ++i) {
        uint16_t *counters[SKETCH_ROWS];
        uint64_t least = UINT16_MAX;
        for (int row = 0; row < SKETCH_ROWS; ++row) {
            const uint64_t hash = mixed(ids[i] ^ mixed(seed + row + 1)) >> 32;
            counters[row] = sketch + row * width + ((hash * static_cast<uint64_t>(width)) >> 32);
            least = std::min<uint64_t>(least, *counters[row]);
        }
        least = std::min<uint64_t>(least + counts[i], UINT16_MAX);
        for (auto *counter : counters)
            *counter = static_cast<uint16_t>(std::max<uint64_t>(*counter, least));
        estimates[i] = static_cast<uint32_t>(least);
    }
    return 0;
}
