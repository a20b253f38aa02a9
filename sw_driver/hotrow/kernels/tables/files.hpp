// Files of a store: errors that name file and offset, direct access, and a hook for tests.

#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tables {

struct Failure {
    std::string message;
    bool full = false;  // the disk has no more room
};

[[noreturn]] inline void fail(const std::string &path, const std::string &what) {
    throw Failure{"the file " + path + " " + what};
}

enum Operation : int32_t { WRITE, SYNC, CREATE, UNLINK, SPARE };  // the last: a spare gets a name
// Called before an operation: 0, or the error that it ends with.
using Hook = int32_t (*)(int32_t operation, const char *path, uint64_t offset, const void *data,
                         uint64_t bytes);
extern Hook hook;

inline int before(Operation operation, const std::string &path, uint64_t offset = 0,
                  const void *data = nullptr, uint64_t bytes = 0) {
    return hook ? hook(operation, path.c_str(), offset, data, bytes) : 0;
}

class File {
  public:
    File() = default;
    File(File &&other) noexcept : path(std::move(other.path)), fd_(other.fd_),
        direct_(other.direct_) { other.fd_ = -1; }
    File &operator=(File &&other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(path, other.path);
        std::swap(direct_, other.direct_);
        return *this;
    }
    ~File() { if (fd_ >= 0) ::close(fd_); }

    int fd() const { return fd_; }
    bool direct() const { return direct_; }

    // Open a file, without the page cache where its file system allows that for whole pages.
    static File open(const std::string &path, int flags, bool direct = true) {
        File file;
        file.path = path;
        file.fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
        if (file.fd_ < 0) fail(path, std::string("cannot be opened: ") + std::strerror(errno));
        if (direct && page_aligned(path)) {
            const int own = ::open(path.c_str(), (flags & ~(O_CREAT | O_EXCL | O_TRUNC)) |
                                   O_CLOEXEC | O_DIRECT);
            if (own >= 0) {
                ::close(file.fd_);
                file.fd_ = own;
                file.direct_ = true;
            }
        }
        if (!file.direct_) posix_fadvise(file.fd_, 0, 0, POSIX_FADV_RANDOM);
        return file;
    }

    uint64_t size() const {
        struct stat about;
        if (fstat(fd_, &about))
            fail(path, std::string("cannot be read: ") + std::strerror(errno));
        return static_cast<uint64_t>(about.st_size);
    }

    // Fail unless the path still names this file.
    void check_named() const {
        struct stat about, named;
        if (fstat(fd_, &about) || ::stat(path.c_str(), &named) || about.st_ino != named.st_ino ||
            about.st_dev != named.st_dev)
            fail(path, "was removed, or replaced by another, after it was opened: open the tables "
                 "at a commit whose files are whole");
    }

    // Bytes that were read: fewer only at the end of the file.
    size_t read(void *data, size_t bytes, uint64_t offset) const {
        size_t done = 0;
        while (done < bytes) {
            const ssize_t got = ::pread(fd_, static_cast<uint8_t *>(data) + done, bytes - done,
                                        static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0)
                fail(path, "cannot be read at offset " + std::to_string(offset + done) + ": " +
                     std::strerror(errno) + ": check the disk");
            if (!got) break;
            done += static_cast<size_t>(got);
            if (direct_ && done % 512) break;  // the end
        }
        return done;
    }

    void write(const void *data, size_t bytes, uint64_t offset) const {
        int error = before(WRITE, path, offset, data, bytes);
        for (size_t done = 0; !error && done < bytes;) {
            const ssize_t put = ::pwrite(fd_, static_cast<const uint8_t *>(data) + done,
                                         bytes - done, static_cast<off_t>(offset + done));
            if (put < 0 && errno != EINTR) error = errno;
            if (put > 0) done += static_cast<size_t>(put);
        }
        if (error)
            fail(path, "could not be written at offset " + std::to_string(offset) + ": " +
                 std::strerror(error) + ": make space or check the disk, and open the tables at "
                 "their last commit");
        if (!direct_) {
            sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                            SYNC_FILE_RANGE_WRITE);
            posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
        }
    }

    // Final: the system may have dropped what it could not write.
    void sync() const {
        int error = before(SYNC, path);
        if (!error && fdatasync(fd_)) error = errno;
        if (error)
            fail(path, std::string("could not be forced to the disk: ") + std::strerror(error) +
                 ": check the disk, and open the tables at their last commit");
    }

    std::string path;

  private:
    static bool page_aligned(const std::string &path) {
#ifdef STATX_DIOALIGN
        struct statx about;
        if (!statx(AT_FDCWD, path.c_str(), 0, STATX_DIOALIGN, &about) &&
            about.stx_mask & STATX_DIOALIGN)
            return about.stx_dio_offset_align && 4096 % about.stx_dio_offset_align == 0 &&
                   4096 % about.stx_dio_mem_align == 0;
#else
        (void)path;
#endif
        return true;  // the attempt shows it
    }

    int fd_ = -1;
    bool direct_ = false;
};

struct FreeMemory {
    void operator()(uint8_t *data) const { std::free(data); }
};
using Memory = std::unique_ptr<uint8_t, FreeMemory>;

// Memory that begins at a page.
inline Memory pages(size_t bytes) {
    void *data = nullptr;
    if (posix_memalign(&data, 4096, bytes ? bytes : 4096)) throw std::bad_alloc();
    return Memory(static_cast<uint8_t *>(data));
}

}  // namespace tables
