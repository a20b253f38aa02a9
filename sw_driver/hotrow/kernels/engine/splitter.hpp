// SPLIT: the slots of a batch, its missed rows, and its popular samples.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "batch_reader.hpp"
#include "directory.hpp"
#include "lookup_parts.hpp"
#include "lookup_passes.hpp"
#include "missed_rows.hpp"
#include "outcome.hpp"
#include "workers.hpp"

namespace hotrow::engine {

constexpr uint32_t MISS_FLAG = HOTROW_MISS_FLAG;  // in the word of a miss, beside its list index

// The results of a SPLIT; their memory serves the next one.
struct SplitResults {
    std::vector<uint32_t> slots, popular, nonpopular;
    std::vector<Row> misses;
};

class Splitter {
public:
    Splitter(const Geometry &g, const Directory &directory, const Passes &passes, Workers &workers)
        : geometry_(g), directory_(directory), passes_(passes), workers_(workers) {}

    void split(const BatchReader &, LookupParts &, SplitResults &, Outcome &);

private:
    struct Part {
        MissedRows rows;
        std::vector<Listed> listed;
        std::vector<BypassedLookup> missed;

        explicit Part(const Geometry &g) : rows(g) {}
    };

    static void list_missed(const BatchReader &, const KeyShape &, const std::vector<Stream> &,
                            Part &);

    const Geometry &geometry_;
    const Directory &directory_;
    const Passes &passes_;
    Workers &workers_;
    std::vector<std::unique_ptr<Part>> parts_;
    std::vector<std::vector<uint32_t>> missed_;  // by span
    std::vector<uint8_t> cold_;
};

}  // namespace hotrow::engine
