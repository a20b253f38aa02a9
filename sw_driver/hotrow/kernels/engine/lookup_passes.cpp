// The passes of lookup_passes.hpp over the sets of a directory.

#include "lookup_passes.hpp"

#include <algorithm>
#include <cstring>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace hotrow::engine {

namespace {

constexpr uint32_t CHUNK = 64;  // lookups that are located, and whose sets are prefetched, at once

template <class Tag, int WAYS>
struct Sets {
    using Block = SetBlock<Tag, WAYS>;
    static constexpr bool LINE = sizeof(Block) == 64;
    static constexpr Tag DIRTY = Tag{1} << (8 * sizeof(Tag) - 1), FILLED = DIRTY >> 1;
    static constexpr Tag TAG = static_cast<Tag>(~(DIRTY | FILLED));

    struct Chunk {
        uint32_t count;
        uint32_t positions[CHUNK];
        uint64_t hashes[CHUNK];
        uint32_t sets[2][CHUNK];
        Tag tags[2][CHUNK];
    };

    // The ways of a row in its sets, bits by choice; without a second choice those are 0.
    struct Found {
        uint32_t first, second;

        bool any() const { return first | second; }
        int choice() const { return !first; }
        int way() const { return __builtin_ctz(first ? first : second); }
    };

    static Block &block(const Directory &d, uint32_t set) {
        return reinterpret_cast<Block *>(d.blocks.data())[set];
    }

    static void fetch(const Directory &d, uint32_t set) {
        const char *at = reinterpret_cast<const char *>(&block(d, set));
        __builtin_prefetch(at, 1);
        if (!LINE) __builtin_prefetch(at + sizeof(Block) - 1, 1);
        if (sizeof(Block) > 128) __builtin_prefetch(at + 64, 1), __builtin_prefetch(at + 128, 1);
    }

    static void locate(const Directory &d, const Stream &stream, Chunk &chunk) {
        const KeyShape &k = d.keys;
        const int bank_bits = k.bank_bits, cut = k.bank_bits + k.low_bits_, low = k.low_bits_;
        const uint64_t mask = low_bits(k.bank_key_width), sets = k.sets - 1;
        const uint64_t banks = low_bits(bank_bits);
        const uint32_t count = chunk.count;
        if (stream.tables) {
            for (uint32_t i = 0; i < count; ++i) {
                const Partition part = stream.partition(chunk.positions[i]);
                for (int choice = 0; choice < d.keys.choices; ++choice) {
                    const uint64_t hashed = k.choice_hash(chunk.hashes[i], choice);
                    chunk.sets[choice][i] =
                        k.set_of(chunk.hashes[i], hashed, choice, part.parts_log2, part.part);
                    chunk.tags[choice][i] = static_cast<Tag>((hashed >> low) + 1);
                }
            }
        } else {
            for (uint32_t i = 0; i < count; ++i) {
                chunk.sets[0][i] = static_cast<uint32_t>(chunk.hashes[i] & sets);
                chunk.tags[0][i] = static_cast<Tag>((chunk.hashes[i] >> cut) + 1);
            }
            if (d.keys.choices == 2) {
                for (uint32_t i = 0; i < count; ++i) {
                    const uint64_t hashed = hash1(chunk.hashes[i] >> bank_bits, mask);
                    chunk.sets[1][i] = static_cast<uint32_t>(
                        k.sets + ((hashed << bank_bits | (chunk.hashes[i] & banks)) & sets));
                    chunk.tags[1][i] = static_cast<Tag>((hashed >> low) + 1);
                }
            }
        }
    }

    // Fetch the sets of one lookup, a chunk ahead of its turn.
    static void fetch(const Directory &d, const Chunk &chunk, uint32_t i) {
        for (int choice = 0; choice < d.keys.choices; ++choice) fetch(d, chunk.sets[choice][i]);
    }

    static void load(const Directory &d, const Stream &stream, uint32_t from, Chunk &chunk) {
        const uint32_t left = from < stream.count ? stream.count - from : 0;
        const uint32_t count = left < CHUNK ? left : CHUNK;
        chunk.count = count;
        if (stream.positions) {
            for (uint32_t i = 0; i < count; ++i) {
                chunk.positions[i] = stream.positions[from + i];
                chunk.hashes[i] = stream.hashes[chunk.positions[i]];
            }
        } else {
            for (uint32_t i = 0; i < count; ++i) chunk.positions[i] = stream.first + from + i;
            std::memcpy(chunk.hashes, stream.hashes + stream.first + from, count * sizeof(uint64_t));
        }
        locate(d, stream, chunk);
    }

    static void begin(const Directory &d, const Stream &stream, Chunk &chunk) {
        load(d, stream, 0, chunk);
        for (uint32_t i = 0; i < chunk.count; ++i) fetch(d, chunk, i);
    }

    // A chunk of one row.
    static void load_one(const Directory &d, uint64_t hash, Partition part, Chunk &chunk) {
        const uint16_t table = 0;
        const Stream stream{&hash, &table, &part, nullptr, 0, 1};
        load(d, stream, 0, chunk);
    }

    static uint32_t match(const Tag *tags, Tag wanted) {
#ifdef __AVX2__
        if constexpr (sizeof(Tag) == 4 && WAYS % 8 == 0) {
            uint32_t found = 0;
            const __m256i all = _mm256_set1_epi32(static_cast<int>(wanted));
            const __m256i tag = _mm256_set1_epi32(static_cast<int>(TAG));
            for (int way = 0; way < WAYS; way += 8) {
                const __m256i here =
                    _mm256_loadu_si256(reinterpret_cast<const __m256i *>(tags + way));
                found |= static_cast<uint32_t>(_mm256_movemask_ps(
                             _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(here, tag), all)))) << way;
            }
            return found;
        } else if constexpr (sizeof(Tag) == 8 && WAYS % 4 == 0) {
            uint32_t found = 0;
            const __m256i all = _mm256_set1_epi64x(static_cast<long long>(wanted));
            const __m256i tag = _mm256_set1_epi64x(static_cast<long long>(TAG));
            for (int way = 0; way < WAYS; way += 4) {
                const __m256i here =
                    _mm256_loadu_si256(reinterpret_cast<const __m256i *>(tags + way));
                found |= static_cast<uint32_t>(_mm256_movemask_pd(
                             _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_and_si256(here, tag), all)))) << way;
            }
            return found;
        }
#endif
        uint32_t found = 0;
        for (int way = 0; way < WAYS; ++way) found |= uint32_t{(tags[way] & TAG) == wanted} << way;
        return found;
    }

    static Found match_all(const Directory &d, const Chunk &chunk, uint32_t i) {
        Found found{match(block(d, chunk.sets[0][i]).tags, chunk.tags[0][i]), 0};
        if (d.keys.choices == 2)
            found.second = match(block(d, chunk.sets[1][i]).tags, chunk.tags[1][i]);
        return found;
    }

    static uint32_t slot_of(uint32_t set, int way) {
        return set * WAYS + static_cast<uint32_t>(way);
    }

    static int first_of(uint32_t ways) { return __builtin_ctz(ways); }

    // Call visit(chunk, i) for each lookup, in order, with its sets in the cache.
    template <class Visit>
    static void each(const Directory &d, const Stream &stream, const Visit &visit) {
        Chunk chunks[2];
        begin(d, stream, chunks[0]);
        for (uint32_t from = 0, turn = 0; from < stream.count; from += CHUNK, turn ^= 1) {
            const Chunk &chunk = chunks[turn], &next = chunks[turn ^ 1];
            load(d, stream, from + CHUNK, chunks[turn ^ 1]);
            for (uint32_t i = 0; i < chunk.count; ++i) {
                if (i < next.count) fetch(d, next, i);
                visit(chunk, i);
            }
        }
    }

    static void find(const Directory &d, const Stream &stream, uint32_t *slots,
                     std::vector<uint32_t> &missed) {
        each(d, stream, [&](const Chunk &chunk, uint32_t i) {
            const Found found = match_all(d, chunk, i);
            uint32_t slot = NO_SLOT;
            if (found.any()) slot = slot_of(chunk.sets[found.choice()][i], found.way());
            else missed.push_back(chunk.positions[i]);
            slots[chunk.positions[i]] = slot;
        });
    }

    static uint64_t mark(const Directory &d, const Stream &stream, uint16_t batch,
                         uint16_t newest_stamp) {
        uint64_t hits = 0;
        const uint16_t age = static_cast<uint16_t>(newest_stamp - batch);
        each(d, stream, [&](const Chunk &chunk, uint32_t i) {
            const Found found = match_all(d, chunk, i);
            if (!found.any()) return;
            uint16_t *needed = block(d, chunk.sets[found.choice()][i]).needed + found.way();
            // Threads that mark the same batch store the same stamp.
            const uint16_t held =
                static_cast<uint16_t>(newest_stamp - __atomic_load_n(needed, __ATOMIC_RELAXED));
            if (age < held) __atomic_store_n(needed, batch, __ATOMIC_RELAXED);
            ++hits;
        });
        return hits;
    }

    // The lowest free way of the set that has more of them, of the first choice on a tie; or none.
    static bool free_way(const Directory &d, const Chunk &chunk, uint32_t i,
                         int &choice, int &way) {
        uint32_t most = match(block(d, chunk.sets[0][i]).tags, Tag{0});
        choice = 0;
        if (d.keys.choices == 2) {
            const uint32_t second = match(block(d, chunk.sets[1][i]).tags, Tag{0});
            if (__builtin_popcount(second) > __builtin_popcount(most)) most = second, choice = 1;
        }
        way = most ? first_of(most) : 0;
        return most;
    }

    // The ways of a set that are not held, and the way of them with the lowest number, the one that
    // was planned least recently on a tie.
    struct Spare {
        int ways;
        uint32_t rank;  // number << 16 | age, lowest first
        int way;
    };

    static Spare spare(const Block &block, const uint8_t *numbers, uint16_t base,
                       uint16_t retired) {
#ifdef __AVX2__
        if constexpr (WAYS == 8) {
            const __m128i bases = _mm_set1_epi16(static_cast<short>(base));
            const __m128i needed = _mm_sub_epi16(
                _mm_loadu_si128(reinterpret_cast<const __m128i *>(block.needed)), bases);
            const __m128i free = _mm_cmpeq_epi16(
                _mm_min_epu16(needed, _mm_set1_epi16(static_cast<short>(retired))), needed);
            const int ways = __builtin_popcount(_mm_movemask_epi8(free)) / 2;
            if (!ways) return {0, 0, 0};
            const __m128i ones = _mm_set1_epi32(-1);
            const __m128i number = _mm_or_si128(
                _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(numbers))),
                _mm_xor_si128(free, ones));
            const int least = _mm_extract_epi16(_mm_minpos_epu16(number), 0);
            const __m128i lowest =
                _mm_cmpeq_epi16(number, _mm_set1_epi16(static_cast<short>(least)));
            const __m128i used = _mm_or_si128(
                _mm_sub_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(block.used)), bases),
                _mm_xor_si128(lowest, ones));
            const __m128i first = _mm_minpos_epu16(used);
            return {ways,
                    static_cast<uint32_t>(least) << 16 |
                        static_cast<uint16_t>(_mm_extract_epi16(first, 0)),
                    _mm_extract_epi16(first, 1)};
        }
#endif
        Spare found{0, ~uint32_t{0}, 0};
        for (int way = 0; way < WAYS; ++way) {
            if (static_cast<uint16_t>(block.needed[way] - base) > retired) continue;
            ++found.ways;
            const uint32_t rank =
                uint32_t{numbers[way]} << 16 | static_cast<uint16_t>(block.used[way] - base);
            if (rank < found.rank) found.rank = rank, found.way = way;
        }
        return found;
    }

    // Choose the slot that a row without one evicts; false if all are held.
    static bool victim_way(const PlanPass &pass, const Chunk &chunk, uint32_t i,
                           int &choice, int &way) {
        const Directory &d = pass.directory;
        const uint16_t base = static_cast<uint16_t>(pass.newest_stamp() + 1);
        const uint16_t retired = static_cast<uint16_t>(pass.retired - base);
        const uint8_t *const numbers = d.numbers.data();
        uint32_t set = chunk.sets[0][i];
        Spare best = spare(block(d, set), numbers + slot_of(set, 0), base, retired);
        choice = 0;
        if (d.keys.choices == 2) {
            set = chunk.sets[1][i];
            const Spare second = spare(block(d, set), numbers + slot_of(set, 0), base, retired);
            if (second.ways > best.ways || (second.ways == best.ways && second.rank < best.rank))
                best = second, choice = 1;
        }
        way = best.way;
        return best.ways;
    }

    __attribute__((noinline)) static void allocate(PlanPass &pass, const Chunk &chunk, uint32_t i) {
        Directory &d = pass.directory;
        const uint64_t hash = chunk.hashes[i];
        const uint32_t position = chunk.positions[i];
        if (!pass.bypassed.empty() && pass.bypassed.has(hash)) return pass.bypass(position, hash);
        if (pass.newest_bypass > pass.retired || !pass.bypassed.empty()) pass.wait(hash);
        int choice, way;
        const uint8_t number = pass.policy.filled(pass.count_of(position, hash));
        if (!free_way(d, chunk, i, choice, way)) {
            if (!victim_way(pass, chunk, i, choice, way)) return pass.bypass(position, hash);
            const uint32_t set = chunk.sets[choice][i], slot = slot_of(set, way);
            if (pass.policy.admit && d.numbers.data()[slot] > number)
                return pass.bypass(position, hash);
            const Tag left = block(d, set).tags[way];
            if (left & DIRTY)
                pass.victims.push_back(
                    {position, slot, d.keys.row_of(d.keys.hash_of(uint64_t{left & TAG} - 1, set))});
        }
        const uint32_t set = chunk.sets[choice][i], slot = slot_of(set, way);
        Block &here = block(d, set);
        here.tags[way] = chunk.tags[choice][i] | FILLED | (pass.policy.writes ? DIRTY : 0);
        here.needed[way] = here.used[way] = static_cast<uint16_t>(pass.planned);
        if (d.numbered) d.numbers.data()[slot] = number;
        pass.slots[position] = slot;
        pass.listed.push_back({position, slot, d.keys.row_of(hash)});
    }

    template <bool NUMBERED>
    static void plan_chunk(PlanPass &pass, const Chunk &chunk, const Chunk &next) {
        Directory &d = pass.directory;
        const uint16_t planned = static_cast<uint16_t>(pass.planned);
        const uint16_t newest = pass.newest_stamp(), age = static_cast<uint16_t>(newest - planned);
        const Tag dirty = pass.policy.writes ? DIRTY : 0;
        uint64_t hits = 0, fresh = 0;
        for (uint32_t i = 0; i < chunk.count; ++i) {
            if (i < next.count) fetch(d, next, i);
            const Found found = match_all(d, chunk, i);
            if (__builtin_expect(!found.any(), 0)) {
                allocate(pass, chunk, i);
                continue;
            }
            const int choice = found.choice(), way = found.way();
            const uint32_t set = chunk.sets[choice][i], slot = slot_of(set, way);
            Block &here = block(d, set);
            const bool first = here.used[way] != planned;
            here.used[way] = planned;
            const uint16_t needed = here.needed[way];
            here.needed[way] = static_cast<uint16_t>(newest - needed) > age ? planned : needed;
            if (NUMBERED && first) {
                uint8_t &number = d.numbers.data()[slot];
                number = pass.policy.used(
                    number, pass.count_of(chunk.positions[i], chunk.hashes[i]));
            }
            fresh += first;
            ++hits;
            const Tag tag = here.tags[way];
            if (tag & FILLED) hits -= pass.joins_fill(chunk.positions[i], slot);
            here.tags[way] = tag | dirty;
            pass.slots[chunk.positions[i]] = slot;
        }
        pass.hits += hits;
        pass.resident_rows += fresh;
    }

    static void plan(PlanPass &pass, const Stream &stream) {
        Directory &d = pass.directory;
        Chunk chunks[2];
        begin(d, stream, chunks[0]);
        for (uint32_t from = 0, turn = 0; from < stream.count; from += CHUNK, turn ^= 1) {
            const Chunk &chunk = chunks[turn], &next = chunks[turn ^ 1];
            load(d, stream, from + CHUNK, chunks[turn ^ 1]);
            if (pass.policy.counts() && !pass.before)
                for (uint32_t i = 0; i < chunk.count; ++i) pass.counters.prefetch(chunk.hashes[i]);
            if (d.numbered) plan_chunk<true>(pass, chunk, next);
            else plan_chunk<false>(pass, chunk, next);
        }
    }

    static void plan_held(PlanPass &pass, const Stream &stream, std::vector<uint32_t> &others) {
        Directory &d = pass.directory;
        const uint16_t planned = static_cast<uint16_t>(pass.planned);
        const uint16_t newest = pass.newest_stamp(), age = static_cast<uint16_t>(newest - planned);
        const uint16_t unheld = static_cast<uint16_t>(newest - static_cast<uint16_t>(pass.retired));
        const Tag dirty = pass.policy.writes ? DIRTY : 0;
        uint64_t hits = 0, fresh = 0;
        each(d, stream, [&](const Chunk &chunk, uint32_t i) {
            const Found found = match_all(d, chunk, i);
            const int choice = found.any() ? found.choice() : 0, way = found.any() ? found.way() : 0;
            Block &here = block(d, chunk.sets[choice][i]);
            const uint16_t held = static_cast<uint16_t>(
                newest - __atomic_load_n(here.needed + way, __ATOMIC_RELAXED));
            if (!found.any() || held >= unheld || (here.tags[way] & dirty) != dirty) {
                others.push_back(chunk.positions[i]);
                return;
            }
            if (age < held) __atomic_store_n(here.needed + way, planned, __ATOMIC_RELAXED);
            uint16_t *const used = here.used + way;
            if (__atomic_load_n(used, __ATOMIC_RELAXED) != planned)
                fresh += __atomic_exchange_n(used, planned, __ATOMIC_RELAXED) != planned;
            ++hits;
            pass.slots[chunk.positions[i]] = slot_of(chunk.sets[choice][i], way);
        });
        pass.hits += hits;
        pass.resident_rows += fresh;
    }

    // The batch ends: its fills are slots as all others.
    static void settle(PlanPass &pass) {
        for (const Listed &fill : pass.listed) {
            if (fill.slot == NO_SLOT) continue;
            Tag &tag = block(pass.directory, fill.slot / WAYS).tags[fill.slot % WAYS];
            tag = tag & static_cast<Tag>(~FILLED);
        }
    }

    static Installed install(Directory &d, uint64_t hash, Partition part,
                             uint8_t number, uint16_t planned, uint16_t retired) {
        Chunk chunk;
        load_one(d, hash, part, chunk);
        const Found found = match_all(d, chunk, 0);
        int choice = found.choice(), way;
        if (found.any())
            return {slot_of(chunk.sets[choice][0], found.way()), true};
        if (!free_way(d, chunk, 0, choice, way)) return {NO_SLOT, false};
        Block &here = block(d, chunk.sets[choice][0]);
        here.tags[way] = chunk.tags[choice][0];
        here.used[way] = planned;
        here.needed[way] = retired;  // no batch needs the slot
        const uint32_t slot = slot_of(chunk.sets[choice][0], way);
        d.numbers.data()[slot] = number;
        return {slot, false};
    }

    static uint32_t remove(Directory &d, uint64_t hash, Partition part) {
        Chunk chunk;
        load_one(d, hash, part, chunk);
        const Found found = match_all(d, chunk, 0);
        if (!found.any()) return NO_SLOT;
        const int choice = found.choice(), way = found.way();
        block(d, chunk.sets[choice][0]).tags[way] = 0;
        return slot_of(chunk.sets[choice][0], way);
    }

    static void sweep(Directory &d, size_t first_set, size_t last_set,
                      uint16_t oldest, uint16_t newest_stamp, bool age_numbers) {
        const uint16_t most = static_cast<uint16_t>(newest_stamp - oldest);  // age of the oldest
        for (size_t set = first_set; set < last_set; ++set) {
            Block &here = block(d, static_cast<uint32_t>(set));
            for (int way = 0; way < WAYS; ++way) {
                const uint16_t used = static_cast<uint16_t>(newest_stamp - here.used[way]);
                const uint16_t needed = static_cast<uint16_t>(newest_stamp - here.needed[way]);
                here.used[way] = used > most ? oldest : here.used[way];
                here.needed[way] = needed > most ? oldest : here.needed[way];
            }
        }
        uint8_t *const numbers = d.numbers.data();
        if (age_numbers)
            for (size_t slot = first_set * WAYS; slot < last_set * WAYS; ++slot)
                numbers[slot] = static_cast<uint8_t>(numbers[slot] - (numbers[slot] > 0));
    }
};

template <class Id>
uint64_t hash_pattern_of(const Id *ids, uint32_t count, const uint64_t *base,
                         const uint64_t *last, uint64_t mask, uint64_t *hashes) {
    uint64_t refused = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t id = ids[i];
        const uint64_t beyond = id > last[i];
        refused += beyond;
        hashes[i] = hash0((base[i] | id), mask) | (0 - beyond);
    }
    return refused;
}

template <class Id>
uint64_t hash_run_of(const Id *ids, uint32_t count, uint64_t base, uint64_t last,
                     uint64_t mask, uint64_t *hashes) {
    uint64_t refused = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t id = ids[i];
        const uint64_t beyond = id > last;
        refused += beyond;
        hashes[i] = hash0((base | id), mask) | (0 - beyond);
    }
    return refused;
}

inline uint64_t hash_pattern(const void *ids, bool wide, uint32_t count, const uint64_t *base,
                             const uint64_t *last, uint64_t mask, uint64_t *hashes) {
    return wide ? hash_pattern_of(static_cast<const uint64_t *>(ids), count, base, last, mask, hashes)
                : hash_pattern_of(static_cast<const uint32_t *>(ids), count, base, last, mask, hashes);
}

inline uint64_t hash_run(const void *ids, bool wide, uint32_t count, uint64_t base, uint64_t last,
                         uint64_t mask, uint64_t *hashes) {
    return wide ? hash_run_of(static_cast<const uint64_t *>(ids), count, base, last, mask, hashes)
                : hash_run_of(static_cast<const uint32_t *>(ids), count, base, last, mask, hashes);
}

template <class Tag, int WAYS>
const Passes &passes() {
    using S = Sets<Tag, WAYS>;
    static constexpr Passes found{hash_pattern, hash_run,  S::find,    S::mark,   S::plan,
                                  S::plan_held, S::settle, S::install, S::remove, S::sweep};
    return found;
}

template <class Tag>
const Passes &passes(int ways) {
    switch (ways) {
        case 2: return passes<Tag, 2>();
        case 4: return passes<Tag, 4>();
        case 8: return passes<Tag, 8>();
        default: return passes<Tag, 16>();
    }
}

}  // namespace

void PlanPass::bypass(uint32_t position, uint64_t hash) {
    const bool known = bypassed.has(hash);
    const uint32_t listed_before = bypassed.listed;
    const uint32_t index = bypassed.add(hash, beat(position));
    if (bypassed.listed != listed_before) listed.push_back({position, NO_SLOT, directory.keys.row_of(hash)});
    if (!known) bypassed_by[hash & (bypassed_by.size() - 1)] = planned;
    bypasses.push_back({position, index});
}

// A row that was bypassed by a batch that is not retired may be read only after that batch. An entry
// with the stamp of this batch was bypassed by another row, and its earlier stamp is lost.
void PlanPass::wait(uint64_t hash) {
    const int64_t by = std::min(bypassed_by[hash & (bypassed_by.size() - 1)], planned - 1);
    if (by > retired) wait_for = std::max(wait_for, by);
}

const Passes &passes_for(const Directory &d) {
    return d.wide ? passes<uint64_t>(d.ways) : passes<uint32_t>(d.ways);
}

}  // namespace hotrow::engine
