#include "supervisor/files/journal_room.h"

#include <iterator>

#include "core/base/lookup.h"

namespace dt::supervisor {

void JournalRoom::hold(std::vector<Effect> effects, std::string why, Time now) {
  held_ = std::move(effects);
  since_ = now;
  put_off(std::move(why), now);
}

void JournalRoom::put_off(std::string why, Time now) {
  why_ = std::move(why);
  next_try_ = now + kTryAgain;
}

std::vector<Effect> JournalRoom::let_go(Time now) {
  stood_ += waited(now);
  std::vector<Effect> rest(std::make_move_iterator(held_.begin() + 1),
                           std::make_move_iterator(held_.end()));
  held_.clear();
  return rest;
}

std::string JournalRoom::news(const std::string& shortage) {
  const bool is_new = !std::exchange(is_short_, !shortage.empty());
  return is_new ? shortage : "";
}

bool JournalRoom::matters(const JobEvent& event) {
  return !is_any_of<Tick, FromServer<Traffic>, FromWorker<ServersHeard>, FromWorker<Progress>,
                    FromWorker<Figures>, ProcessInspected>(event);
}

bool JournalRoom::is_void(const JobEvent& event, const Host& released) {
  const auto* attached = std::get_if<AgentAttached>(&event);
  return attached && attached->host == released;
}

}  // namespace dt::supervisor
