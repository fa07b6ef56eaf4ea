#include "io/job/data_options.h"

#include "core/protocol/device_choice.h"
#include "io/flags.h"

namespace dt::io {

Result<void> check_device(const std::string& text) {
  return parse_device(text).map([](const DeviceChoice&) {});
}

FlagGroup data_flags(DataOptions& data) {
  // clang-format off
  return {"Data plane", {
      {.name = "interface", .value = "NAME", .to = &data.interface,
       .help = "network interface for gradients: its name, or how its name begins, on all hosts; "
           "default: DMLC_INTERFACE, if that is set here",
       .manual = "The network interface gradients use: the one of that name on each host, else the "
           "first one there whose name begins so. By default that is the value of DMLC_INTERFACE "
           "in dtlaunch's own environment, if it is set.",
       .json = "interface", .for_servers = true, .variable = "DT_INTERFACE"},
      {.name = "server-port", .value = "PORT", .to = &data.server_port, .least = 1,
       .help = "first port of the servers on a host; default: any free one",
       .manual = "First port of the servers of a host; by default any free one.",
       .json = "server_port"},
      {.name = "transport", .value = "auto|tcp|shm",
       .to = one_of(data.transport, {"auto", "tcp", "shm"}),
       .help = "between workers and servers: auto (default) is shared memory on one host, else "
           "TCP",
       .manual = "What gradients travel by. *auto* (the default) is shared memory between a "
           "worker and a server that prove to be on one host, else TCP. With *shm* a server on "
           "another host is an error.", .json = "transport", .variable = "DT_TRANSPORT"},
      {.name = "data-auth", .value = "auto|frames|handshake",
       .to = one_of(data.data_auth, {"auto", "frames", "handshake"}),
       .help = "what data connections authenticate: auto (default) is every frame between "
           "machines, inside one the handshake",
       .manual = "What data connections authenticate with keys from the job's secret. With "
           "*frames* each frame carries tags: one that was changed, repeated, moved or removed on "
           "its way ends the connection, is counted, and is sent again. With *handshake* only the "
           "connection's beginning is authenticated, both ways; then whoever can write into the "
           "network between the hosts is trusted. *auto* (the default) is *frames*, but "
           "*handshake* between processes of one machine. Nothing is encrypted.",
       .json = "data_auth", .variable = "DT_DATA_AUTH"},
      {.name = "deterministic", .to = &data.deterministic,
       .help = "servers sum in the workers' order, not as gradients arrive: two runs give the "
           "same bits",
       .manual = "Servers add gradients in the order of the workers' ids instead of as they "
           "arrive: two runs give the same bits. What arrives out of this order is kept until "
           "those before it have come, at worst all gradients of a round.",
       .json = "deterministic", .variable = "DT_DETERMINISTIC"},
      {.name = "server-device", .value = "cpu|auto|cuda:N", .to = &data.server_device,
       .check = check_device,
       .help = "where servers keep and compute values: auto is a GPU where there is one ({})",
       .manual = "Where servers keep values, optimizer states and sums, and compute them: *cpu* "
           "(the default); *cuda:N*, that CUDA device of the server's host, without which the "
           "job ends with code 72; or *auto*, a CUDA device where there is one, which the "
           "servers of a host take in turn, else the CPU; the server says which. The bits are the "
           "same.", .json = "server_device",
       .for_servers = true, .variable = "DT_SERVER_DEVICE"},
      {.name = "refuse-nonfinite", .to = &data.refuse_nonfinite,
       .help = "a gradient with infinite or NaN elements is an error",
       .manual = "A gradient with infinite or NaN elements is an error at the worker that pushed "
           "it. Otherwise the servers count them and say so.", .json = "refuse_nonfinite",
       .variable = "DT_REFUSE_NONFINITE"},
      {.name = "busy-poll", .value = "US", .to = &data.busy_poll_us, .most = 1'000'000,
       .help = "microseconds to poll for an answer before sleeping ({})",
       .manual = "Workers that wait and servers poll so many microseconds before they sleep "
           "({}). Small messages get faster, for the price of the processor time.",
       .json = "busy_poll_us", .variable = "DT_BUSY_POLL_US"},
  }};
  // clang-format on
}

}  // namespace dt::io
