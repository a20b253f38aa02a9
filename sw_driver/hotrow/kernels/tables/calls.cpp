// The calls of Python; each writes the reason of a failure to `message`, and returns -1.

#include "store.hpp"

#include <cstdio>

using namespace tables;

namespace {

template <class Work>
int64_t guarded(char *message, const Work &work) noexcept {
    try {
        work();
        return 0;
    } catch (const Failure &failure) {
        std::snprintf(message, 1024, "%s", failure.message.c_str());
    } catch (const std::bad_alloc &) {
        std::snprintf(message, 1024, "not enough memory");
    } catch (const std::exception &error) {
        std::snprintf(message, 1024, "%s", error.what());
    }
    return -1;
}

}  // namespace

extern "C" {

void tables_hook(Hook to) { hook = to; }

int64_t tables_open(char *message, const char *folder, const uint8_t *id, uint32_t block_bytes,
                    uint32_t blocks, uint64_t tail, uint64_t nonce, uint64_t next, uint64_t epoch,
                    uint64_t history, int32_t ring, int32_t writes, Store **out) {
    return guarded(message, [&] {
        *out = new Store(folder, id, block_bytes, blocks, tail, nonce, next, epoch, history, ring,
                         writes);
    });
}

int64_t tables_add(char *message, Store *store, uint64_t rows, uint32_t width, uint32_t wide,
                   uint32_t side, int32_t bits, uint64_t seed, float bound, float state,
                   int64_t dim, int64_t columns, int32_t element) {
    return guarded(message, [&] {
        Table table;
        table.rows = rows;
        table.layout = {width, wide, side, RowLayout::fitting(width + side, store->block_bytes)};
        table.base.seed = seed, table.base.bound = bound, table.base.initial_state = state;
        table.base.dim = dim, table.base.columns = columns, table.base.element = element;
        table.index = std::make_unique<Index>(rows, bits);
        store->add(std::move(table));
    });
}

// Rows of a table are every `step`-th of the one that its seed and files describe.
int64_t tables_part(char *message, Store *store, uint64_t first, uint64_t step) {
    return guarded(message, [&] {
        store->tables.back().base.first = first, store->tables.back().base.step = step;
    });
}

// Rows of a table's base from the next one on lie in a file.
int64_t tables_base(char *message, Store *store, const char *path, uint64_t rows, uint64_t offset,
                    uint64_t state, int32_t element, uint32_t row_bytes, int64_t columns) {
    return guarded(message, [&] {
        Base &base = store->tables.back().base;
        const uint64_t first = base.files.empty() ? 0 : base.files.back().first +
                                                         base.files.back().rows;
        base.files.push_back({File::open(path, O_RDONLY), first, rows, offset, state});
        base.from = element, base.from_bytes = row_bytes, base.from_columns = columns;
    });
}

int64_t tables_view(char *message, Store *store, const uint16_t *table, const int64_t *first,
                    uint64_t count, uint64_t *out) {
    return guarded(message,
                   [&] { *out = store->add(View{{table, table + count}, {first, first + count}}); });
}

int64_t tables_load(char *message, Store *store, uint64_t number, uint64_t nonce,
                    uint32_t blocks, uint64_t live) {
    return guarded(message, [&] { store->load(number, nonce, blocks, live); });
}

int64_t tables_start(char *message, Store *store) {
    return guarded(message, [&] { store->start(); });
}

int64_t tables_begin(char *message, Store *store, uint64_t view, const int64_t *flat,
                     uint64_t count, Ticket **out) {
    return guarded(message, [&] { *out = store->begin(view, flat, count); });
}

int64_t tables_finish(char *message, Store *store, Ticket *ticket, uint8_t *out, int64_t stride,
                      uint8_t *side) {
    return guarded(message, [&] { store->finish(ticket, out, stride, side); });
}

int64_t tables_cancel(char *message, Store *store, Ticket *ticket) {
    return guarded(message, [&] { store->cancel(ticket); });
}

int64_t tables_append(char *message, Store *store, uint64_t view, const int64_t *flat,
                      uint64_t count, const uint8_t *from, int64_t stride, const uint8_t *side) {
    return guarded(message, [&] { store->append(view, flat, count, from, stride, side); });
}

// Counts the numbers of a commit for `tables_taken`.
int64_t tables_cut(char *message, Store *store, int32_t keep, uint64_t *count) {
    return guarded(message, [&] { *count = store->cut(keep); });
}

int64_t tables_taken(char *message, Store *store, uint64_t *out) {
    return guarded(message, [&] { std::copy(store->taken.begin(), store->taken.end(), out); });
}

int64_t tables_segments(char *message, Store *store, uint64_t *out, uint64_t room,
                        uint64_t *count) {
    return guarded(message, [&] {
        const auto found = store->numbers();
        *count = found.size();
        std::copy_n(found.begin(), std::min<uint64_t>(room, found.size()), out);
    });
}

int64_t tables_named(char *message, Store *store, uint64_t commit, const uint64_t *last,
                     uint64_t count, const uint64_t *kept, uint64_t others) {
    return guarded(message,
                   [&] { store->named(commit, {last, last + count}, {kept, kept + others}); });
}

// Counts the rows for `tables_taken_rows`.
int64_t tables_changed(char *message, Store *store, uint32_t table, uint64_t since,
                       uint64_t *count) {
    return guarded(message, [&] {
        store->taken_rows = store->changed(static_cast<uint16_t>(table), since);
        *count = store->taken_rows.size();
    });
}

int64_t tables_taken_rows(char *message, Store *store, uint32_t *out) {
    return guarded(message, [&] {
        std::copy(store->taken_rows.begin(), store->taken_rows.end(), out);
        std::vector<uint32_t>().swap(store->taken_rows);
    });
}

int64_t tables_verify(char *message, Store *store) {
    return guarded(message, [&] { store->verify(); });
}

int64_t tables_clean(char *message, Store *store) {
    return guarded(message, [&] { store->clean(); });
}

int64_t tables_reserve(char *message, Store *store, uint64_t rows) {
    return guarded(message, [&] { store->reserve(rows); });
}

int64_t tables_room(char *message, Store *store) {
    return guarded(message, [&] { store->check_room(); });
}

int64_t tables_figures(char *message, Store *store, uint64_t *out) {
    return guarded(message, [&] {
        std::lock_guard<std::mutex> hold(store->lock);
        const uint64_t found[] = {store->requests, store->fetched, store->tail_hits,
                                  store->written, store->trained, store->moved,
                                  store->index_bytes(), store->log_blocks(),
                                  store->segments.size(), store->read_nanoseconds()};
        std::copy_n(found, std::size(found), out);
    });
}

void tables_close(Store *store) { delete store; }
}
