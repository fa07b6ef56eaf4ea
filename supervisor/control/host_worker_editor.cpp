#include "supervisor/control/host_worker_editor.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/job/job.h"
#include "core/job/membership.h"
#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {

using io::awaitable;

namespace {

/// Most workers of one request; a host_worker with more is refused as well.
constexpr std::uint64_t kMostAdded = 65'536;

void add_lines(std::string& text, const Host& host, std::uint32_t count) {
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  text += format_host_worker(std::vector<Host>(count, host));
}

/// Takes a host out of a good host_worker, whose other lines stay as they are; how many workers it
/// had there. A line that names others as well becomes a line for each of their workers.
std::uint32_t remove_host(std::string& text, const Host& host, const std::vector<Host>& known) {
  std::string kept;
  std::uint32_t removed = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto hosts = with_known_ways(parse_hosts(line, "host_worker").value(), known);
    const auto names_it = [&host](const HostLine& h) { return h.host == host; };
    if (std::ranges::none_of(hosts, names_it)) {
      kept += line + "\n";
      continue;
    }
    for (const HostLine& h : hosts) {
      const std::uint32_t count = h.slots.value_or(1);
      if (names_it(h))
        removed += count;
      else
        add_lines(kept, h.host, count);
    }
  }
  text = std::move(kept);
  return removed;
}

/// Whether a good host_worker names the host.
bool names(const std::string& text, const Host& host) {
  const auto lines = parse_hosts(text, "host_worker").value();
  return std::ranges::find(lines, host, &HostLine::host) != lines.end();
}

}  // namespace

awaitable<Result<void>> HostWorkerEditor::edit(Edit edit, std::string host, std::uint32_t slots) {
  const auto turn = co_await turn_->acquire();
  auto wanted = parse_hosts(host, "host");
  if (!wanted) co_return tl::unexpected(wanted.error());
  if (wanted->empty()) co_return fail(ErrorKind::kInvalid, "\"{}\" names no host", host);
  auto text = co_await read();
  if (!text) co_return tl::unexpected(text.error());
  auto lines = with_known_ways(*wanted, context_.spec.known_hosts);
  if (edit == Edit::kAddUnlessThere) {
    std::erase_if(lines, [&](const HostLine& line) {
      return names(*text, line.host) && context_.job->membership().empty_places(line.host) == 0;
    });
    if (lines.empty()) co_return Result<void>();
  }
  auto edited = edit == Edit::kRemove ? remove(*text, lines) : add(*text, lines, slots, host);
  if (!edited) co_return edited;
  co_return co_await write(std::move(*text));
}

awaitable<Result<void>> HostWorkerEditor::replace(Host from, Host to, std::uint32_t least) {
  const auto turn = co_await turn_->acquire();
  auto text = co_await read();
  if (!text) co_return tl::unexpected(text.error());
  const auto& known = context_.spec.known_hosts;
  const std::uint32_t wanted = std::max(remove_host(*text, from, known), least);
  std::string others = *text;
  const std::uint32_t there = remove_host(others, to, known);
  if (wanted > there) add_lines(*text, to, wanted - there);
  if (const std::uint32_t empty = context_.job->membership().empty_places(to); empty > 0)
    context_.post(PlacesAsked{to, empty});
  co_return co_await write(std::move(*text));
}

awaitable<Result<void>> HostWorkerEditor::write(std::string text) {
  if (auto good = parse_hosts(text, "host_worker"); !good)
    co_return tl::unexpected(good.error().at("host_worker would not be in force"));
  co_return co_await context_.volume.rewrite(context_.path("host_worker"), std::move(text));
}

awaitable<Result<std::string>> HostWorkerEditor::read() {
  auto text = co_await context_.volume.read(context_.path("host_worker"));
  if (!text) co_return tl::unexpected(text.error());
  auto lines = parse_hosts(text->value_or(""), "host_worker");
  if (!lines) co_return tl::unexpected(lines.error());
  // The list in force is another one: with this one's lines it would lose all that were added.
  if (lines->empty())
    co_return fail(ErrorKind::kInvalid,
                   "{} names no host and is not in force: write the list there that dtctl status "
                   "shows, and try again",
                   context_.path("host_worker"));
  co_return std::move(**text);
}

Result<void> HostWorkerEditor::add(std::string& text, const std::vector<HostLine>& lines,
                                   std::uint32_t slots, const std::string& asked) {
  std::uint64_t added = 0;
  for (const HostLine& line : lines) {
    std::uint32_t count = line.slots.value_or(slots);
    // Places whose workers have left by themselves come first: their lines are there.
    const std::uint32_t empty = std::min(count, context_.job->membership().empty_places(line.host));
    if (empty > 0) context_.post(PlacesAsked{line.host, empty});
    count -= empty;
    if (count == 0) continue;
    added += count;
    if (added > kMostAdded)
      return fail(ErrorKind::kInvalid, "\"{}\" asks for more than {} workers", asked, kMostAdded);
    add_lines(text, line.host, count);
  }
  return {};
}

Result<void> HostWorkerEditor::remove(std::string& text, const std::vector<HostLine>& lines) const {
  for (const HostLine& line : lines) {
    const auto base = context_.job->membership().base_count(line.host);
    const std::uint32_t removed = remove_host(text, line.host, context_.spec.known_hosts);
    if (base > 0 && removed <= base)
      return fail(ErrorKind::kInvalid, "{} is a host of the initial launch: its workers stay",
                  line.host);
    if (removed == 0) return fail(ErrorKind::kInvalid, "{} is not in host_worker", line.host);
    add_lines(text, line.host, base);
  }
  return {};
}

}  // namespace dt::supervisor
