/// A stand-in for libdtkv in one process, with one worker: keys, sgd, and boundaries that answer as
/// a test scripts them. For what the trainer does with the answers; real arithmetic and real
/// membership are tested with the real library.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "kvstore/dtkv.h"

namespace dt::test {

struct BoundaryAnswer {
  int code = DTKV_OK;
  dtkv_view view{};
};

/// What the test says and sees. One store at a time.
struct DtkvDouble {
  std::deque<BoundaryAnswer> boundaries;  ///< Used up one by one; then one worker, epoch as asked.
  std::vector<uint32_t> asked;            ///< The epochs of the boundary calls.
  std::vector<std::string> calls;         ///< "init w1", "pushpull w1", "finish", ... in order.
  std::vector<dtkv_push_options> pushes;
  int is_newcomer = 0;
};

/// The one double; reset() makes it new.
DtkvDouble& dtkv_double();
void reset_dtkv_double();

}  // namespace dt::test
