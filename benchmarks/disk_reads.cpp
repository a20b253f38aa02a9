// Reads of 4 KiB at random places of a file by threads, past the system's cache.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

// Reads a second; -1 where the file cannot be read so.
extern "C" double random_reads(const char *path, int threads, double seconds) {
    const int file = open(path, O_RDONLY | O_DIRECT);
    struct stat about {};
    if (file < 0 || fstat(file, &about) || about.st_size < 4096) return -1;
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(seconds));
    std::atomic<uint64_t> count{0};
    std::atomic<bool> failed{false};
    std::vector<std::thread> running;
    for (int number = 0; number < threads; ++number)
        running.emplace_back([&, number] {
            std::mt19937_64 draw(number);
            void *page = std::aligned_alloc(4096, 4096);
            while (Clock::now() < end && !failed) {
                const uint64_t place = draw() % (about.st_size / 4096);
                if (pread(file, page, 4096, static_cast<off_t>(place * 4096)) != 4096)
                    failed = true;
                else
                    ++count;
            }
            std::free(page);
        });
    for (std::thread &thread : running) thread.join();
    close(file);
    return failed ? -1 : count / std::chrono::duration<double>(Clock::now() - begin).count();
}
