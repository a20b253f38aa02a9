// The commands of the lookup queue, on lists in memory.
//
// Answers equal those of hotrow_sim.model.lookup_engine to the bit, whatever the number of threads.

#pragma once

#include <cstdint>
#include <vector>

#include "batch_reader.hpp"
#include "combiner.hpp"
#include "command.hpp"
#include "counters.hpp"
#include "directory.hpp"
#include "geometry.hpp"
#include "lookup_parts.hpp"
#include "memory.hpp"
#include "outcome.hpp"
#include "planner.hpp"
#include "splitter.hpp"
#include "tables.hpp"
#include "workers.hpp"

namespace hotrow::engine {

class LookupEngine {
public:
    LookupEngine(const Geometry &, const Memory &, const Tables &, Workers &);

    // Execute a command that the validator accepts.
    Outcome execute(const Command &, const Addresses &);

    // The register PLAN_RETIRED, which the host reads and writes while commands run.
    uint32_t retired() const { return planner_.retired(); }
    bool retire(uint32_t batch) { return planner_.retire(batch); }

private:
    struct Entries {
        std::vector<Row> rows;
        std::vector<uint8_t> valid;
    };

    Outcome observe(const Command &, const Addresses &);
    Outcome decay(const Command &);
    Outcome harvest(const Command &, const Addresses &);
    Outcome install(const Command &, const Addresses &);
    Outcome remove(const Command &, const Addresses &);
    Outcome split(const Command &, const Addresses &);
    Outcome plan(const Command &, const Addresses &);
    Outcome mark(const Command &, const Addresses &);
    bool place(const Outcome &, Places &) const;

    // Count the lookups of the batch; return the hits.
    uint64_t count(uint32_t *before);
    void read_rows(const Command &, const Addresses &, Entries &, Outcome &);
    Partition partition_of(uint32_t table) const;

    template <class Values>
    void write(Outcome &, uint64_t address, const Values &values, size_t length) const;
    template <class Values>
    void write(Outcome &outcome, uint64_t address, const Values &values) const {
        write(outcome, address, values, values.size());
    }

    const Geometry geometry_;
    const Memory &memory_;
    const Tables &tables_;
    Workers &workers_;
    KeyShape keys_;
    Counters counters_;
    Directory directory_;
    const Passes &passes_;
    BatchReader reader_;
    LookupParts parts_;
    Planner planner_;
    Splitter splitter_;
    PlanResults planned_;
    SplitResults split_;
    std::vector<Combiner> combiners_;  // by part
    std::vector<uint32_t> before_;
};

}  // namespace hotrow::engine
