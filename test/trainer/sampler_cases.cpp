// For the package dtkv's test: reads "samples global_batch rank world seed epoch shuffle" lines
// from stdin, and prints for each the worker's samples of the epoch, a line "a,b c,d,e" with a word
// for each step; an empty share is "-".

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <iostream>

#include "trainer/data/sampler.h"

int main() {
  dt::train::SamplerOptions options;
  std::uint32_t epoch = 0;
  while (std::cin >> options.samples >> options.global_batch >> options.rank >> options.world >>
         options.seed >> epoch >> options.shuffle) {
    dt::train::Sampler sampler(options);
    sampler.begin(epoch);
    std::string line;
    for (std::uint32_t step = 0; step < sampler.steps(); ++step) {
      const auto batch = sampler.batch(step);
      line += batch.empty() ? std::string("- ") : fmt::format("{} ", fmt::join(batch, ","));
    }
    fmt::print("{}\n", line);
  }
}
