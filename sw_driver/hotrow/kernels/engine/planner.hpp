// PLAN and MARK: slots for the rows of coming batches, with the host's batch numbers.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "command.hpp"
#include "counters.hpp"
#include "directory.hpp"
#include "lookup_parts.hpp"
#include "lookup_passes.hpp"
#include "missed_rows.hpp"
#include "outcome.hpp"
#include "workers.hpp"

namespace hotrow::engine {

// The results of a PLAN; their memory serves the next one.
struct PlanResults {
    std::vector<uint32_t> slots, fill_slots, victim_slots;
    std::vector<Row> fills, victims;
};

class Planner {
public:
    Planner(const Geometry &, Directory &, const Counters &, const Passes &, Workers &);

    // The number of batches retired, as the register PLAN_RETIRED has it. The host writes the
    // register while commands run.
    uint32_t retired() const;
    // End the holds of a batch and all before it; false if the batch is not planned.
    bool retire(uint32_t number);
    // Forget all batches.
    void clear();

    // Whether a PLAN or MARK is in order and in the window; otherwise `outcome` has the error.
    bool accepts(const Command &, Outcome &outcome) const;

    // Hold the rows; return the number of lookups that have a slot.
    uint64_t mark(const Command &, const LookupParts &);

    // Plan a batch. `before`: count of the row before each owner, or null.
    void plan(const Command &, const BatchReader &, LookupParts &, const uint32_t *before,
              PlanResults &, Outcome &outcome);

    Installed install(uint64_t hash, Partition, const PolicyState &);

    static PolicyState policy_of(uint32_t flags);

private:
    void sweep(const PolicyState &);
    void merge_results(std::vector<PlanPass> &, PlanResults &, Outcome &);

    Directory &directory_;
    const Counters &counters_;
    const Passes &passes_;
    Workers &workers_;
    int sweep_log2_, oldest_stamp_;
    int64_t window_beats_;

    mutable std::mutex lock_;
    int64_t planned_ = -1, retired_ = -1;
    std::vector<int64_t> bypassed_by_;
    int64_t newest_bypass_ = -1;
    struct PartLists {
        std::vector<Listed> listed, victims;
    };
    std::vector<std::unique_ptr<MissedRows>> bypassed_;  // by part
    std::vector<PartLists> lists_;
    std::vector<std::vector<uint32_t>> others_;  // by span
    const Geometry &geometry_;
};

}  // namespace hotrow::engine
