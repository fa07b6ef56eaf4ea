#include "kvstore/worker/device/group_copies.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace dt::kv {

struct GroupCopies::Moved {
  Request request;
  Outcome outcome;
  bool has_started = false;
};

void GroupCopies::bring_in(Request request) {
  auto moved = std::make_shared<Moved>();
  moved->request = std::move(request);
  start(std::move(moved), true);
}

void GroupCopies::bring_out(Request request, Outcome outcome) {
  auto moved = std::make_shared<Moved>();
  moved->request = std::move(request);
  moved->outcome = std::move(outcome);
  start(std::move(moved), false);
}

void GroupCopies::start(std::shared_ptr<Moved> moved, bool is_sum) {
  const auto& request = moved->request;
  const auto& ends = *request.device;
  DeviceGroup::Copy copy;
  copy.is_sum = is_sum;
  copy.ends = is_sum ? ends.all_from : ends.all_into;
  copy.place = ends.place;
  copy.dtype = request.header.dtype;
  copy.count = request.into_bytes / data::element_bytes(copy.dtype);
  copy.priority = request.header.priority;
  if (!is_sum)
    copy.on_started = [this, moved] {
      io::asio::post(context_, [this, moved] { note_start(*moved); });
    };
  copy.on_ended = [this, moved, is_sum](std::optional<StoreError> error) {
    io::asio::post(context_, [this, moved, is_sum, error = std::move(error)] {
      finish(*moved, is_sum, error);
    });
  };
  if (busy_++ == 0) guard_.emplace(context_.get_executor());
  group_.start(std::move(copy));
}

void GroupCopies::note_start(Moved& moved) {
  moved.has_started = true;
  owner_.on_out_started(moved.request);
}

void GroupCopies::finish(Moved& moved, bool is_sum, std::optional<StoreError> error) {
  if (!is_sum && !moved.has_started) note_start(moved);
  if (--busy_ == 0) guard_.reset();
  if (is_sum)
    owner_.on_in(std::move(moved.request), std::move(error));
  else
    owner_.on_out(std::move(moved.request), std::move(moved.outcome), std::move(error));
  owner_.on_looked();
}

}  // namespace dt::kv
