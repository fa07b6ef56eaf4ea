#include "supervisor/files/error_file.h"

#include "test/support/catch.h"

using dt::supervisor::error_message;

TEST_CASE("error file: its message is one line, whatever wrote it", "[error_file]") {
  // As torch 1.13 and 2.x write it.
  CHECK(error_message(R"({"message": {"message": "ValueError: no\n such  batch",
      "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}})") ==
        "ValueError: no such batch");
  CHECK(error_message(R"({"message": "plain"})") == "plain");
  CHECK(error_message(R"("text")") == "text");
}

TEST_CASE("error file: garbage has no message", "[error_file]") {
  for (const char* text : {"", "{", "[]", "7", "null", "{}", R"({"message": 7})",
                           R"({"message": {"message": 7}})", R"({"message": {}})"})
    CHECK(error_message(text).empty());
}

TEST_CASE("error file: a long message is cut between characters", "[error_file]") {
  const std::string long_one = error_message("\"" + std::string(5000, 'x') + "\"");
  CHECK(long_one == std::string(300, 'x') + "...");
  std::string umlauts = "x";
  for (int i = 0; i < 300; ++i) umlauts += "\u00fc";
  const std::string cut = error_message("\"" + umlauts + "\"");
  CHECK(cut.size() <= 303);
  CHECK(cut.substr(cut.size() - 5) == "\u00fc...");
}
