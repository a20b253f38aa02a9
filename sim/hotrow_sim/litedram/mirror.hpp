// Synchronises the host's arrays with their copies in LiteDRAM's memory, over the host's port.
//
// Lists and results are in the host's memory; rows are in the DRAM. Before a doorbell, `push`
// writes the bytes that the host or a result port changed; when the host reads COMPLETED, `pull`
// reads what the row ports wrote. Both transfer changed bytes only, so neither overwrites the
// other's.
#pragma once

#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "row_ports.hpp"

namespace hotrow {

class Mirror {
 public:
  explicit Mirror(Controller& controller) : controller_(controller) {}

  void map(uint64_t base, uint64_t size, uint8_t* host, bool writable) {
    arrays_[base] = {size, host, writable, {}};
  }
  void unmap(uint64_t base) { arrays_.erase(base); }

  // The DRAM was powered up and holds nothing.
  void forget() {
    for (auto& [base, array] : arrays_) array.copy.clear();
  }

  // Write changed bytes to the DRAM.
  void push() {
    for (auto& [base, array] : arrays_) {
      const bool all = array.copy.empty();
      if (all) array.copy.assign(array.host, array.host + array.size);
      for (uint64_t page = base / PAGE * PAGE; page < base + array.size; page += PAGE)
        push_page(base, array, page, all);
    }
    send();
  }

  // Read the bursts that the row ports wrote.
  void pull(const std::vector<LiteDramWrite::Burst>& written) {
    receive(written);
    size_t at = 0;
    for (const auto& [address, beats] : written)
      for (uint32_t beat = 0; beat < beats; ++beat, at += WORD)
        keep(address + uint64_t(beat) * WORD, &received_[at]);
  }

 private:
  static constexpr uint64_t PAGE = 4096, WORD = HOTROW_BUS_BYTES;
  static constexpr uint32_t MOST_BEATS = 256;  // of an AXI4 burst
  static constexpr int MOST_CYCLES = 100000;  // without a response, until an error

  struct Array {
    uint64_t size;
    uint8_t* host;
    bool writable;
    std::vector<uint8_t> copy;  // contents of the DRAM; empty before the first push
  };

  // The bytes of a range that belong to an array.
  struct Part {
    uint64_t first, size;
  };
  static Part part(uint64_t base, const Array& array, uint64_t address, uint64_t size) {
    const uint64_t first = std::max(base, address);
    const uint64_t end = std::min(base + array.size, address + size);
    return {first - base, end - first};
  }

  void push_page(uint64_t base, Array& array, uint64_t page, bool all) {
    const Part whole = part(base, array, page, PAGE);
    uint8_t *host = array.host, *copy = array.copy.data();
    if (!all && !std::memcmp(host + whole.first, copy + whole.first, whole.size)) return;
    const uint64_t first = (base + whole.first) / WORD * WORD;
    for (uint64_t word = first; word < base + whole.first + whole.size; word += WORD) {
      const Part some = part(base, array, word, WORD);
      if (!all && !std::memcmp(host + some.first, copy + some.first, some.size)) continue;
      const uint64_t shift = base + some.first - word;
      uint64_t strobe = 0;
      for (uint64_t i = 0; i < some.size; ++i)
        strobe |= uint64_t(all || host[some.first + i] != copy[some.first + i]) << (shift + i);
      std::memcpy(copy + some.first, host + some.first, some.size);
      if (bursts_.empty() || bursts_.back().first + bursts_.back().second * WORD != word ||
          word % PAGE == 0 || bursts_.back().second == MOST_BEATS)
        bursts_.push_back({word, 0});
      ++bursts_.back().second;
      sent_.resize(sent_.size() + WORD);
      std::memcpy(&sent_[sent_.size() - WORD + shift], host + some.first, some.size);
      strobes_.push_back(strobe);
    }
  }

  void keep(uint64_t word, const uint8_t* data) {
    auto above = arrays_.upper_bound(word + WORD - 1);
    if (above == arrays_.begin()) return;
    auto& [base, array] = *std::prev(above);
    if (word >= base + array.size || !array.writable || array.copy.empty()) return;
    const Part some = part(base, array, word, WORD);
    for (uint64_t i = 0; i < some.size; ++i) {
      const uint8_t is = data[base + some.first - word + i];
      uint8_t& was = array.copy[some.first + i];
      if (is != was) array.host[some.first + i] = was = is;
    }
  }

  // Deassert all requests; the accelerator's clock stands still meanwhile.
  void rest() {
    for (const CorePort& port : CORE_PORTS) {
      port.drive_read(controller_.core(), {});
      port.drive_write(controller_.core(), {});
    }
  }

  void send() {
    const CorePort& port = CORE_PORTS[HOST_PORT];
    WriteOutputs out;
    size_t asked = 0, filled = 0, answered = 0, sent = 0;
    uint32_t beat = 0;
    rest();
    for (int idle = 0; answered < bursts_.size();) {
      WriteInputs in{};
      in.awvalid = asked < bursts_.size();
      if (in.awvalid) in.awaddr = bursts_[asked].first, in.awlen = bursts_[asked].second - 1;
      in.awsize = size(), in.awburst = 1, in.bready = 1;
      in.wvalid = filled < bursts_.size();
      if (in.wvalid) {
        in.wlast = beat + 1 == bursts_[filled].second;
        in.wstrb = strobes_[sent / WORD];
        std::memcpy(in.wdata, &sent_[sent], WORD);
      }
      port.drive_write(controller_.core(), in);
      port.sample_write(controller_.core(), out);
      asked += in.awvalid && out.awready;
      if (in.wvalid && out.wready) {
        sent += WORD;
        beat = in.wlast ? 0 : beat + 1;
        filled += in.wlast;
      }
      answered += out.bvalid;
      idle = out.bvalid ? 0 : idle + 1;
      if (idle > MOST_CYCLES) throw std::runtime_error("LiteDRAM does not answer the host");
      controller_.cycle();
    }
    rest();
    bursts_.clear();
    sent_.clear();
    strobes_.clear();
  }

  void receive(const std::vector<LiteDramWrite::Burst>& bursts) {
    const CorePort& port = CORE_PORTS[HOST_PORT];
    ReadOutputs out;
    size_t asked = 0, ended = 0;
    received_.clear();
    rest();
    for (int idle = 0; ended < bursts.size();) {
      ReadInputs in{};
      in.arvalid = asked < bursts.size();
      if (in.arvalid) in.araddr = bursts[asked].first, in.arlen = bursts[asked].second - 1;
      in.arsize = size(), in.arburst = 1, in.rready = 1;
      port.drive_read(controller_.core(), in);
      port.sample_read(controller_.core(), out);
      asked += in.arvalid && out.arready;
      if (out.rvalid) received_.insert(received_.end(), out.rdata, out.rdata + WORD);
      ended += out.rvalid && out.rlast;
      idle = out.rvalid ? 0 : idle + 1;
      if (idle > MOST_CYCLES) throw std::runtime_error("LiteDRAM does not answer the host");
      controller_.cycle();
    }
    rest();
  }

  static uint8_t size() {
    uint8_t size = 0;
    while (uint64_t(1) << size < WORD) ++size;
    return size;
  }

  Controller& controller_;
  std::map<uint64_t, Array> arrays_;
  std::vector<LiteDramWrite::Burst> bursts_;
  std::vector<uint8_t> sent_, received_;
  std::vector<uint64_t> strobes_;  // per word of `sent_`
};

}  // namespace hotrow
