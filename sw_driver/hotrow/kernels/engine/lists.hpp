// Lists of a command in memory, with the fault of each element.

#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "outcome.hpp"

namespace hotrow::engine {

template <class Element>
class List {
public:
    // Without an address the list is empty and has no faults.
    List() = default;

    void read(const Memory &memory, uint64_t address, uint64_t count, uint32_t bus_bytes) {
        per_word_ = bus_bytes / sizeof(Element);
        data_ = reinterpret_cast<const Element *>(memory.view(address, count * sizeof(Element)));
        if (data_) return;
        memory.read(address, count * sizeof(Element), octets_, faults_);
        data_ = reinterpret_cast<const Element *>(octets_.data());
    }

    // The elements `make(of[at], at)`, each with the fault of its origin.
    template <class Origin, class Make>
    void derive(const List<Origin> &of, uint64_t count, const Make &make) {
        per_word_ = of.per_word_;
        faults_ = of.faults_;
        octets_.resize(count * sizeof(Element));
        auto *const made = reinterpret_cast<Element *>(octets_.data());
        for (uint64_t at = 0; at < count; ++at) made[at] = make(of[at], at);
        data_ = made;
    }

    bool present() const { return data_; }
    bool sound() const { return faults_.empty(); }  // no element has a fault
    const Element *data() const { return data_; }
    const Element &operator[](uint64_t at) const { return data_[at]; }
    Status status(uint64_t at) const {
        return sound() ? Status::OK : fault_status(faults_[at / per_word_]);
    }

private:
    template <class>
    friend class List;

    const Element *data_ = nullptr;
    uint64_t per_word_ = 1;
    std::vector<uint8_t> octets_, faults_;
};

// The first error of a list whose parts are served by several threads.
struct FirstError {
    uint64_t position = ~uint64_t{0};
    uint64_t rank = 0;  // among the errors of one position
    Status status = Status::OK;
    uint64_t address = 0;

    void note(uint64_t at, Status found, uint64_t packed = 0, uint64_t order = 0) {
        if (at > position || (at == position && order >= rank)) return;
        *this = {at, order, found, packed};
    }
    void note(const FirstError &other) {
        if (other.status != Status::OK)
            note(other.position, other.status, other.address, other.rank);
    }
    void report(Outcome &outcome) const {
        if (status == Status::OK) return;
        outcome.status = status;
        outcome.error_index = position;
        outcome.error_address = address;
    }
};

// What one thread did.
struct alignas(64) Done {
    FirstError error;
    uint64_t entries = 0, bytes = 0;
};

inline Outcome total(const std::vector<Done> &parts) {
    Outcome outcome;
    FirstError error;
    for (const Done &part : parts) {
        error.note(part.error);
        outcome.entries += static_cast<uint32_t>(part.entries);
        outcome.bytes += part.bytes;
    }
    error.report(outcome);
    return outcome;
}

// The part of the destinations that a number belongs to.
inline int part_of(uint64_t number, int parts) {
    return static_cast<int>(((number * 0x9E3779B97F4A7C15u >> 32) * parts) >> 32);
}

}  // namespace hotrow::engine
