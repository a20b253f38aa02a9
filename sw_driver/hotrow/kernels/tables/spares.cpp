// Files of segments, and those that are held so that a full disk still takes a commit.

#include "store.hpp"

namespace tables {

// A file with the bytes of a segment; none where the disk has no room for it.
File Store::new_file(const std::string &path) const {
    const uint64_t bytes = PAGE + uint64_t{bound} * block_bytes;
    File file = File::open(path, O_RDWR | O_CREAT | O_EXCL);
    if (const int error = posix_fallocate(file.fd(), 0, static_cast<off_t>(bytes))) {
        ::unlink(path.c_str());
        throw Failure{"the file " + path + " needs " + std::to_string(bytes) + " bytes: " +
                      std::strerror(error), error == ENOSPC || error == EDQUOT};
    }
    return file;
}

// The file of the next segment. Where the disk is full, rows that trained get one that was held for
// them, and rows that would only move stay where they are.
File Store::next_file(const std::string &path, uint8_t kind) {
    try {
        if (const int error = before(CREATE, path, 0, nullptr,
                                     PAGE + uint64_t{bound} * block_bytes))
            throw Failure{"the file " + path + " could not be made: " + std::strerror(error),
                          error == ENOSPC};
        return new_file(path);
    } catch (Failure &failure) {
        failure.message += ": make space, and open the tables at their last commit";
        if (!failure.full) throw;
        if (kind == MOVED || !spares_.empty())
            full_ = "the disk with the tables in " + folder + " is full: call commit(), which keeps "
                    "all steps so far, and make space; then commit() again, or open the tables";
        if (kind == MOVED || spares_.empty()) throw;
        File file = std::move(spares_.back());
        spares_.pop_back();
        if (before(SPARE, path) || std::rename(file.path.c_str(), path.c_str())) {
            ::unlink(file.path.c_str());
            throw;
        }
        file.path = path;
        return file;
    }
}

void Store::reserve(uint64_t rows) {
    Hold hold(lock);
    if (!writes) return;
    for (const Table &table : tables) {
        const uint64_t most = uint64_t{bound} * table.layout.per_block;
        held_ = std::max(held_, 1 + (rows + most - 1) / most);
    }
    try {
        while (spares_.size() < held_)
            spares_.push_back(new_file(folder + "/spare-" + std::to_string(++made_)));
        full_.clear();
    } catch (const Failure &failure) {
        if (!failure.full) throw;
        full_ = "the disk with the tables in " + folder + " is full, and has no room to keep more "
                "steps: make " + std::to_string((held_ - spares_.size()) * bound * block_bytes /
                1000000 + 1) + " MB of space, and commit() or open the tables again";
    }
    dirt_.notify_all(), space_.notify_all();
}

void Store::check_room() {
    std::lock_guard<std::mutex> hold(lock);
    check();
    if (!full_.empty()) throw Failure{full_};
}

}  // namespace tables
