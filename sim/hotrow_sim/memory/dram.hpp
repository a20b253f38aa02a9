// Timing of DRAM: channels of banks with open rows, and their controller.
//
// The structure follows LiteDRAM's controller: each port's accesses, of one bus word, enter the
// queue of their bank in order, and each bank serves its queue in order. Per channel and cycle one
// bank reads or writes and one bank opens or closes a row, round robin. A channel keeps its
// direction for a minimum time. This model returns times only; the data that ports read and write
// does not depend on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace hotrow {

// In cycles of the card's clock unless stated otherwise; a ctypes structure.
struct DramTiming {
  uint32_t channels, interleave;  // consecutive bytes in one channel
  uint32_t banks, page;           // of a channel; bytes of a bank's row
  uint32_t word;                  // time of one bus word on a channel's data bus, in 1/256 cycles
  uint32_t activate;              // from opening a row to its first access (tRCD)
  uint32_t precharge;             // from closing a row to opening the next (tRP)
  uint32_t open;                  // from opening to closing, at least (tRAS)
  uint32_t read, write;           // from a command to its data (CL, CWL)
  uint32_t read_to_close;         // tRTP
  uint32_t write_recovery;        // from the last data to closing (tWR)
  uint32_t write_to_read;         // from the last data to a read command (tWTR)
  uint32_t read_to_write;         // idle cycles between their data
  uint32_t row_to_row;            // between openings of two banks (tRRD)
  uint32_t four_rows;             // window for at most four openings (tFAW)
  uint32_t refresh_interval, refresh;  // tREFI; tRFC, in which all banks are busy
  uint32_t queue;                 // accesses in the queue of a bank
  uint32_t read_turn, write_turn; // cycles until the other direction may start
};

// Service of a burst: the cycle of each beat's data.
struct Service {
  static constexpr uint64_t NEVER = ~uint64_t(0) >> 1;
  explicit Service(size_t beats) : done(beats, NEVER) {}
  std::vector<uint64_t> done;
};

// Totals of the controller; a ctypes structure.
struct DramStatistics {
  uint64_t reads = 0, writes = 0;  // bus words
  uint64_t opened = 0;             // rows
  uint64_t refreshes = 0, turns = 0;
};

// The controller of all channels. Its ports tick in lockstep; see memory_model.hpp.
class Dram {
 public:
  explicit Dram(const DramTiming& timing)
      : timing_(timing), channels_(timing.channels, Channel(timing)) {}

  size_t add_port() {
    ports_.emplace_back();
    return ports_.size() - 1;
  }

  // Accept a burst of consecutive bus words in `cycle`.
  std::shared_ptr<Service> request(size_t port, uint64_t cycle, uint64_t address, size_t beats,
                                   uint32_t bus_bytes, bool write) {
    auto service = std::make_shared<Service>(beats);
    for (size_t beat = 0; beat < beats; ++beat)
      ports_[port].push_back({service, beat, address + beat * bus_bytes, cycle, write});
    return service;
  }

  // Simulate the cycles up to `cycle`.
  void advance(uint64_t cycle) {
    for (; served_ < cycle; ++served_) step(served_ + 1);
  }

  const DramStatistics& statistics() const { return statistics_; }

 private:
  static constexpr uint64_t CLOSED = ~uint64_t(0);

  struct Access {
    std::shared_ptr<Service> service;
    size_t beat;
    uint64_t address, arrived;
    bool write;
  };
  struct Waiting {
    std::shared_ptr<Service> service;
    size_t beat;
    uint64_t row;
    bool write;
  };
  struct Bank {
    std::deque<Waiting> queue;
    uint64_t row = CLOSED;
    uint64_t may_open = 0, may_access = 0, may_close = 0;
    uint64_t fed = 0;  // cycle of the last access that entered the queue
  };
  struct Channel {
    explicit Channel(const DramTiming& timing)
        : banks(timing.banks), next_refresh(timing.refresh_interval) {}
    std::vector<Bank> banks;
    size_t waiting = 0, access_turn = 0, row_turn = 0;
    bool writing = false;
    uint64_t turned = 0;
    uint64_t may_read = 0, may_write = 0;  // in 1/256 cycles
    uint64_t may_open = 0, opened[4] = {};
    size_t openings = 0;
    uint64_t next_refresh;
  };

  void step(uint64_t now) {
    for (size_t i = 0; i < ports_.size(); ++i) feed(ports_[(i + now) % ports_.size()], now);
    for (Channel& channel : channels_) {
      if (now >= channel.next_refresh) {
        refresh(channel, now);
      } else if (channel.waiting) {
        access(channel, now);
        change_row(channel, now);
      }
    }
  }

  // The oldest access of a port enters the queue of its bank, one per cycle.
  void feed(std::deque<Access>& port, uint64_t now) {
    if (port.empty() || port.front().arrived >= now) return;
    Access& access = port.front();
    const uint64_t block = access.address / timing_.interleave;
    Channel& channel = channels_[block % timing_.channels];
    const uint64_t local = block / timing_.channels * timing_.interleave +
                           access.address % timing_.interleave;
    const uint64_t page = local / timing_.page;
    Bank& bank = channel.banks[page % timing_.banks];
    if (bank.queue.size() >= timing_.queue || bank.fed == now) return;
    bank.queue.push_back({std::move(access.service), access.beat, page / timing_.banks,
                          access.write});
    bank.fed = now;
    ++channel.waiting;
    port.pop_front();
  }

  // Close all banks once every bank may close; they are busy during the refresh.
  void refresh(Channel& channel, uint64_t now) {
    for (const Bank& bank : channel.banks)
      if (bank.row != CLOSED && now < bank.may_close) return;
    for (Bank& bank : channel.banks) {
      bank.row = CLOSED;
      bank.may_open = std::max(bank.may_open, now + timing_.precharge + timing_.refresh);
    }
    channel.next_refresh += timing_.refresh_interval;
    ++statistics_.refreshes;
  }

  bool may_access(const Bank& bank, uint64_t now) const {
    return !bank.queue.empty() && bank.queue.front().row == bank.row && now >= bank.may_access;
  }

  // One bank reads or writes.
  void access(Channel& channel, uint64_t now) {
    bool reads = false, writes = false;
    for (const Bank& bank : channel.banks)
      if (may_access(bank, now)) (bank.queue.front().write ? writes : reads) = true;
    const bool same = channel.writing ? writes : reads, other = channel.writing ? reads : writes;
    const uint64_t turn = channel.writing ? timing_.write_turn : timing_.read_turn;
    if (other && (!same || now - channel.turned >= turn)) {
      channel.writing = !channel.writing;
      channel.turned = now;
      ++statistics_.turns;
    }
    uint64_t& may = channel.writing ? channel.may_write : channel.may_read;
    if (may >= (now + 1) << 8) return;  // the data bus is busy in this cycle
    for (size_t i = 0; i < channel.banks.size(); ++i) {
      const size_t number = (channel.access_turn + i) % channel.banks.size();
      Bank& bank = channel.banks[number];
      if (!may_access(bank, now) || bank.queue.front().write != channel.writing) continue;
      channel.access_turn = number + 1;
      serve(channel, bank, now, std::max(may, now << 8));
      return;
    }
  }

  // `begin`: time of the command in 1/256 cycles; its data follow `read` or `write` later.
  void serve(Channel& channel, Bank& bank, uint64_t now, uint64_t begin) {
    const Waiting waiting = std::move(bank.queue.front());
    bank.queue.pop_front();
    --channel.waiting;
    const uint64_t end = begin + timing_.word, over = (end + 255) >> 8;
    if (waiting.write) {
      ++statistics_.writes;
      waiting.service->done[waiting.beat] = over + timing_.write;
      bank.may_close = std::max(bank.may_close, over + timing_.write + timing_.write_recovery);
      channel.may_write = end;
      channel.may_read = end + (uint64_t(timing_.write + timing_.write_to_read) << 8);
    } else {
      ++statistics_.reads;
      waiting.service->done[waiting.beat] = over + timing_.read;
      bank.may_close = std::max(bank.may_close, now + timing_.read_to_close);
      channel.may_read = end;
      const uint64_t longer = timing_.read + timing_.read_to_write;
      channel.may_write = end + ((longer - std::min<uint64_t>(longer, timing_.write)) << 8);
    }
  }

  // One bank closes a row that its next access does not use, or opens the row of that access.
  void change_row(Channel& channel, uint64_t now) {
    for (size_t i = 0; i < channel.banks.size(); ++i) {
      const size_t number = (channel.row_turn + i) % channel.banks.size();
      Bank& bank = channel.banks[number];
      if (bank.queue.empty() || bank.row == bank.queue.front().row) continue;
      if (bank.row != CLOSED) {
        if (now < bank.may_close) continue;
        bank.row = CLOSED;
        bank.may_open = std::max(bank.may_open, now + timing_.precharge);
      } else {
        uint64_t& fourth = channel.opened[channel.openings % 4];
        if (now < bank.may_open || now < channel.may_open ||
            (channel.openings >= 4 && now < fourth + timing_.four_rows)) continue;
        bank.row = bank.queue.front().row;
        bank.may_access = now + timing_.activate;
        bank.may_close = now + timing_.open;
        channel.may_open = now + timing_.row_to_row;
        fourth = now;
        ++channel.openings;
        ++statistics_.opened;
      }
      channel.row_turn = number + 1;
      return;
    }
  }

  const DramTiming timing_;
  std::vector<Channel> channels_;
  std::vector<std::deque<Access>> ports_;
  uint64_t served_ = 0;  // cycles
  DramStatistics statistics_;
};

}  // namespace hotrow
