#include "planner.hpp"

#include <algorithm>

namespace hotrow::engine {

namespace {

constexpr size_t BYPASS_STAMPS = 512;  // of a bank

uint32_t ahead(uint32_t number, int64_t other) { return number - static_cast<uint32_t>(other); }

}  // namespace

Planner::Planner(const Geometry &g, Directory &directory, const Counters &counters,
                 const Passes &passes, Workers &workers)
    : directory_(directory), counters_(counters), passes_(passes), workers_(workers),
      sweep_log2_(g.stamp_bits - 2), oldest_stamp_((1 << (g.stamp_bits - 1)) - 1),
      window_beats_(g.window_beats), bypassed_by_(BYPASS_STAMPS * g.banks(), -1), geometry_(g) {}

uint32_t Planner::retired() const {
    const std::lock_guard<std::mutex> guard(lock_);
    return static_cast<uint32_t>(retired_);
}

bool Planner::retire(uint32_t number) {
    const std::lock_guard<std::mutex> guard(lock_);
    const uint32_t distance = ahead(number, retired_);
    if (distance > planned_ - retired_) return false;
    retired_ += distance;
    return true;
}

void Planner::clear() {
    const std::lock_guard<std::mutex> guard(lock_);
    planned_ = retired_ = newest_bypass_ = -1;
    std::fill(bypassed_by_.begin(), bypassed_by_.end(), -1);
}

bool Planner::accepts(const Command &command, Outcome &outcome) const {
    const std::lock_guard<std::mutex> guard(lock_);
    const uint32_t distance = ahead(command.value, planned_);
    if (opcode_of(command) == Opcode::PLAN ? distance != 1 : !distance || distance >= uint32_t{1} << 31) {
        outcome.status = Status::BATCH_ORDER;
        outcome.error_index = static_cast<uint32_t>(planned_ + 1);
        return false;
    }
    if (planned_ + distance - retired_ > int64_t{1} << sweep_log2_) {
        outcome.status = Status::WINDOW;
        outcome.error_index = static_cast<uint32_t>(retired_);
        return false;
    }
    return true;
}

PolicyState Planner::policy_of(uint32_t flags) {
    return {static_cast<Policy>(
                (flags & (HOTROW_PLAN_POLICY_LOW | HOTROW_PLAN_POLICY_HIGH)) /
                HOTROW_PLAN_POLICY_LOW),
            (flags & HOTROW_PLAN_ADMIT) != 0,
            !(flags & HOTROW_PLAN_READ_ONLY)};
}

uint64_t Planner::mark(const Command &command, const LookupParts &parts) {
    const int64_t batch = planned_ + ahead(command.value, planned_);
    const uint16_t newest = static_cast<uint16_t>(planned_ + (1 << sweep_log2_));
    std::vector<uint64_t> hits(parts.parts());
    workers_.run(parts.parts(), [&](int part) {
        uint64_t found = 0;
        for (const Stream &stream : parts.streams(part))
            found += passes_.mark(directory_, stream, static_cast<uint16_t>(batch), newest);
        hits[part] = found;
    });
    uint64_t total = 0;
    for (const uint64_t found : hits) total += found;
    return total;
}

void Planner::sweep(const PolicyState &policy) {
    const uint16_t oldest = static_cast<uint16_t>(planned_ - oldest_stamp_);
    const uint16_t newest = static_cast<uint16_t>(planned_ + (1 << sweep_log2_));
    const bool age = policy.policy == RRIP && directory_.numbered;
    const size_t sets = directory_.slots / directory_.ways;
    const int parts = workers_.threads();
    workers_.run(parts, [&](int part) {
        passes_.sweep(directory_, sets * part / parts, sets * (part + 1) / parts, oldest, newest,
                      age);
    });
}

void Planner::plan(const Command &command, const BatchReader &reader, LookupParts &parts,
                   const uint32_t *before, PlanResults &results, Outcome &outcome) {
    const PolicyState policy = policy_of(command.flags);
    int64_t retired;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        ++planned_;
        retired = retired_;
    }
    directory_.numbered |= policy.policy != LRU;
    if (planned_ % (1 << sweep_log2_) == 0) sweep(policy);
    const size_t most = static_cast<size_t>(workers_.threads());
    while (bypassed_.size() < most) bypassed_.push_back(std::make_unique<MissedRows>(geometry_));
    lists_.resize(most);
    std::vector<PlanPass> passes;
    passes.reserve(most);
    for (size_t part = 0; part < most; ++part) {
        passes.push_back({directory_, counters_, *bypassed_[part], bypassed_by_, newest_bypass_,
                          policy, planned_, retired, sweep_log2_, reader.beat_shift(),
                          window_beats_, before, results.slots.data(),
                          std::move(lists_[part].listed), std::move(lists_[part].victims), {}});
        passes[part].bypassed.begin();
        passes[part].listed.clear();
        passes[part].victims.clear();
    }
    parts.by_position(reader);
    if (parts.parts() > 1 && !directory_.numbered) {
        others_.resize(parts.parts());
        workers_.run(parts.parts(), [&](int span) {
            others_[span].clear();
            for (const Stream &stream : parts.streams(span))
                passes_.plan_held(passes[span], stream, others_[span]);
        });
        parts.by_set(reader, others_);
    } else {
        parts.by_set(reader);
    }
    workers_.run(parts.parts(), [&](int part) {
        PlanPass &pass = passes[part];
        for (const Stream &stream : parts.streams(part)) passes_.plan(pass, stream);
        passes_.settle(pass);
    });
    merge_results(passes, results, outcome);
    for (size_t part = 0; part < passes.size(); ++part)  // their memory serves the next batch
        lists_[part] = {std::move(passes[part].listed), std::move(passes[part].victims)};
}

void Planner::merge_results(std::vector<PlanPass> &passes, PlanResults &results, Outcome &outcome) {
    Lists listed, victims;
    std::vector<std::vector<uint32_t>> words(passes.size());  // of bypassed rows, by part
    uint64_t hits = 0, resident = 0, rows = 0, bypasses = 0, unkept = 0;
    int64_t wait_for = -1;
    for (PlanPass &pass : passes) {
        listed.push_back(&pass.listed);
        victims.push_back(&pass.victims);
        hits += pass.hits;
        resident += pass.resident_rows;
        rows += pass.bypassed.rows();
        bypasses += pass.bypassed.listed;
        unkept += pass.bypassed.unkept;
        wait_for = std::max(wait_for, pass.wait_for);
    }
    merge(listed, results.fill_slots, results.fills);
    merge(victims, results.victim_slots, results.victims);
    if (bypasses) {  // number them
        uint32_t next = static_cast<uint32_t>(directory_.slots);
        size_t at = 0;
        in_order(listed, [&](size_t part, const Listed &fill) {
            if (fill.slot == NO_SLOT) {
                words[part].push_back(next);
                results.fill_slots[at] = next++;
            }
            ++at;
        });
    }
    for (size_t part = 0; part < passes.size(); ++part)
        for (const BypassedLookup &lookup : passes[part].bypasses)
            results.slots[lookup.position] = words[part][lookup.index];
    if (bypasses) newest_bypass_ = planned_;
    // The bypass table already has the stamp of this batch.
    if (bypasses > rows && planned_ - 1 > passes[0].retired) wait_for = planned_ - 1;

    outcome.hits = static_cast<uint32_t>(hits);
    outcome.misses = static_cast<uint32_t>(outcome.lookups - hits);
    outcome.entries = static_cast<uint32_t>(results.fills.size());
    outcome.evictions = static_cast<uint32_t>(results.victims.size());
    outcome.unique = static_cast<uint32_t>(resident + results.fills.size());
    outcome.bypasses = static_cast<uint32_t>(bypasses);
    outcome.refused = static_cast<uint32_t>(unkept);
    outcome.wait_for = static_cast<uint32_t>(wait_for);
}

Installed Planner::install(uint64_t hash, Partition partition, const PolicyState &policy) {
    directory_.numbered |= policy.policy != LRU;
    const uint8_t number = policy.filled(policy.counts() ? counters_.count_of(hash) : 0);
    return passes_.install(directory_, hash, partition, number, static_cast<uint16_t>(planned_),
                           static_cast<uint16_t>(retired()));
}

}  // namespace hotrow::engine
