// C interface of a simulated board, for ctypes. A harness includes it after its class `Board`.
#define API extern "C" __attribute__((visibility("default")))

API Board* hotrow_board_open(double rate) { return new Board(rate); }
API void hotrow_board_close(Board* board) { delete board; }
API void hotrow_board_rate(Board* board, double rate) { board->set_rate(rate); }
API void hotrow_board_send(Board* board, const uint8_t* octets, uint32_t count) {
  board->send(octets, count);
}
API uint32_t hotrow_board_unsent(const Board* board) { return board->unsent(); }
API uint64_t hotrow_board_cycles(const Board* board) { return board->cycles(); }
API uint32_t hotrow_board_run(Board* board, uint64_t count, uint8_t* received, uint32_t room) {
  return board->run(count, received, room);
}
