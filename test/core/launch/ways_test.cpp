#include "core/launch/ways.h"

#include "test/support/catch.h"

namespace dt {
namespace {

AllocatedNodes nodes(std::vector<std::string> names) {
  AllocatedNodes out;
  for (std::string& name : names) out.nodes.push_back({std::move(name), ""});
  return out;
}

std::string called(const AllocatedNodes& allocation, std::string_view machine) {
  const AllocatedNode* node = node_called(allocation, machine);
  return node ? node->name : "none";
}

TEST_CASE("ways: a machine is the node of its name, or of its name without the domain", "[ways]") {
  const AllocatedNodes three = nodes({"n1", "n10", "n2.example.com"});
  CHECK(called(three, "n1") == "n1");
  CHECK(called(three, "n1.example.com") == "n1");
  CHECK(called(three, "n2") == "n2.example.com");
  CHECK(called(three, "n2.example.com") == "n2.example.com");
  CHECK(called(three, "n3") == "none");
  CHECK(called(three, "n") == "none");
  CHECK(called(three, "") == "none");
}

TEST_CASE("ways: where two nodes have a machine's short name, only its whole name counts",
          "[ways]") {
  const AllocatedNodes two = nodes({"n1.east", "n1.west"});
  CHECK(called(two, "n1") == "none");
  CHECK(called(two, "n1.north") == "none");
  CHECK(called(two, "n1.west") == "n1.west");
}

TEST_CASE("ways: a host that is no node of the allocation is said to be none", "[ways]") {
  AllocatedNodes two = nodes({"n1", "n2"});
  two.job = "41";
  const auto remark = [&two](const Host& host) {
    return remark_on_way(host, StarterKind::kSsh, two);
  };
  CHECK(remark({"", "n9", 0}) == "n9 is no node of Slurm job 41: it is reached by ssh");
  CHECK(remark({"", "n1", 0}).empty());
  Host named{"", "n9", 0};
  named.via = StarterKind::kSsh;
  CHECK(remark(named).empty());
  CHECK(remark_on_way({"", "n9", 0}, StarterKind::kSsh, std::nullopt).empty());
}

}  // namespace
}  // namespace dt
