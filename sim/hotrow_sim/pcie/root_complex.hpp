// A root complex at the stream of LitePCIe's PHY: it answers the card's requests from a memory map,
// and accesses the card's registers.
//
// Source: PCI Express Base Specification, section 2.2. A double word of a packet has byte 0 in its
// upper bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "../memory/memory_map.hpp"

namespace hotrow {

constexpr uint32_t BOUNDARY = 64;        // bytes: a read is split into completions at multiples
constexpr uint32_t MAX_PAYLOAD = 256;    // bytes of a packet, and of a read request
constexpr uint64_t LEAVING = MAX_PAYLOAD / 8 + 8;  // cycles of the packets that entered the stream
constexpr uint32_t MEMORY = 0, COMPLETION = 0b01010;  // types of packets
constexpr uint32_t SHORT = 0, LONG = 1, DATA = 2;     // formats
constexpr uint32_t UNSUPPORTED = 1;                   // status of a completion
constexpr uint16_t HOST = 0, CARD = 3 << 8;           // bus, device and function

using Packet = std::vector<uint32_t>;  // double words

inline uint32_t swapped(uint32_t value) { return __builtin_bswap32(value); }

class RootComplex {
 public:
  RootComplex(uint32_t latency, uint32_t spread, uint64_t seed)
      : latency_(latency), spread_(spread), random_(seed | 1) {}

  MemoryMap map;
  std::vector<std::string> violations;

  // Bus master enable, an input of the card. Without it no request begins, but for packets that had
  // entered the stream: such reads are unsupported here, and such writes are dropped.
  void master(bool on, uint64_t cycle) {
    if (mastering_ && !on) cleared_ = cycle;
    mastering_ = on;
  }
  bool mastering() const { return mastering_; }

  // Forget all packets.
  void reset() {
    reads_.clear();
    to_card_.clear();
    answer_.reset();
  }

  void request_read(uint32_t address) {
    answer_.reset();
    to_card_.push_back({header(SHORT, MEMORY, 1), request(0xF), address});
  }

  void request_write(uint32_t address, uint32_t value) {
    to_card_.push_back({header(SHORT | DATA, MEMORY, 1), request(0xF), address, swapped(value)});
  }

  // Status and value of the register read, once it is complete.
  struct Answer {
    uint32_t status, value;
  };
  const std::optional<Answer>& answer() const { return answer_; }

  // Accept a packet of the card.
  void receive(const Packet& packet, uint64_t cycle) {
    const uint32_t format = packet[0] >> 29, type = packet[0] >> 24 & 0x1F;
    const uint32_t length = packet[0] & 0x3FF;  // double words
    const size_t header = format & LONG ? 4 : 3;
    if (packet.size() < header || packet.size() != header + (format & DATA ? length : 0))
      return violation("a packet of a wrong length", packet);
    if (type == COMPLETION) {
      if (answer_ || packet[2] >> 16 != HOST) return violation("a completion of nothing", packet);
      const uint32_t status = packet[1] >> 13 & 7;
      answer_ = Answer{status, format & DATA && !status ? swapped(packet[3]) : ~0u};
      return;
    }
    if (type != MEMORY) return violation("a packet of an unknown type", packet);
    if (!mastering_ && cycle > cleared_ + LEAVING)
      return violation("a request without bus master enable", packet);
    if (packet[1] >> 16 != CARD) violation("a wrong requester", packet);
    if (4 * length > MAX_PAYLOAD || length == 0) return violation("a packet too long", packet);
    const uint64_t address = format & LONG ? uint64_t(packet[2]) << 32 | packet[3] : packet[2];
    if (address % 4096 + 4 * length > 4096) violation("a request over the end of a page", packet);
    if (format & DATA)
      write(address, &packet[header], length, packet[1] & 0xF, packet[1] >> 4 & 0xF);
    else
      read(address, length, packet[1] >> 8 & 0xFF, cycle, packet);
  }

  // The next packet to the card, if there is one.
  std::optional<Packet> send(uint64_t cycle) {
    if (!to_card_.empty() && (reads_.empty() || chance())) return take(to_card_);
    std::vector<size_t> due;
    for (size_t i = 0; i < reads_.size(); ++i)
      if (reads_[i].due <= cycle) due.push_back(i);
    if (due.empty()) return {};
    Read& chosen = reads_[due[spread_ ? next() % due.size() : 0]];
    Packet packet = take(chosen.completions);
    if (chosen.completions.empty()) reads_.erase(reads_.begin() + (&chosen - reads_.data()));
    return packet;
  }

 private:
  struct Read {
    uint32_t tag;
    uint64_t due;
    std::deque<Packet> completions;
  };

  static uint32_t header(uint32_t format, uint32_t type, uint32_t length) {
    return format << 29 | type << 24 | length;
  }
  static uint32_t request(uint32_t first_strobes) { return uint32_t(HOST) << 16 | first_strobes; }

  void write(uint64_t address, const uint32_t* data, uint32_t length, uint32_t first,
             uint32_t last) {
    if (!mastering_) return;
    std::vector<uint8_t> octets(4 * length);
    for (uint32_t i = 0; i < length; ++i) {
      const uint32_t value = swapped(data[i]);
      std::memcpy(&octets[4 * i], &value, 4);
    }
    if (length == 1) {
      map.write(address, 4, octets.data(), first);
      return;
    }
    // With several double words the written bytes are consecutive.
    uint32_t from = std::countr_zero(first);
    const uint32_t end = 4 * (length - 1) + std::bit_width(last);
    for (uint32_t part; from < end; from += part) {
      part = std::min(end - from, 64u);
      map.write(address + from, part, &octets[from], ~uint64_t(0));
    }
  }

  // Reads the memory here, at the earliest moment; it is split and answered later.
  void read(uint64_t address, uint32_t length, uint32_t tag, uint64_t cycle,
            const Packet& packet) {
    for (const Read& other : reads_)
      if (other.tag == tag) return violation("a tag in use", packet);
    const uint32_t size = 4 * length;
    Read made{tag, cycle + latency_ + (spread_ ? next() % (spread_ + 1) : 0), {}};
    std::vector<uint8_t> octets(size);
    if (!mastering_ || map.read(address, size, octets.data()) != OKAY) {
      made.completions.push_back({header(SHORT, COMPLETION, 0),
                                  UNSUPPORTED << 13 | (size & 0xFFF), completer(tag, address)});
    } else {
      for (uint32_t done = 0; done < size;) {
        uint32_t part = BOUNDARY - (address + done) % BOUNDARY;
        while (part < size - done && chance()) part += BOUNDARY;
        part = std::min(part, size - done);
        Packet completion{header(SHORT | DATA, COMPLETION, part / 4), (size - done) & 0xFFF,
                          completer(tag, address + done)};
        for (uint32_t i = 0; i < part; i += 4) {
          uint32_t value;
          std::memcpy(&value, &octets[done + i], 4);
          completion.push_back(swapped(value));
        }
        made.completions.push_back(std::move(completion));
        done += part;
      }
    }
    reads_.push_back(std::move(made));
  }

  static uint32_t completer(uint32_t tag, uint64_t address) {
    return uint32_t(CARD) << 16 | tag << 8 | (address & 0x7F);
  }

  static Packet take(std::deque<Packet>& packets) {
    Packet packet = std::move(packets.front());
    packets.pop_front();
    return packet;
  }

  void violation(const char* what, const Packet& packet) {
    char text[128];
    std::snprintf(text, sizeof text, "%s: %zu double words, %08x %08x", what, packet.size(),
                  packet[0], packet.size() > 1 ? packet[1] : 0);
    violations.push_back(text);
  }

  uint32_t next() {
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return random_ >> 32;
  }
  bool chance() { return next() & 1; }

  const uint32_t latency_, spread_;
  bool mastering_ = false;
  uint64_t cleared_ = 0;  // in which cycle
  uint64_t random_;
  std::vector<Read> reads_;
  std::deque<Packet> to_card_;
  std::optional<Answer> answer_;
};

}  // namespace hotrow
