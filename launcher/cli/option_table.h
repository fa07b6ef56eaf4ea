/// The options of dtlaunch: their names, what --help says of each, and what kind of value it takes.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <string>
#include <vector>

namespace dt::launcher {

/// The one option whose value may be left out.
inline constexpr const char* kElastic = "elastic-training-enabled";

/// What an option that may be given again holds.
using Words = std::vector<std::string>;

/// By subject, as --help shows them.
[[nodiscard]] std::vector<boost::program_options::options_description> option_groups();
[[nodiscard]] boost::program_options::options_description all_options();

/// The text of --help.
[[nodiscard]] std::string help();

[[nodiscard]] bool takes_value(const boost::program_options::option_description& option);
[[nodiscard]] bool is_repeatable(const boost::program_options::option_description& option);

}  // namespace dt::launcher
