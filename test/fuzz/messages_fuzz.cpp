/// Any bytes as a control stream: the frames are the same however the stream is cut, and a message
/// that parses, written again, is the same bytes. Covers every message of the agents, the
/// processes, the control socket, the handshake, the volume helper and the journal.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/records.h"
#include "core/protocol/control_messages.h"
#include "io/job/control_protocol.h"
#include "kvstore/protocol/messages.h"
#include "supervisor/volume/protocol.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

/// The frames of a stream that arrives `piece` bytes at a time, until its end or its first error.
std::vector<wire::Frame> frames_of(std::string_view stream, std::size_t piece) {
  wire::FrameDecoder decoder;
  std::vector<wire::Frame> frames;
  while (!stream.empty()) {
    decoder.feed(stream.substr(0, piece));
    stream.remove_prefix(std::min(piece, stream.size()));
    for (;;) {
      auto frame = decoder.next();
      if (!frame) return frames;
      if (!*frame) break;
      frames.push_back(std::move(**frame));
    }
  }
  return frames;
}

template <class Message>
void read_as(const wire::Frame& frame) {
  if (frame.type != Message::kType) return;
  const auto message = wire::parse<Message>(frame.body);
  if (!message) return;
  DT_CHECK(wire::frame(*message) == wire::frame(frame.type, frame.body),
           "a message that changes when it is written again");
}

template <class... Messages>
void read_as_each(const wire::Frame& frame) {
  (read_as<Messages>(frame), ...);
}

void read(const wire::Frame& frame) {
  read_as_each<AgentHello, StartProcess, StopProcess, AckExit, ToProcess, Shutdown, AskProcess,
               CheckFolder, FolderChecked, Usage, AgentState, ProcessStarted, ProcessFailed,
               ProcessExited, Output, FromProcess, Beat, Refused, NoAgent, ProcessState, KeptOut,
               GpuHealth, AgentPlace, Notice, OutputRoom, OutputEnded>(frame);
  read_as_each<Identify, OpenedKvStore, Arrive, Progress, Figures, ServerReady, CommitAck, Traffic,
               GivingUp, Saved, ErrorFile, Servers, Release, Shrunk, ServerCommit>(frame);
  read_as_each<io::ControlRequest, io::ControlReply, io::Console, io::JobEnded>(frame);
  read_as_each<supervisor::VolumeRequest, supervisor::VolumeReply>(frame);
  read_as_each<data::RegisterKeys, data::KeyTable, data::SyncState, data::ShareMemory,
               data::Failure, data::Challenge, data::ClientProof, data::ServerProof>(frame);
  const auto record = record_from(frame);
  if (!record) return;
  // One of an earlier version gets another type, once.
  const wire::Frame written = to_frame(*record);
  const wire::Frame again = to_frame(record_from(written).value());
  DT_CHECK(written == frame || written.type != frame.type,
           "a record that changes when it is written again");
  DT_CHECK(again == written, "a record that changes when it is written for the second time");
}

}  // namespace

DT_FUZZ_TARGET(messages)
(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(bytes), size);
  const auto frames = frames_of(in, std::max<std::size_t>(size, 1));
  DT_CHECK(frames == frames_of(in, 1 + size / 7), "frames that depend on how the stream is cut");
  for (const wire::Frame& frame : frames) read(frame);
  // The same bytes as one frame of a type and a body: a length need not be guessed right.
  if (size < 2) return 0;
  wire::Frame frame;
  wire::Reader(in.substr(0, 2)).get(frame.type);
  frame.body = in.substr(2);
  read(frame);
  return 0;
}
