#include "test/bench/kv/peer_main.h"

#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "core/base/number.h"

namespace dt::bench {

namespace {

template <class Number>
bool read(std::string_view text, Number& into) {
  const auto number = parse_number<Number>(text);
  into = number.value_or(into);
  return number.has_value();
}

}  // namespace

int peer_main(int argc, char** argv, const char* program,
              void (*work)(const PeerArguments& arguments)) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  PeerArguments arguments;
  const bool good = argc >= 2 && argc <= 5 && (argc < 3 || read(argv[2], arguments.rank)) &&
                    (argc < 5 || read(argv[4], arguments.bucket_bytes));
  if (!good) {
    fmt::print(stderr, "{} is run by dtbench kv --peer\n", program);
    return 2;
  }
  arguments.control = argv[1];
  if (argc > 3) arguments.folder = argv[3];
  try {
    work(arguments);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", program, e.what());
    return 1;
  }
}

}  // namespace dt::bench
