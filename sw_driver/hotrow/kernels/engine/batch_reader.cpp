#include "batch_reader.hpp"

#include <algorithm>

namespace hotrow::engine {

namespace {

constexpr uint32_t PATTERN = 256;        // lookups of a pattern, at least

}  // namespace

BatchReader::BatchReader(const Geometry &geometry, const Memory &memory, const Tables &tables)
    : geometry_(geometry), memory_(memory), table_of_(tables), keys_(geometry),
      partitions_(geometry.tables) {}

bool BatchReader::feature_major() const { return flags_ & HOTROW_BATCH_FEATURE_MAJOR; }

bool BatchReader::read(const Command &command, const Addresses &addresses, const Passes &passes,
                       Outcome &outcome) {
    flags_ = command.flags;
    count_ = command.count;
    samples_ = command.samples;
    wide_ = flags_ & HOTROW_BATCH_ID64;
    jagged_ = flags_ & HOTROW_BATCH_JAGGED;
    const uint32_t lanes = geometry_.lanes();
    beat_shift_ = log2_of(static_cast<uint64_t>(std::max<uint32_t>(1, wide_ ? lanes / 2 : lanes)));
    columns_.resize(command.table_count);
    partitioned_ = false;
    for (uint32_t column = 0; column < command.table_count; ++column) {
        const uint32_t number = command.first_table + column;
        const auto &table = *table_of_.find(number);
        columns_[column] = {uint64_t{number} << keys_.row_width, table.last_row,
                            static_cast<uint16_t>(number)};
        partitions_[number] = {static_cast<uint8_t>(table.parts_log2),
                               static_cast<uint8_t>(table.part)};
        partitioned_ |= table.parts_log2 > 0;
    }
    if (jagged_ && !read_lengths(addresses, outcome)) return false;

    const uint64_t bytes = uint64_t{count_} * (wide_ ? 8 : 4);
    faults_.clear();
    ids_ = view(addresses, addresses.source, bytes);
    if (!ids_) {
        memory_.read(addresses.source, bytes, octets_, faults_);
        ids_ = octets_.data();
    }
    if (hashes_.size() < count_) hashes_.resize(count_);
    if (partitioned_ && tables_.size() < count_) tables_.resize(count_);
    read_columns();

    hash_lookups(passes);
    refuse_faulty(outcome);
    outcome.lookups = static_cast<uint32_t>(count_ - refused_);
    return true;
}

const uint8_t *BatchReader::view(const Addresses &addresses, uint64_t address,
                                 uint64_t size) const {
    if (addresses.places) return reinterpret_cast<const uint8_t *>(address);
    return memory_.view(address, size);
}

bool BatchReader::read_lengths(const Addresses &addresses, Outcome &outcome) {
    const uint64_t bags = uint64_t{samples_} * columns_.size();
    const uint8_t *octets = view(addresses, addresses.lengths, 2 * bags);
    if (!octets) {
        memory_.read(addresses.lengths, 2 * bags, length_octets_, faults_);
        for (const uint8_t fault : faults_) {
            if (!fault) continue;
            outcome.status = fault_status(fault);
            return false;
        }
        octets = length_octets_.data();
    }
    lengths_ = reinterpret_cast<const uint16_t *>(octets);
    starts_.resize(bags + 1);
    uint64_t sum = 0;
    for (uint64_t bag = 0; bag < bags; ++bag) {
        starts_[bag] = static_cast<uint32_t>(std::min<uint64_t>(sum, count_));
        sum += lengths_[bag];
    }
    starts_[bags] = count_;
    if (sum == count_) return true;
    outcome.status = Status::LOOKUPS;
    outcome.error_index = sum;
    return false;
}

void BatchReader::read_columns() {
    if (jagged_ || feature_major()) return;
    const size_t width = columns_.size(), length = (PATTERN + width - 1) / width * width;
    base_.resize(length);
    last_.resize(length);
    for (size_t at = 0; at < length; ++at) {
        base_[at] = columns_[at % width].base;
        last_[at] = columns_[at % width].last;
    }
}

template <class Run>
void BatchReader::runs(const Run &run) const {
    if (!jagged_) {  // feature after feature
        for (uint32_t at = 0, column = 0; at < count_; at += samples_, ++column)
            run(at, static_cast<uint32_t>(std::min<uint64_t>(count_, uint64_t{at} + samples_)),
                column);
        return;
    }
    for (uint64_t bag = 0; bag + 1 < starts_.size(); ++bag)
        if (starts_[bag + 1] > starts_[bag]) run(starts_[bag], starts_[bag + 1], column_of(bag));
}

void BatchReader::hash_lookups(const Passes &passes) {
    const uint64_t mask = low_bits(keys_.key_width);
    const size_t id_bytes = wide_ ? 8 : 4;
    refused_ = 0;
    if (!jagged_ && !feature_major()) {
        const uint32_t width = static_cast<uint32_t>(columns_.size());
        const uint32_t length = static_cast<uint32_t>(base_.size());
        for (uint32_t at = 0; at < count_;) {
            const uint32_t count = std::min(length, count_ - at);
            refused_ += passes.hash_pattern(ids_ + at * id_bytes, wide_, count, base_.data(),
                                            last_.data(), mask, hashes_.data() + at);
            if (partitioned_)
                for (uint32_t i = 0; i < count; ++i) tables_[at + i] = columns_[i % width].table;
            at += count;
        }
    } else {
        runs([&](uint32_t first, uint32_t last, uint32_t column) {
            refused_ += passes.hash_run(ids_ + first * id_bytes, wide_, last - first,
                                        columns_[column].base, columns_[column].last, mask,
                                        hashes_.data() + first);
            if (partitioned_)
                std::fill(tables_.begin() + first, tables_.begin() + last, columns_[column].table);
        });
    }
}

// Refuse the ids in faulty bus words, and report the first error.
void BatchReader::refuse_faulty(Outcome &outcome) {
    const uint32_t per_word = static_cast<uint32_t>(geometry_.bus_bytes) / (wide_ ? 8 : 4);
    const auto first_fault = std::find_if(faults_.begin(), faults_.end(), [](uint8_t f) { return f; });
    if (!refused_ && first_fault == faults_.end()) return;
    bool reported = false;
    refused_ = 0;
    for (uint32_t position = 0; position < count_; ++position) {
        const uint8_t fault = faults_.empty() ? 0 : faults_[position / per_word];
        if (fault) hashes_[position] = REFUSED;
        if (hashes_[position] != REFUSED) continue;
        ++refused_;
        if (reported) continue;
        reported = true;
        outcome.status = fault ? fault_status(fault) : Status::ROW_OUT_OF_RANGE;
        outcome.error_index = position;
    }
}

void BatchReader::cold_samples(const uint32_t *words, std::vector<uint8_t> &cold) const {
    cold.assign(samples_, 0);
    if (jagged_) {
        const uint64_t bags = starts_.size() - 1;
        for (uint64_t bag = 0; bag < bags; ++bag) {
            const uint64_t sample = feature_major() ? bag % samples_ : bag / columns_.size();
            uint32_t any = 0;
            for (uint32_t at = starts_[bag]; at < starts_[bag + 1]; ++at) any |= words[at];
            cold[sample] |= static_cast<uint8_t>(any >> 31);
        }
    } else if (feature_major()) {
        for (size_t column = 0; column < columns_.size(); ++column)
            for (uint32_t sample = 0; sample < samples_; ++sample)
                cold[sample] |= static_cast<uint8_t>(*words++ >> 31);
    } else {
        for (uint32_t sample = 0; sample < samples_; ++sample) {
            uint32_t any = 0;
            for (size_t column = 0; column < columns_.size(); ++column) any |= *words++;
            cold[sample] = static_cast<uint8_t>(any >> 31);
        }
    }
}

}  // namespace hotrow::engine
