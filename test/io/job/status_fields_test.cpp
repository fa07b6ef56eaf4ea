#include "io/job/status_fields.h"

#include <algorithm>
#include <boost/pfr/core.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "test/support/catch.h"

using namespace dt;

namespace {

template <class T>
constexpr bool kIsObject = std::is_aggregate_v<T>;

/// A value that no other member has.
template <class T>
void fill(T& value, int& n) {
  if constexpr (kIsObject<T>)
    io::for_each_field<T>([&](const auto& field) { fill(value.*field.member, n); });
  else if constexpr (requires { value.has_value(); })
    fill(value.emplace(), n);
  else if constexpr (requires { value.emplace_back(); })
    for (int i = 0; i < 2; ++i) fill(value.emplace_back(), n);
  else if constexpr (requires { typename T::mapped_type; })
    fill(value["any name"], n);
  else if constexpr (std::is_same_v<T, std::string>)
    value = fmt::format("text {}", ++n);
  else
    value = static_cast<T>(++n);
}

template <class T>
bool is_same(const T& a, const T& b) {
  if constexpr (kIsObject<T>) {
    bool all = true;
    io::for_each_field<T>([&](const auto& field) {
      INFO(field.key);
      CHECK(is_same(a.*field.member, b.*field.member));
      all = all && is_same(a.*field.member, b.*field.member);
    });
    return all;
  } else if constexpr (requires { a.has_value(); }) {
    return a && b ? is_same(*a, *b) : a.has_value() == b.has_value();
  } else if constexpr (requires(T list) { list.emplace_back(); }) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& x, const auto& y) { return is_same(x, y); });
  } else {
    return a == b;
  }
}

/// How many rows there are.
template <class T>
std::size_t check_rows() {
  std::size_t rows = 0;
  if constexpr (kIsObject<T>) {
    std::set<std::string> keys;
    io::for_each_field<T>([&]<class Member>(const io::StatusField<T, Member>& field) {
      INFO(field.key);
      CHECK(std::string_view(field.text).ends_with('.'));
      keys.insert(field.key);
      rows += 1 + check_rows<Member>();
    });
    INFO("the members of the struct that has " << *keys.begin());
    CHECK(keys.size() == boost::pfr::tuple_size_v<T>);
  } else if constexpr (requires { typename T::value_type; }) {
    return check_rows<typename T::value_type>();
  }
  return rows;
}

std::string again(const std::string& json) { return to_json(io::status_from(json).value()); }

}  // namespace

TEST_CASE("status: every member has one row", "[status]") { CHECK(check_rows<io::Status>() > 150); }

TEST_CASE("status: the rows are the paths that test/contracts/status.txt promises", "[status]") {
  const auto all = io::status_paths();
  std::vector<std::string> values;
  for (const io::StatusPath& one : all)
    if (std::ranges::none_of(
            all, [&](const auto& other) { return other.path.starts_with(one.path + "."); }))
      values.push_back("status." + one.path);
  std::ranges::sort(values);
  std::vector<std::string> promised;
  std::ifstream file(DT_STATUS_PATHS);
  for (std::string line; std::getline(file, line);) promised.push_back(line);
  CHECK(values == promised);
}

TEST_CASE("status: with all members set it goes through JSON and back", "[status]") {
  io::Status status;
  int n = 0;
  fill(status, n);
  const std::string json = to_json(status);
  const auto back = io::status_from(json);
  REQUIRE(back);
  CHECK(is_same(status, *back));
  CHECK(to_json(*back) == json);
  CHECK(json.find(R"("values":{"any name":)") != std::string::npos);
  CHECK(n > 150);
}

TEST_CASE("status: little is told of a host that is new, and of a driver that does not answer",
          "[status]") {
  io::Status status;
  status.hosts.push_back({.host = "h",
                          .link = "none",
                          .life = "alive",
                          .why = {},
                          .last_death = {},
                          .check = {},
                          .via = {},
                          .gpus = {},
                          .reach_command = {},
                          .wanted = 1,
                          .beyond_limit = 0,
                          .empty_places = {},
                          .attempts = {},
                          .restarts = {},
                          .cooling_until_s = {},
                          .leaving = {}});
  status.gpus.emplace_back().trouble = {"no answer"};
  const auto told = nlohmann::json::parse(to_json(status));
  CHECK(told.at("hosts").dump() ==
        R"([{"beyond_limit":0,"host":"h","life":"alive","link":"none","wanted":1}])");
  CHECK(told.at("gpus").dump() == R"([{"host":"","index":null,"trouble":["no answer"]}])");
  status.hosts[0].attempts = 0;
  CHECK(to_json(status).find("\"cooling_until_s\":null") != std::string::npos);
  CHECK(to_json(status).find("reach_command") == std::string::npos);
}

TEST_CASE("status: of another version, unknown keys and other types are left out", "[status]") {
  const std::string none = to_json(io::Status());
  for (const char* odd :
       {R"({"new":1,"job":7,"epoch":"4","term":-1,"world_size":2.5,"elastic":"yes","pulse":[]})",
        R"({"workers":{"id":1},"hosts":[1,"x",null],"file":{"accepted":"h"},"goodput":"all"})",
        R"({"uptime_s":null,"volume":{"stalled_s":true},"kept_out":[],"leaving":[]})",
        R"({"epoch":18446744073709551616})"})
    CHECK(again(odd) == none);
  CHECK(
      again(R"({"workers":[{"id":3,"values":{"a":"b","c":2}},7]})").find(R"("values":{"c":2.0})") !=
      std::string::npos);
  for (const char* no_object : {"", "[]", "7", "no json", "{", "{\"job\":\"\xff\"}"})
    CHECK(io::status_from(no_object).error().kind == ErrorKind::kProtocol);
}
