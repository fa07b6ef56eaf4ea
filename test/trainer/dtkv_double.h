/// A stand-in for libdtkv in one process, with one worker: keys, sgd, and boundaries with a test's
/// scripted answers. An operation with a handle writes its values when it is waited for. It tests
/// how the trainer uses the answers; arithmetic and membership are tested with the real library.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "kvstore/dtkv.h"

namespace dt::test {

struct BoundaryAnswer {
  int code = DTKV_OK;
  dtkv_view view{};
};

/// The test's script and its observations. One store at a time.
struct DtkvDouble {
  std::deque<BoundaryAnswer> boundaries;  ///< Used up one by one; then one worker, epoch as asked.
  std::vector<std::uint32_t> asked;       ///< The epochs of the boundary calls.
  std::vector<std::string> calls;  ///< "init w1", "push w1", "finish", ... in order; "wait w1"
                                   ///< by an operation's first key.
  std::vector<dtkv_push_options> pushes;  ///< One for each call.
  std::string refused;                    ///< A push of this key fails.
  std::string lost;                       ///< Waiting for an operation that begins with it fails.
  std::size_t servers_lost_after =
      0;  ///< Operations fail from this push to the next boundary; 0: none.
  bool servers_lost = false;
  std::size_t under_way = 0;        ///< Operations with a handle that were not waited for.
  std::size_t touched = 0;          ///< Arrays the caller wrote to meanwhile.
  std::size_t memories = 0;         ///< Allocated and not freed.
  std::size_t freed_in_flight = 0;  ///< Freed while an operation was under way.
  int is_newcomer = 0;
  /// May change a key's value after a push, as other workers' pushes would.
  std::function<void(const std::string& key, std::vector<float>& value)> on_value;
};

/// The one double; reset() makes it new.
DtkvDouble& dtkv_double();
void reset_dtkv_double();

}  // namespace dt::test
