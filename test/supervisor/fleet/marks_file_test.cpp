#include "supervisor/fleet/marks_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using supervisor::MarksFile;

namespace {

class JobFolder {
 public:
  JobFolder() { std::filesystem::create_directories(path() + "/.dtlaunch/j"); }
  [[nodiscard]] std::string path() const { return dir_.path(); }
  [[nodiscard]] std::string file() const { return path() + "/.dtlaunch/j/fleet.json"; }
  [[nodiscard]] MarksFile open() const { return MarksFile::open(path(), "j").value(); }

 private:
  test::TempDir dir_;
};

Machine machine(const std::string& host) {
  return {.id = host + "#1", .state = MachineState::kReady, .host = host};
}
void write(const std::string& path, std::string_view text) { std::ofstream(path) << text; }

TEST_CASE("marks file: whoever opens it again has every mark") {
  const JobFolder folder;
  {
    MarksFile marks = folder.open();
    CHECK(marks.known().empty());
    Machine going = machine("n2");
    going.is_asked = true;
    REQUIRE(marks.note_done(SetMark{"n2#1", Mark::kRemovalQueued}, going));
    REQUIRE(marks.note_done(SetMark{"b#1", Mark::kBase}, machine("b")));
    REQUIRE(marks.note_done(SetMark{"n3#1", Mark::kAdded}, machine("n3")));
    REQUIRE(marks.note_done(AddHost{"n3", 1, "n3#1"}, machine("n3")));  // its mark stays
    REQUIRE(marks.note_done(AddHost{"n6", 1, "n6#1"}, machine("n6")));
    REQUIRE(marks.note_done(SetMark{"n4#1", Mark::kAdded}, machine("n4")));
    REQUIRE(marks.note_done(DropHost{"n4"}, Machine()));
    Machine asked = machine("n5");
    asked.is_asked = true;
    REQUIRE(marks.note_done(SetMark{"n5#1", Mark::kRemoved}, asked));
    REQUIRE(marks.note_done(DropHost{"n5"}, Machine()));
    REQUIRE(marks.note_done(LetGo{"n5#1", ""}, machine("n5")));
  }
  MarksFile marks = folder.open();
  CHECK(marks.loss().empty());
  CHECK(marks.known().size() == 4);
  CHECK(marks.knows_host("n2"));
  CHECK(marks.knows_host("n6"));
  CHECK_FALSE(marks.knows_host("b"));
  CHECK_FALSE(marks.knows_host("n4"));
  std::vector<Machine> listed = {machine("n2"), machine("n3"), machine("n5")};
  marks.apply(listed);
  CHECK(listed[0].mark == Mark::kRemovalQueued);
  CHECK(listed[0].is_asked);
  CHECK(listed[1].mark == Mark::kAdded);
  CHECK_FALSE(listed[1].is_asked);
  // It was let go and is still there.
  CHECK(listed[2].mark == Mark::kRemoved);
  listed.pop_back();
  marks.apply(listed);
  listed.push_back(machine("n5"));
  marks.apply(listed);
  CHECK(listed[2].mark == Mark::kNone);
}

TEST_CASE("marks file: who does a resize again does the same one") {
  const JobFolder folder;
  {
    MarksFile marks = folder.open();
    CHECK(marks.resize().id == 0);
    REQUIRE(marks.note_done(SetMark{"n2#1", Mark::kAdded}, machine("n2")));
    REQUIRE(marks.begin_resize({.id = 7, .from = 2, .to = 5}, {}));
  }
  {
    MarksFile marks = folder.open();
    CHECK(marks.resize().id == 7);
    CHECK(marks.resize().from == 2);
    CHECK(marks.resize().to == 5);
    REQUIRE(marks.begin_resize({.id = 8, .said = "n2, n3"}, {machine("n2"), machine("n3")}));
  }
  MarksFile marks = folder.open();
  CHECK(marks.resize().id == 8);
  CHECK(marks.resize().said == "n2, n3");
  std::vector<Machine> listed = {machine("n2"), machine("n3"), machine("n4")};
  marks.apply(listed);
  CHECK(listed[0].is_asked);
  CHECK(listed[0].mark == Mark::kAdded);
  CHECK(listed[1].is_asked);
  CHECK_FALSE(listed[2].is_asked);
}

TEST_CASE("marks file: if it is torn, hosts whose last change was REMOVED stay out") {
  for (const char* torn :
       {"", "{", "[]", R"({"version": 2, "machines": []})", R"({"version": 1, "machines": [7]})",
        R"({"version": 1, "machines": [{"id": "x", "host": "x", "mark": "?"}]})"}) {
    INFO(torn);
    const JobFolder folder;
    write(folder.file(), torn);
    write(folder.path() + "/host_worker_log",
          "0 ADDED n2 1764000000000000000\n1 ADDED n3 1764000000000000000\n"
          "2 REMOVED n2 1764000000000000000\n3 REMOVED n3 1764000000000000000\n"
          "4 ADDED n3 1764000000000000000\n");
    MarksFile marks = folder.open();
    CHECK(marks.loss().find("fleet.json is lost: ") != std::string::npos);
    std::vector<Machine> listed = {machine("n2"), machine("n3"), machine("n4")};
    marks.apply(listed);
    CHECK(listed[0].mark == Mark::kRemoved);
    CHECK(listed[1].mark == Mark::kNone);
    CHECK(listed[2].mark == Mark::kNone);
    // Another machine of that name comes later.
    std::vector<Machine> later = {{.id = "n2#2", .state = MachineState::kReady, .host = "n2"}};
    marks.apply(later);
    CHECK(later[0].mark == Mark::kNone);
  }
}

TEST_CASE("marks file: what cannot be written is an error, and the former file stays whole") {
  const JobFolder folder;
  MarksFile marks = folder.open();
  REQUIRE(marks.note_done(SetMark{"n2#1", Mark::kAdded}, machine("n2")));
  std::filesystem::create_directory(folder.file() + ".new");
  CHECK_FALSE(marks.note_done(SetMark{"n3#1", Mark::kAdded}, machine("n3")));
  CHECK(folder.open().known().size() == 1);
}

}  // namespace
