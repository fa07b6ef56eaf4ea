/// What a bundle (bundle.h) has, and which ones are in use on a host: a program that runs from one
/// touches its folder.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "io/asio.h"

namespace dt::launcher {

/// A bundle that was not touched for so long is removed when the next one is copied.
inline constexpr std::chrono::minutes kBundleKept = std::chrono::hours(48);
/// The same for the folder of a copy that broke off.
inline constexpr std::chrono::minutes kTokenKept = std::chrono::hours(1);

/// The Python package dtkv, seen from the folder of the programs. Python imports from such files.
/// In a bundle it lies beside the programs.
inline constexpr const char* kPythonPackage = "../lib/dtlaunch/dtkv.zip";

/// The programs for hosts, from this program's folder, and where it is there the Python package
/// with its library. The programs need no library that a host with glibc and an sshd lacks.
[[nodiscard]] std::vector<std::string> bundle_files();

/// Touches the folder that this program runs from, if that is a bundle's. Never fails: a bundle
/// that cannot be touched is copied again when it is next needed.
void touch_bundle();
/// The same every few hours, until it is cancelled.
io::awaitable<void> keep_bundle_in_use();

}  // namespace dt::launcher
