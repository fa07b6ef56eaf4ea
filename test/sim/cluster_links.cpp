#include "test/sim/cluster.h"

namespace dt::sim {

using namespace std::chrono_literals;

void Cluster::try_attach(std::size_t i, Duration delay) {
  const auto life = life_;
  const auto attempt = ++machines_[i].link.tries;
  after(delay, [this, i, life, attempt] {
    Machine& m = machines_[i];
    if (!alive_ || life != life_ || m.link.tries != attempt || !m.link.wanted) return;
    if (m.link.leaving) return try_attach(i, 100ms);
    if (m.hang_until > now_ && m.link.start && !m.link.ever)
      return try_attach(i, m.hang_until - now_);
    const bool refused = m.refuse_until > now_ && m.link.start && !m.link.ever;
    if (!m.up || !m.control || refused) {
      if (m.link.start && !m.link.ever) {
        m.link.wanted = false;
        checkers_->on_trouble(m.host);
        checkers_->on_doubt(m.host);
        checkers_->on_failed_try();
        return feed(AttachFailed{m.host, "connection refused"});
      }
      if (!m.link.told_down) {
        m.link.told_down = true;
        feed(AgentDetached{m.host, "no route", false});
      }
      if (machines_[i].link.wanted) try_attach(i, rng_.time(200ms, 1s));
      return;
    }
    if (!m.agent.alive) {
      if (!m.link.start || m.link.ever) {
        m.link = Link{};
        trace(16, i, "{}: no agent there", m.host);
        checkers_->on_trouble(m.host);
        return feed(AgentDetached{m.host, "no agent there", true});
      }
      if (m.taken_over_by > term_) return stand_down("a host obeys a higher term");
      m.agent = Agent{};
      m.agent.alive = true;
      m.agent.incarnation = ++incarnations_;
    }
    if (m.agent.term > term_ && second_.has_lock) return stand_down("an agent obeys a higher term");
    connect(i);
  });
}

void Cluster::connect(std::size_t i) {
  Machine& m = machines_[i];
  if (m.agent.term > term_) return checkers_->fail("an agent has seen a later term");
  m.agent.term = term_;
  m.agent.link = m.link.id = ++links_;
  m.link.last_to_agent = m.link.last_to_supervisor = now_;
  AgentAttached e{m.host, fmt::format("boot{}", m.boot), m.agent.incarnation, {}};
  std::vector<JobEvent> then;
  for (const auto& [id, index] : m.agent.processes) {
    const Process& p = processes_[index];
    e.processes.push_back({id, p.stalls ? 0 : static_cast<std::int32_t>(index) + 1, p.exit, {}});
    if (p.opened) then.emplace_back(FromWorker<OpenedKvStore>{WorkerId(id.id), {}});
    if (p.arrived) then.emplace_back(*p.arrived);
    if (p.listens)
      then.emplace_back(FromServer<ServerReady>{ServerId(id.id), {m.host.name, 9000, "", ""}});
    if (p.saved) then.emplace_back(FromServer<Saved>{ServerId(id.id), *p.saved});
    if (p.acked) then.emplace_back(FromServer<CommitAck>{ServerId(id.id), {*p.acked}});
    if (p.unusable) then.emplace_back(FromServer<GivingUp>{ServerId(id.id), {"damaged", true}});
    if (p.exit) then.emplace_back(ProcessEnded{id, *p.exit, "", p.never_ran});
  }
  for (const auto& [number, again] : m.notices) then.emplace_back(again());
  to_supervisor(i, [this, i, e, then] {
    Machine& to = machines_[i];
    trace(17, i, "{}: attached, {} process(es)", to.host, e.processes.size());
    to.link.up = true;
    to.link.ever = true;
    to.link.told_down = false;
    if (over_) return shut_down(i);
    const auto life = life_;
    feed(e);
    for (const JobEvent& event : then)
      if (alive_ && life == life_) feed(event);
  });
}

void Cluster::cut(std::size_t i) {
  Machine& m = machines_[i];
  checkers_->on_doubt(m.host);
  m.control = false;
  const auto link = m.link.id;
  after(rng_.time(0s, 900ms), [this, i, link] { break_link(i, link); });
  const auto agents = m.agent.link;
  after(rng_.time(0s, 900ms), [this, i, agents] { unlink_agent(i, agents); });
}

void Cluster::break_link(std::size_t i, std::uint64_t id) {
  Machine& m = machines_[i];
  if (!alive_ || id == 0 || m.link.id != id) return;
  if (m.link.leaving) {
    const bool wanted = m.link.wanted;
    const bool start = m.link.start;
    const auto tries = m.link.tries;
    m.link = Link{};
    m.link.wanted = wanted;
    m.link.start = start;
    m.link.tries = tries;
    return;
  }
  const bool told = m.link.up;
  m.link.up = false;
  m.link.id = 0;
  m.link.told_down = true;
  trace(18, i, "{}: link broken", m.host);
  checkers_->on_trouble(m.host);
  if (told) {
    const auto life = life_;
    feed(AgentDetached{m.host, "connection reset", false});
    if (!alive_ || life != life_) return;
  }
  if (m.link.wanted) try_attach(i, rng_.time(50ms, 500ms));
}

void Cluster::unlink_agent(std::size_t i, std::uint64_t link) {
  Agent& a = machines_[i].agent;
  if (!a.alive || a.link != link) return;
  a.link = 0;
  const auto unlinked = ++a.unlinked;
  const auto incarnation = a.incarnation;
  after(kOrphanTimeout, [this, i, unlinked, incarnation] {
    const Agent& then = machines_[i].agent;
    if (then.alive && then.incarnation == incarnation && then.link == 0 &&
        then.unlinked == unlinked)
      agent_ends(i, "orphaned");
  });
}

Duration Cluster::delay() {
  return rng_.chance(0.1) ? rng_.time(1ms, 300ms) : rng_.time(1ms, 10ms);
}

void Cluster::to_agent(std::size_t i, std::function<void()> act) {
  Link& link = machines_[i].link;
  if (!link.up) return;
  link.last_to_agent = std::max(link.last_to_agent, now_ + delay());
  const auto id = link.id;
  auto deliver = [this, i, id, act = std::move(act)] {
    const Machine& m = machines_[i];
    if (m.agent.alive && m.agent.link == id && m.control && m.up) act();
  };
  if (rng_.chance(faults_.duplicate)) at(link.last_to_agent, deliver);
  at(link.last_to_agent, std::move(deliver));
}

void Cluster::to_supervisor(std::size_t i, std::function<void()> act) {
  const Machine& m = machines_[i];
  if (!alive_ || m.agent.link == 0 || m.link.id != m.agent.link || !m.control) return;
  Link& link = machines_[i].link;
  link.last_to_supervisor = std::max(link.last_to_supervisor, now_ + delay());
  const auto id = link.id;
  const auto life = life_;
  auto deliver = [this, i, id, life, act = std::move(act)] {
    const Machine& then = machines_[i];
    if (alive_ && life == life_ && then.link.id == id && then.control && then.up) act();
  };
  at(link.last_to_supervisor, std::move(deliver));
}

void Cluster::say(std::size_t i, const JobEvent& event) {
  const auto act = [this, i, event] {
    if (machines_[i].link.up && !machines_[i].link.leaving) feed(event);
  };
  to_supervisor(i, act);
  if (rng_.chance(faults_.duplicate)) to_supervisor(i, act);
}

void Cluster::to_process(std::size_t i, ProcessId id, std::function<void(std::size_t)> act) {
  to_agent(i, [this, i, id, act = std::move(act)] {
    const auto p = machines_[i].agent.processes.find(id);
    if (p == machines_[i].agent.processes.end() || !processes_[p->second].running) return;
    act(p->second);
  });
}

}  // namespace dt::sim
