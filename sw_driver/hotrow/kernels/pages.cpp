// Pages of tables in files: read before their rows are used, many at the same time.

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>

#include "rows.hpp"

namespace {

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;
#endif

struct Pages {
    uintptr_t first, end;
};

// The pages of rows that lie in files, ascending, each once.
//
// Rows from spans[2 i] to spans[2 i + 1] lie in files. Returns 0, or 1 + i where rows[i] is no row.
int64_t pages_of(uintptr_t base, int64_t bytes, int64_t total, const Integers &rows, int64_t count,
                 const int64_t *spans, int64_t span_count, uintptr_t page,
                 std::vector<Pages> &found) {
    std::vector<uintptr_t> pages;
    pages.reserve(count);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows[i];
        if (row < 0 || row >= total) return 1 + i;
        if ((std::upper_bound(spans, spans + 2 * span_count, row) - spans) % 2 == 0) continue;
        const uintptr_t start = base + row * bytes;
        for (uintptr_t at = start / page; at <= (start + bytes - 1) / page; ++at)
            if (pages.empty() || pages.back() != at) pages.push_back(at);
    }
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    for (const uintptr_t at : pages)
        if (!found.empty() && found.back().end == at)
            ++found.back().end;
        else
            found.push_back({at, at + 1});
    return 0;
}

}  // namespace

// Read the pages of rows of an array, of which parts are mapped files; return when memory has them.
//
// The array has `total` rows of `bytes` bytes from `base` on; spans as in pages_of. Returns 0,
// 1 + i where rows[i] is no row, or -1 - row where the page of that row cannot be read.
extern "C" int64_t read_rows(const uint8_t *base, int64_t bytes, int64_t total, Integers rows,
                             int64_t count, const int64_t *spans, int64_t span_count) try {
    const uintptr_t page = sysconf(_SC_PAGESIZE), begin = reinterpret_cast<uintptr_t>(base);
    std::vector<Pages> found;
    if (const int64_t wrong =
            pages_of(begin, bytes, total, rows, count, spans, span_count, page, found))
        return wrong;
    for (const Pages &each : found)  // the disk gets every request before the first is waited for
        madvise(reinterpret_cast<void *>(each.first * page), (each.end - each.first) * page,
                MADV_WILLNEED);
    for (const Pages &each : found) {
        auto *from = reinterpret_cast<volatile uint8_t *>(each.first * page);
        const size_t size = (each.end - each.first) * page;
        if (!madvise(const_cast<uint8_t *>(from), size, MADV_POPULATE_READ)) continue;
        if (errno == EFAULT || errno == EIO || errno == EHWPOISON) {
            const uintptr_t start = each.first * page;
            return -1 - static_cast<int64_t>(start > begin ? (start - begin) / bytes : 0);
        }
        for (size_t at = 0; at < size; at += page) (void)from[at];  // an older kernel
    }
    return 0;
} catch (const std::exception &) {
    return NO_MEMORY;
}
