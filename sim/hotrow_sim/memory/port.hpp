// Base class of the read and the write port of the memory model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory_map.hpp"

namespace hotrow {

// Source: S. Vigna's public-domain description of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint32_t below(uint32_t bound) { return bound < 2 ? 0 : uint32_t(next() % bound); }
  // Draws only if the probability is above 0.
  bool chance(double probability) {
    return probability > 0 && double(next() >> 11) * 0x1p-53 < probability;
  }

 private:
  uint64_t state_;
};

// Behaviour of a port; a ctypes structure.
struct Behaviour {
  uint32_t latency = 1;      // cycles from the address (write: last data) handshake to the response
  uint32_t jitter = 0;       // maximum of random extra cycles per burst
  uint32_t outstanding = 0;  // bursts in flight; 0: any number
  uint8_t out_of_order = 0;  // any id that is due may respond next
  uint8_t interleave = 0;    // also between the beats of a read burst
  double stall_address = 0;  // per cycle: AR or AW not ready
  double stall_data = 0;     // per cycle: no fresh R beat, or W not ready
  double stall_response = 0; // per cycle: no fresh B
  uint64_t seed = 0;
};

// Totals of a port; a ctypes structure.
struct Statistics {
  uint64_t cycles = 0;
  uint64_t bursts = 0;             // address handshakes
  uint64_t beats = 0;              // data handshakes
  uint64_t worst_outstanding = 0;  // bursts
  uint64_t first_request = 0;      // cycle of the first address handshake
  uint64_t last_beat = 0;          // cycle of the last data handshake
};

// The master's signals of an address channel (AR or AW).
struct Address {
  uint64_t address = 0;
  uint32_t id = 0;
  uint8_t valid = 0, length = 0, size = 0, burst = 0;
};

class Port {
 public:
  Port(MemoryMap& map, uint32_t bus_bytes, const Behaviour& behaviour)
      : map_(map), bus_bytes_(bus_bytes), behaviour_(behaviour), random_(behaviour.seed),
        number_(map.dram ? map.dram->add_port() : 0) {}

  // Beats that touch [base, base + size) respond `response` without effect.
  void fail_range(uint64_t base, uint64_t size, uint8_t response) {
    failed_ranges_.push_back({base, size, response});
  }
  // Data beat number `index` of this port, counted from 0 in the order of requests, fails.
  void fail_beat(uint64_t index, uint8_t response) { failed_beats_[index] = response; }
  // In cycles [first, end) the port sends no response and, unless `accept`, accepts no request.
  void silence(uint64_t first, uint64_t end, bool accept) {
    silence_first_ = first, silence_end_ = end, silence_accepts_ = accept;
  }

  uint8_t beat_size() const {  // as on AxSIZE
    uint8_t size = 0;
    while (1u << size < bus_bytes_) ++size;
    return size;
  }
  const Statistics& statistics() const { return statistics_; }
  const std::vector<std::string>& violations() const { return violations_; }

 protected:
  static constexpr size_t MOST_VIOLATIONS = 100;  // a broken run has millions

  void violation(const char* rule, uint64_t value = 0) {
    if (violations_.size() == MOST_VIOLATIONS) return;
    char text[200];
    std::snprintf(text, sizeof text, "cycle %llu: %s (0x%llx)",
                  (unsigned long long)statistics_.cycles, rule, (unsigned long long)value);
    violations_.push_back(text);
  }

  // A valid address must not change until it is accepted.
  void check_held(const Address& now, bool ready) {
    const Address& was = refused_;
    if (was.valid && (!now.valid || was.address != now.address || was.id != now.id ||
                      was.length != now.length || was.size != now.size || was.burst != now.burst))
      violation("address channel changed before it was accepted", was.address);
    refused_ = now;
    refused_.valid = now.valid && !ready;
  }

  void check_burst(const Address& a) {
    if (a.burst != 1) violation("burst is not INCR", a.burst);
    if (1u << a.size != bus_bytes_) violation("beat size is not the bus width", a.size);
    uint64_t first = aligned(a.address), end = first + (a.length + 1u) * uint64_t(bus_bytes_);
    if (first >> 12 != (end - 1) >> 12) violation("burst crosses a 4 KiB boundary", a.address);
  }

  uint64_t aligned(uint64_t address) const { return address & ~uint64_t(bus_bytes_ - 1); }

  // The fault injected into a data beat, if any.
  uint8_t injected(uint64_t index, uint64_t address) const {
    auto beat = failed_beats_.find(index);
    if (beat != failed_beats_.end()) return beat->second;
    for (const auto& range : failed_ranges_)
      if (address < range.base + range.size && range.base < address + bus_bytes_)
        return range.response;
    return OKAY;
  }

  bool silent(uint64_t cycle) const { return cycle >= silence_first_ && cycle < silence_end_; }
  bool refuses(uint64_t cycle) const { return silent(cycle) && !silence_accepts_; }

  // When a burst is served, and the delay of its response.
  struct Timing {
    std::shared_ptr<Service> service;  // null for ideal memory, which serves at once
    uint64_t accepted, delay;
    uint64_t due(size_t beat) const { return (service ? service->done[beat] : accepted) + delay; }
    uint64_t all_due() const {
      return (service ? *std::max_element(service->done.begin(), service->done.end()) : accepted) +
             delay;
    }
  };

  Timing schedule(const Address& request, bool write) {
    const uint64_t now = statistics_.cycles;
    return {map_.dram ? map_.dram->request(number_, now, aligned(request.address),
                                           request.length + 1u, bus_bytes_, write) : nullptr,
            now, std::max(behaviour_.latency, 1u) + random_.below(behaviour_.jitter + 1)};
  }

  // Called in every cycle before responses.
  void let_dram_serve() {
    if (map_.dram) map_.dram->advance(statistics_.cycles);
  }

  void count_request(size_t in_flight) {
    if (statistics_.bursts++ == 0) statistics_.first_request = statistics_.cycles;
    statistics_.worst_outstanding = std::max<uint64_t>(statistics_.worst_outstanding, in_flight);
  }

  bool room(size_t in_flight) const {
    return behaviour_.outstanding == 0 || in_flight < behaviour_.outstanding;
  }

  // Index of the burst in flight (in the order of their requests) that responds next, or -1. Bursts
  // of one id stay in order.
  template <typename Burst>
  int pick(const std::deque<Burst>& bursts, uint64_t cycle) {
    if (bursts.empty()) return -1;
    if (!behaviour_.out_of_order) return bursts.front().due() <= cycle ? 0 : -1;
    due_.clear();
    ++round_;
    for (size_t i = 0; i < bursts.size(); ++i) {
      if (bursts[i].id >= seen_.size()) seen_.resize(bursts[i].id + 1);
      if (seen_[bursts[i].id] == round_) continue;
      seen_[bursts[i].id] = round_;
      if (bursts[i].due() <= cycle) due_.push_back(int(i));
    }
    return due_.empty() ? -1 : due_[random_.below(uint32_t(due_.size()))];
  }

  MemoryMap& map_;
  const uint32_t bus_bytes_;
  const Behaviour behaviour_;
  Random random_;
  const size_t number_;  // port number of the DRAM
  Statistics statistics_;
  Address refused_;  // address channel in the previous cycle, valid if it was not accepted

 private:
  struct FailedRange {
    uint64_t base, size;
    uint8_t response;
  };
  std::vector<uint64_t> seen_;  // by id: the last round of `pick` that saw it
  uint64_t round_ = 0;
  std::vector<int> due_;
  std::vector<FailedRange> failed_ranges_;
  std::map<uint64_t, uint8_t> failed_beats_;
  std::vector<std::string> violations_;
  uint64_t silence_first_ = ~uint64_t(0), silence_end_ = ~uint64_t(0);
  bool silence_accepts_ = false;
};

}  // namespace hotrow
