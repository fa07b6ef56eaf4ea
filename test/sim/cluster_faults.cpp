#include <algorithm>

#include "core/job/notices.h"
#include "test/sim/cluster.h"

namespace dt::sim {

using namespace std::chrono_literals;

void Cluster::heal() {
  trace(1, 0, "---- faults end");
  faults_ = Faults{};
  healed_ = true;
  second_.is_cut_off = false;
  is_disk_full_ = false;
  for (Machine& m : machines_) {
    m.control = m.data = m.up = true;
    m.refuse_until = m.hang_until = Time{};
  }
  if (rng_.chance(0.8)) write_file(next_list());
  check_rounds();
  after(30s, [this] { end_hung_alone(); });
}

void Cluster::end_hung_alone() {
  const auto trains = [this](const Process& p) {
    return p.running && !p.hung && p.id.role == Role::kWorker && p.released &&
           std::count(checkers_->contributors().begin(), checkers_->contributors().end(),
                      WorkerId(p.id.id)) > 0;
  };
  if (std::none_of(processes_.begin(), processes_.end(), trains)) {
    for (std::size_t p = 0; p < processes_.size(); ++p)
      if (processes_[p].hung && processes_[p].id.role == Role::kWorker)
        process_ends(p, ExitStatus{0, 9});
  }
  if (!over_) after(30s, [this] { end_hung_alone(); });
}

void Cluster::chaos() {
  if (healed_ || over_) return;
  const std::vector<double> weights{faults_.cut,        faults_.isolate,   faults_.kill_worker,
                                    faults_.kill_agent, faults_.kill_host, faults_.kill_server,
                                    faults_.refuse,     faults_.edit,      faults_.freeze,
                                    faults_.hang_server};
  double total = 4;  // now and then nothing
  for (const double w : weights) total += w;
  double at = total * static_cast<double>(rng_.between(0, 999999)) / 1e6;
  std::size_t what = 0;
  while (what < weights.size() && at >= weights[what]) at -= weights[what++];
  const std::size_t i = rng_.between(0, machines_.size() - 1);
  switch (what) {
    case 0:
    case 1:
      trouble(i, what == 1);
      break;
    case 2:
      kill_process(Role::kWorker);
      break;
    case 3:
      trace(30, i, "!! agent of {} is killed", machines_[i].host);
      excuse();
      agent_ends(i, "killed");
      break;
    case 4:
      kill_host(i);
      break;
    case 5:
      checkers_->excused_codes.insert(67);
      for (bool more = true; more; more = rng_.chance(0.3)) kill_process(Role::kServer);
      break;
    case 6:
      trace(31, i, "!! {} refuses newcomers", machines_[i].host);
      checkers_->excused_codes.insert(65);
      checkers_->on_trouble(machines_[i].host);
      checkers_->on_doubt(machines_[i].host);
      (rng_.chance(0.5) ? machines_[i].refuse_until : machines_[i].hang_until) =
          now_ + rng_.time(1s, 30s);
      break;
    case 7:
      write_file(next_list());
      break;
    case 8:
      freeze(i);
      break;
    case 9:
      hang_server();
      break;
    default:
      break;
  }
  after(rng_.time(100ms, 4s), [this] { chaos(); });
}

void Cluster::excuse() {
  for (const int code : {65, 66, 67, 137}) checkers_->excused_codes.insert(code);
}

void Cluster::trouble(std::size_t i, bool data_too) {
  Machine& m = machines_[i];
  if (!m.control) return;
  trace(32, i, "!! {} is cut off{}", m.host, data_too ? ", data too" : "");
  excuse();
  cut(i);
  if (data_too) m.data = false;
  after(rng_.time(100ms, 8s), [this, i] {
    machines_[i].control = machines_[i].data = true;
    trace(33, i, "!! {} is back", machines_[i].host);
  });
}

void Cluster::freeze(std::size_t i) {
  Machine& m = machines_[i];
  if (!m.link.up || m.link.leaving || !m.control) return;
  const Duration d = rng_.time(500ms, 7s);
  trace(37, i, "!! nothing is heard of {} for {:.1f} s", m.host, seconds(d));
  checkers_->on_doubt(m.host);
  excuse();
  const bool data_too = rng_.chance(0.6);
  if (data_too) m.data = false;
  const auto id = m.link.id;
  const auto life = life_;
  const Time since = now_;
  m.link.last_to_supervisor = std::max(m.link.last_to_supervisor, now_ + d);
  const auto is_same = [this, i, id, life] {
    const Link& then = machines_[i].link;
    return alive_ && life == life_ && then.id == id && then.up && !then.leaving;
  };
  if (d > options_.liveness.suspect_after)
    after(options_.liveness.suspect_after, [this, i, since, is_same] {
      checkers_->on_trouble(machines_[i].host);
      if (is_same()) feed(AgentSilent{machines_[i].host, since});
    });
  after(d, [this, i, data_too, is_same] {
    if (data_too) machines_[i].data = true;
    if (is_same()) feed(AgentHeard{machines_[i].host});
  });
}

bool Cluster::kill_process(Role role) {
  std::vector<std::size_t> candidates;
  for (std::size_t p = 0; p < processes_.size(); ++p)
    if (processes_[p].running && processes_[p].id.role == role) candidates.push_back(p);
  if (candidates.empty()) return false;
  const std::size_t p = rng_.pick(candidates);
  trace(34, p, "!! {} is killed", to_string(processes_[p].id));
  process_ends(p, ExitStatus{0, 9});
  return true;
}

void Cluster::hang_server() {
  std::vector<std::size_t> candidates;
  for (std::size_t p = 0; p < processes_.size(); ++p)
    if (processes_[p].running && !processes_[p].hung && processes_[p].id.role == Role::kServer)
      candidates.push_back(p);
  if (candidates.empty()) return;
  const std::size_t p = rng_.pick(candidates);
  trace(38, p, "!! {} hangs", to_string(processes_[p].id));
  processes_[p].hung = true;
  if (options_.opaque_servers) return;  // that shows nowhere
  checkers_->excused_codes.insert(67);
  if (rng_.chance(0.5)) return;
  after(rng_.time(100ms, 8s), [this, p] {
    Process& then = processes_[p];
    if (!then.running) return;
    trace(39, p, "!! {} goes on", to_string(then.id));
    then.hung = false;
    if (then.acked < then.generation) {
      then.acked = then.generation;
      say(then.host, FromServer<CommitAck>{ServerId(then.id.id), {then.generation}});
    }
    report_traffic(p);
    check_rounds();
  });
}

void Cluster::kill_host(std::size_t i) {
  Machine& m = machines_[i];
  if (!m.up) return;
  trace(35, i, "!! {} loses power", m.host);
  excuse();
  agent_ends(i, "power");
  m.up = false;
  m.taken_over_by = Term();
  m.notices.clear();
  ++m.boot;
  cut(i);
  after(rng_.time(1s, 15s),
        [this, i] { machines_[i].up = machines_[i].control = machines_[i].data = true; });
}

void Cluster::give_notices() {
  if (healed_ || over_) return;
  give_notice();
  after(notice_rng_.time(500ms, 10s), [this] { give_notices(); });
}

void Cluster::give_notice() {
  std::optional<std::size_t> i = notice_rng_.between(0, machines_.size() - 1);
  if (notice_rng_.chance(0.05)) i.reset();
  const Duration in = notice_rng_.chance(0.1) ? 0s : notice_rng_.time(0s, 8s);
  const std::uint64_t number = ++next_notice_;
  notices_.insert(number);
  trace(40, number, "!! {} goes away in {:.1f} s", i ? to_string(machines_[*i].host) : "every host",
        seconds(in));
  tell_notice(i, now_ + in, number);
  if (notice_rng_.chance(0.3))
    after(notice_rng_.time(0s, in), [this, i, number] { cancel_notice(i, number); });
  if (!i) return;
  const bool is_true = notice_rng_.chance(0.8);
  const bool is_added_again = notice_rng_.chance(0.3);
  after(in + 10ms, [this, i, number, is_true, is_added_again] {
    if (notices_.count(number) == 0 || healed_) return;
    if (is_true) kill_host(*i);
    if (is_added_again)
      after(notice_rng_.time(0s, 5s), [this, i] { feed(PlacesAsked{machines_[*i].host, 4}); });
  });
}

void Cluster::replace_bases() {
  if (healed_ || over_) return;
  after(replace_rng_.time(1s, 20s), [this] { replace_bases(); });
  const Host from = replace_rng_.pick(machines_).host;
  const Host to = replace_rng_.pick(machines_).host;
  if (!alive_) return;
  if (from == options_.master || !job_->membership().replace_objection(from, to).empty()) return;
  trace(45, 0, "!! {} is to have the places of {}", to, from);
  feed(ReplaceAsked{from, to});
}

void Cluster::tell_notice(std::optional<std::size_t> i, Time deadline, std::uint64_t number) {
  if (over_ || notices_.count(number) == 0) return;
  if (!alive_)
    return after(300ms, [this, i, deadline, number] { tell_notice(i, deadline, number); });
  NoticeGiven e;
  if (i) e.host = machines_[*i].host;
  if (!notice_rng_.chance(0.05)) e.left = deadline - now_;
  e.why = fmt::format("notice {}", number);
  feed(e);
  e.is_repeated = true;
  const auto again = [this, e, deadline] {
    NoticeGiven said = e;
    if (said.left) said.left = deadline - now_;
    return said;
  };
  // Its source says it again, after a link was down.
  if (i) machines_[*i].notices[number] = again;
  if (notice_rng_.chance(0.3)) after(notice_rng_.time(0s, 2s), [this, again] { feed(again()); });
}

void Cluster::cancel_notice(std::optional<std::size_t> i, std::uint64_t number) {
  if (!alive_ || over_) return;
  const std::optional<Host> host = i ? std::optional(machines_[*i].host) : std::nullopt;
  if (!job_->notices().cancel_objection(host).empty()) return;
  notices_.erase(number);
  for (Machine& m : machines_) m.notices.erase(number);
  feed(NoticeCancelled{host});
}

std::vector<Host> Cluster::next_list() {
  std::vector<Host> list;
  for (const Host& h : options_.workers)
    if (!rng_.chance(0.05)) list.push_back(h);
  if (rng_.chance(0.2)) return list;
  const std::size_t n = rng_.between(1, 3);
  for (std::size_t k = 0; k < n; ++k) list.push_back(rng_.pick(machines_).host);
  return list;
}

void Cluster::write_file(const std::vector<Host>& list) {
  const std::string text = format_host_worker(list);
  trace(36, list.size(), "!! host_worker is written: {}", fmt::join(list, " "));
  const std::optional<std::string> before = file_;
  const Duration d = rng_.time(1ms, 4s);
  const int how = healed_ ? 0 : static_cast<int>(rng_.between(0, 6));
  switch (how) {
    case 1:  // emptied, then written
      file_ = "";
      after(d, [this, text] { file_ = text; });
      return;
    case 2:  // a part, then all
      file_ = text.substr(0, rng_.between(0, text.size()));
      after(d, [this, text] { file_ = text; });
      return;
    case 3:  // moved away, then a new one
      file_.reset();
      after(d, [this, text] { file_ = text; });
      return;
    case 4:  // a garbage line
      file_ = text + "10.0.0.7 slots=x\n";
      return;
    case 5:  // and changed back
      file_ = text;
      after(d, [this, before] { file_ = before; });
      return;
    default:
      file_ = text;
  }
}

}  // namespace dt::sim
