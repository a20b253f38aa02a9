// The card for C. Calls name a card by a handle that no other card gets, and do nothing without one.

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <new>
#include <map>
#include <memory>
#include <mutex>

#include "../rows.hpp"
#include "card.hpp"

namespace {

using hotrow::engine::Card;
using Handle = uintptr_t;

constexpr double LONGEST_WAIT = 1e6;  // seconds

struct Opened {
    std::unique_ptr<Card> card;
    int calls = 0;  // under way
};

std::mutex lock;
std::condition_variable returned;
Handle newest = 0;
// Never destroyed: a child of the process would wait at its exit for threads that it lacks.
auto &cards = *new std::map<Handle, std::shared_ptr<Opened>>;

// A child of the process gets the lock free, and none of the cards: it has none of their threads.
const int forks = pthread_atfork(
    [] { lock.lock(); }, [] { lock.unlock(); },
    [] {
        new (&returned) std::condition_variable;
        new (&cards) std::map<Handle, std::shared_ptr<Opened>>;
        lock.unlock();
    });

// Call the card; `card_close` waits for the call. False if memory ran out.
template <class Function>
bool call(Handle handle, const Function &function) noexcept {
    std::shared_ptr<Opened> opened;
    {
        const std::lock_guard<std::mutex> guard(lock);
        const auto found = cards.find(handle);
        if (found == cards.end()) return true;
        opened = found->second;
        ++opened->calls;
    }
    bool done = true;
    try {
        function(*opened->card);
    } catch (const std::exception &) {
        done = false;
    }
    const std::lock_guard<std::mutex> guard(lock);
    if (!--opened->calls) returned.notify_all();
    return done;
}

}  // namespace

extern "C" {

// 0 if memory or threads run out, or a parameter is beyond its limits.
Handle card_open(const hotrow::engine::Geometry *geometry, int threads) {
    if (!geometry || !geometry->sound() || threads < 1 || threads > MOST_THREADS) return 0;
    try {
        auto opened = std::make_shared<Opened>();
        opened->card = std::make_unique<Card>(*geometry, threads);
        const std::lock_guard<std::mutex> guard(lock);
        cards.emplace(newest + 1, std::move(opened));
        return ++newest;
    } catch (...) {
        return 0;
    }
}

// End the card after the commands and calls under way.
void card_close(Handle handle) {
    std::unique_lock<std::mutex> guard(lock);
    const auto found = cards.find(handle);
    if (found == cards.end()) return;
    const std::shared_ptr<Opened> opened = found->second;
    cards.erase(found);
    returned.wait(guard, [&] { return !opened->calls; });
    guard.unlock();
    opened->card.reset();
}

uint32_t card_read_register(Handle handle, uint32_t offset) {
    uint32_t value = 0;
    call(handle, [&](Card &card) { value = card.read_register(offset); });
    return value;
}

void card_write_register(Handle handle, uint32_t offset, uint32_t value) {
    call(handle, [&](Card &card) { card.write_register(offset, value); });
}

// 0 if memory runs out.
int card_map(Handle handle, uint64_t address, uint8_t *data, uint64_t size, int writable) {
    if ((!data && size) || address + size < address) return 1;
    return call(handle, [&](Card &card) { card.map(address, data, size, writable); });
}

void card_unmap(Handle handle, uint64_t address) {
    call(handle, [&](Card &card) { card.unmap(address); });
}

// See `Card::plan`; 0 without a card or arguments.
int64_t card_plan(Handle handle, uint32_t retired, const hotrow_command *commands, int64_t count,
                  hotrow_completion *completions, hotrow::engine::Places *places) {
    int64_t done = 0;
    if (commands && completions && places)
        call(handle, [&](Card &card) {
            done = card.plan(retired, commands, count, completions, *places);
        });
    return done;
}

void card_wait(Handle handle, uint32_t queue, uint32_t seen, double seconds) {
    seconds = std::min(std::max(0., seconds), LONGEST_WAIT);
    call(handle, [&](Card &card) { card.wait(queue, seen, seconds); });
}

}
