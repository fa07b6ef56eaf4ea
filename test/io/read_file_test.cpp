#include "io/read_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "test/support/catch.h"

using namespace dt;

TEST_CASE("read file: whole, absent, and what cannot be read is named", "[io]") {
  std::string folder = "/tmp/dt_read_XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string text(200'000, 'x');
  std::ofstream(folder + "/file") << text;
  CHECK(io::read_file(folder + "/file") == text);
  CHECK_FALSE(io::read_file_if_there(folder + "/none").value());
  CHECK(io::read_file(folder + "/none").error().message ==
        "read " + folder + "/none: No such file or directory");
  CHECK(io::read_file_if_there(folder).error().message == "read " + folder + ": Is a directory");
  // Its first page is mapped by nobody: the read ends with EIO, as on a broken volume.
  CHECK(io::read_file("/proc/self/mem").error().message ==
        "read /proc/self/mem: Input/output error");
  CHECK(io::read_file("/dev/zero").error().message == "read /dev/zero: it is no regular file");
  REQUIRE(::mkfifo((folder + "/fifo").c_str(), 0600) == 0);
  CHECK(io::read_file(folder + "/fifo").error().kind == ErrorKind::kIo);
  std::ofstream(folder + "/lines") << text << "\nthe last\n";
  CHECK(io::end_of_file(folder + "/lines", 10) == "\nthe last\n");
  CHECK(io::end_of_file(folder + "/file", 300'000) == text);
  CHECK(io::end_of_file(folder + "/none").empty());
  std::filesystem::remove_all(folder);
}
