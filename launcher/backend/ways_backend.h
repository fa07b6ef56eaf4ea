/// The backend of a job whose hosts are reached in several ways: each host by the backend of its
/// own, which is made when first needed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/files/kind.h"
#include "launcher/backend/backend.h"

namespace dt::launcher {

class WaysBackend final : public Backend {
 public:
  /// `way`: how a host is reached; `remark`: what a person has to know of that when it fails, or
  /// nothing; `make`: the backend for that way.
  WaysBackend(std::function<StarterKind(const Host&)> way,
              std::function<std::string(const Host&)> remark,
              std::function<std::unique_ptr<Backend>(StarterKind)> make)
      : way_(std::move(way)), remark_(std::move(remark)), make_(std::move(make)) {}

  boost::asio::awaitable<Result<std::unique_ptr<io::ByteStream>>> open(
      Host host, std::vector<std::string> argv) override;
  [[nodiscard]] std::string address(const Host& host) const override {
    return of(host).address(host);
  }
  [[nodiscard]] std::string doing(const Host& host) const override { return of(host).doing(host); }
  [[nodiscard]] Exec* exec(const Host& host) override { return of(host).exec(host); }
  void disconnect(const Host& host) override { of(host).disconnect(host); }
  [[nodiscard]] std::string reach_command(const Host& host) const override {
    return of(host).reach_command(host);
  }
  [[nodiscard]] std::string remote_shell(const Host& host) const override {
    return of(host).remote_shell(host);
  }

 private:
  [[nodiscard]] Backend& of(const Host& host) const {
    const StarterKind kind = way_(host);
    auto& backend = backends_[kind];
    if (!backend) backend = make_(kind);
    return *backend;
  }

  std::function<StarterKind(const Host&)> way_;
  std::function<std::string(const Host&)> remark_;
  std::function<std::unique_ptr<Backend>(StarterKind)> make_;
  mutable std::map<StarterKind, std::unique_ptr<Backend>> backends_;
};

}  // namespace dt::launcher
