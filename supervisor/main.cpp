#include <cstdio>
#include <string_view>

#include "supervisor/volume_helper.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--volume-helper")
    return dt::supervisor::volume_helper(0);
  std::fputs("dtsupervisor is started by dtlaunch\n", stderr);
  return 2;
}
