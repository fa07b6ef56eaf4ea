#include "core/job/records.h"

#include <algorithm>

namespace dt {
namespace {

/// A NoticeTaken of versions that did not know what was left.
struct BareNotice {
  static constexpr std::uint16_t kType = 25;
  std::optional<Host> host;
  std::int64_t deadline_ns = 0;
  std::string why;
};

template <std::size_t I = 0>
Result<Record> parse_as(const wire::Frame& frame) {
  if constexpr (I == std::variant_size_v<Record>) {
    return fail(ErrorKind::kProtocol, "unknown journal record of type {}", frame.type);
  } else {
    using R = std::variant_alternative_t<I, Record>;
    if (frame.type != R::kType) return parse_as<I + 1>(frame);
    return wire::parse<R>(frame.body).map([](R r) { return Record(std::move(r)); });
  }
}

}  // namespace

std::string WorkerGone::death() const {
  const std::string said = reason();
  const bool is_own = said.starts_with(to_string(status));
  return fmt::format("{} ({})", is_own ? "crashed" : "failed", said);
}

wire::Frame to_frame(const Record& record) {
  return std::visit(
      [](const auto& r) {
        return wire::Frame{std::decay_t<decltype(r)>::kType, wire::body_of(r)};
      },
      record);
}

Result<Record> record_from(const wire::Frame& frame) {
  if (frame.type != BareNotice::kType) return parse_as(frame);
  return wire::parse<BareNotice>(frame.body).map([](BareNotice r) {
    return Record(NoticeTaken{std::move(r.host), r.deadline_ns, std::move(r.why),
                              std::numeric_limits<std::int64_t>::max()});
  });
}

std::vector<LogLine> log_lines(const std::vector<Record>& records) {
  std::vector<LogLine> lines;
  for (const Record& record : records) {
    const auto append = [&lines](const auto& r) {
      if constexpr (requires { r.log; }) lines.insert(lines.end(), r.log.begin(), r.log.end());
    };
    std::visit(append, record);
  }
  std::ranges::sort(lines, {}, &LogLine::seq);  // a Snapshot has some from between later records
  return lines;
}

}  // namespace dt
