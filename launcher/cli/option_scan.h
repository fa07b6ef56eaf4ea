/// A command line cut in two: options with their values, and the command they precede.
#pragma once

#include <boost/program_options/parsers.hpp>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "launcher/cli/option_table.h"

namespace dt::launcher {

struct Scan {
  boost::program_options::parsed_options options;
  Words command;
};

/// Options end at the first word that is neither one nor the value of one, or after "--". Errors
/// are kInvalid; an unknown option's names the nearest of `table`, which outlives the result.
[[nodiscard]] Result<Scan> scan_options(const boost::program_options::options_description& table,
                                        const Words& words);

/// True or False, and 1 or 0, in letters of any size; nothing for other words.
[[nodiscard]] std::optional<bool> truth(const std::string& text);

}  // namespace dt::launcher
