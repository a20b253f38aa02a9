#include "move_engine.hpp"

#include <algorithm>

namespace hotrow::engine {

Outcome MoveEngine::execute(const Command &command, const Addresses &addresses) {
    switch (opcode_of(command)) {
        case Opcode::GATHER: case Opcode::SCATTER: return copy_rows(command, addresses);
        case Opcode::POOL: return pool(command, addresses);
        case Opcode::UPDATE: return update(command, addresses);
        case Opcode::COPY: case Opcode::FILL: return move_span(command);
        default: return {};
    }
}

int MoveEngine::parts_for(uint64_t bytes) const {
    constexpr uint64_t SHARE = 1 << 17;  // bytes that pay for a thread
    return static_cast<int>(
        std::clamp<uint64_t>(bytes / SHARE, 1, static_cast<uint64_t>(workers_.threads())));
}

}  // namespace hotrow::engine
