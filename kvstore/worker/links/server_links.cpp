#include "kvstore/worker/links/server_links.h"

#include <algorithm>
#include <utility>

#include "kvstore/link/event_loop.h"

namespace dt::kv {

// ---------------------------------------------------------------- the loop

bool ServerLinks::learn(const Servers& servers) {
  {
    std::lock_guard lock(mutex_);
    if (newest_ && servers.since <= newest_->since) return false;
    const bool is_first = !newest_;
    newest_ = servers;
    if (!is_first) return !std::exchange(is_replaced_, true);
  }
  connect_again();
  return false;
}

void ServerLinks::connect_again() {
  std::size_t count = 0;
  {
    std::lock_guard lock(mutex_);
    servers_ = newest_;
    is_replaced_ = false;
    error_.reset();
    missing_.clear();
    count = servers_->servers.size();
    for (std::uint32_t s = 0; s < count; ++s)
      missing_[{s, 0}] = "the servers";  // until on_trouble() names a cause
  }
  to_push_out_.clear();
  used_.clear();
  links_.clear();
  links_.resize(count);
  for (std::uint32_t s = 0; s < count; ++s) {
    add_loops(s, 1);
    begin(links_[s].front());
  }
}

void ServerLinks::add_loops(std::uint32_t server, std::uint32_t loops) {
  if (error()) return;
  auto& have = links_[server];
  while (have.size() < loops) {
    const LoopId to{server, static_cast<std::uint32_t>(have.size())};
    have.push_back(std::make_shared<ServerLink>(options_, servers_->servers[server], to, *this,
                                                owner_, loop_));
  }
}

void ServerLinks::begin(const std::shared_ptr<ServerLink>& link) {
  if (error()) return;
  note_trouble(*link, "connecting");
  loop_.spawn(serve(link));
}

/// Keeps the link, which may be forgotten before it has ended.
io::awaitable<void> ServerLinks::serve(std::shared_ptr<ServerLink> link) { co_await link->run(); }

void ServerLinks::note_trouble(const ServerLink& link, const std::string& trouble) {
  std::lock_guard lock(mutex_);
  if (trouble.empty())
    missing_.erase(link.to());
  else
    missing_[link.to()] = fmt::format("{}: {}", link.name(), trouble);
}

void ServerLinks::send(ServerLink& link, Request request) {
  link.enqueue(std::move(request));
  if (to_push_out_.empty() || to_push_out_.back() != &link) to_push_out_.push_back(&link);
}

void ServerLinks::push_out() {
  for (ServerLink* link : to_push_out_) link->push_out();
  to_push_out_.clear();
}

void ServerLinks::beat() {
  for (auto& server : links_)
    for (auto& link : server) link->beat(link->to().loop == 0);
}

const Request* ServerLinks::lowest_unanswered() const {
  const Request* lowest = nullptr;
  for (const auto& server : links_)
    for (const auto& link : server)
      if (const Request* one = link->lowest_unanswered();
          one && (!lowest || key_of(*one) < key_of(*lowest)))
        lowest = one;
  return lowest;
}

std::vector<ServerId> ServerLinks::take_heard() {
  std::vector<ServerId> heard;
  for (auto& server : links_) {
    bool is_heard = false;
    for (auto& link : server) is_heard = link->take_heard() || is_heard;
    if (is_heard) heard.push_back(server.front()->address().server);
  }
  return heard;
}

/// Answers the queries among the unanswered requests; the others come back.
std::vector<Request> ServerLinks::finish(const StoreError& error, bool leaves) {
  {
    std::lock_guard lock(mutex_);
    if (leaves || !error_) error_ = error;
  }
  std::vector<Request> unanswered;
  for (ServerLink* link : all()) {
    for (auto& request : link->finish(leaves)) {
      if (!request.query) {
        unanswered.push_back(std::move(request));
        continue;
      }
      request.query->outcome.error = error;
      request.query->is_answered = true;
    }
  }
  return unanswered;
}

bool ServerLinks::have_ended() const { return std::ranges::all_of(all(), &ServerLink::has_ended); }

std::string ServerLinks::held_by() const {
  for (const ServerLink* link : all())
    if (!link->has_ended()) return link->name();
  return {};
}

bool ServerLinks::have_let_go() const {
  return std::ranges::all_of(all(), &ServerLink::has_let_go);
}

// ---------------------------------------------------------------- any thread

bool ServerLinks::is_connected() const {
  std::lock_guard lock(mutex_);
  return servers_ && missing_.empty();
}

std::string ServerLinks::missing() const {
  std::lock_guard lock(mutex_);
  if (!servers_)
    return "the servers, which do not all run yet (dtctl status names the host that is not ready)";
  return missing_.empty() ? "" : missing_.begin()->second;
}

// ---------------------------------------------------------------- the caller

std::vector<std::vector<ServerLink*>> ServerLinks::by_loop() const {
  std::vector<std::vector<ServerLink*>> out;
  for (const auto& server : links_) {
    auto& loops = out.emplace_back();
    for (const auto& link : server) loops.push_back(link.get());
  }
  return out;
}

std::vector<ServerLink*> ServerLinks::all() const {
  std::vector<ServerLink*> all;
  for (const auto& server : links_)
    for (const auto& link : server) all.push_back(link.get());
  return all;
}

bool ServerLinks::is_used(const ServerLink& link) const {
  return link.to().loop == 0 || used_.contains(link.to());
}

std::vector<ServerLink*> ServerLinks::used() const {
  std::vector<ServerLink*> links = all();
  std::erase_if(links, [this](const ServerLink* link) { return !is_used(*link); });
  return links;
}

void ServerLinks::connect_to(const std::set<ServerLink*>& links) {
  std::vector<ServerLink*> fresh;
  for (ServerLink* link : links) {
    if (is_used(*link)) continue;
    used_.insert(link->to());
    note_trouble(*link, "connecting");
    fresh.push_back(link);
  }
  if (fresh.empty()) return;
  loop_.post([this, fresh = std::move(fresh)] {
    for (const ServerLink* link : fresh) begin(links_[link->to().server][link->to().loop]);
  });
}

StoreResult<Queries> ServerLinks::tell(const std::vector<ServerLink*>& links,
                                       const Request& request) {
  if (auto broken = error()) return tl::unexpected(std::move(*broken));
  Queries queries;
  std::vector<ServerLink*> ways;
  for (ServerLink* to : links) {
    queries.push_back(std::make_shared<Query>());
    queries.back()->link = to;
    ways.push_back(is_used(*to) ? to : &at({to->to().server, 0}));
    DT_CHECK(ways.back() == to || data::may_be_for_loop(request.header.type),
             "a request to a loop without a connection");
  }
  loop_.post([this, queries, ways = std::move(ways), request] {
    const auto broken = error();
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const auto& query = queries[i];
      Request copy = request;
      copy.query = query;
      if (copy.header.type == data::Type::kFinish) copy.header.round = Round(query->link->phase);
      if (ways[i] != query->link) {
        copy.header.key = data::kForLoop;
        copy.header.chunk = query->link->to().loop;
      }
      query->outcome.error = broken;
      query->is_answered = broken.has_value();
      if (!broken) send(*ways[i], std::move(copy));
    }
    push_out();
  });
  return queries;
}

StoreResult<Queries> ServerLinks::ask(const std::vector<ServerLink*>& links, const Request& request,
                                      Duration limit) {
  auto told = tell(links, request);
  if (!told) return told;
  const Queries& queries = *told;
  std::size_t answered = 0;
  const auto is_done = [&] {
    while (answered < queries.size() && queries[answered]->is_answered) ++answered;
    return answered == queries.size();
  };
  if (loop_.run_until(is_done, deadline_after(limit))) return told;
  return tl::unexpected(StoreError{
      Code::kTimeout, fmt::format("server {} gave no answer within {:.0f} s",
                                  queries[answered]->link->address().server, seconds(limit))});
}

StoreResult<Queries> ServerLinks::ask_all(const Request& request, Duration limit) {
  auto queries = ask(all(), request, limit);
  if (!queries) return queries;
  for (const auto& query : *queries)
    if (query->outcome.error) return tl::unexpected(*query->outcome.error);
  return queries;
}

StoreResult<Outcome> ServerLinks::ask_first(const Request& request, Duration limit) {
  const auto queries = ask({&first()}, request, limit);
  if (!queries) return tl::unexpected(queries.error());
  Outcome& outcome = queries->front()->outcome;
  if (outcome.error) return tl::unexpected(*outcome.error);
  return std::move(outcome);
}

}  // namespace dt::kv
