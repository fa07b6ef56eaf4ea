/// dttrain's exchange beside compute that sleeps: the row dttrain of python_bench --network sleep.
///
///     sleep_trainer LOG SECONDS STEPS BATCH SIZE...
///
/// A layer for each SIZE. A step sleeps SECONDS, evenly over the layers, a third of them in
/// forward. LOG gets a line for the end of each step; %i in it becomes the worker's id.
#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trainer/data/data.h"
#include "trainer/models/network.h"
#include "trainer/module.h"

namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));  // tidy: allow (the compute)
}

/// What a layer computes: nothing, for a while.
struct Sleep : torch::autograd::Function<Sleep> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, double seconds) {
    context->saved_data["size"] = weight.numel();
    context->saved_data["seconds"] = seconds;
    sleep_for(seconds / 3);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    sleep_for(context->saved_data["seconds"].toDouble() * 2 / 3);
    return {gradients[0], torch::full({context->saved_data["size"].toInt()}, 1e-3),
            torch::Tensor()};
  }
};

struct Layer : torch::nn::Module {
  explicit Layer(std::int64_t size) : weight(register_parameter("weight", torch::randn({size}))) {}
  torch::Tensor weight;
};

class Sleeping final : public dt::train::Network {
 public:
  Sleeping(const std::vector<std::int64_t>& sizes, double seconds)
      : of_layer_(seconds / static_cast<double>(sizes.size())) {
    for (const std::int64_t size : sizes)
      layers_.push_back(
          register_module(fmt::format("layer{}", layers_.size()), std::make_shared<Layer>(size)));
  }
  torch::Tensor forward(torch::Tensor x) override {
    x = x.flatten(1).narrow(1, 0, 10).requires_grad_();
    for (auto& layer : layers_) x = Sleep::apply(x, use(layer)->weight, of_layer_);
    return x;
  }
  [[nodiscard]] bool says_use() const override { return true; }

 private:
  double of_layer_;
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr, "usage: sleep_trainer LOG SECONDS STEPS BATCH SIZE...\n");
    return 2;
  }
  std::vector<std::int64_t> sizes;
  for (int i = 5; i < argc; ++i) sizes.push_back(std::stoll(argv[i]));
  const auto steps = static_cast<std::uint32_t>(std::stoul(argv[3]));
  const auto batch = static_cast<std::uint32_t>(std::stoul(argv[4]));
  dt::train::set_threads_from_environment();
  dt::train::Module module(std::make_shared<Sleeping>(sizes, std::stod(argv[2])));
  dtkv::KVStore kv("dist_sync");
  const dt::train::DataPair data{
      dt::train::generate_digits(kv.num_workers() * steps * batch, 1), {}, "generated"};
  dt::train::DatasetIterator iterator(data, {.per_worker = batch});
  std::string path(argv[1]);
  if (const auto at = path.find("%i"); at != path.npos)
    path.replace(at, 2, std::to_string(kv.worker_id()));
  std::ofstream log(path);
  dt::train::FitOptions options{.disp_batches = 0};
  options.on_batch_end = [&log](const dt::train::BatchEnd& end) {
    log << fmt::format("{{\"event\": \"step\", \"t_ns\": {}}}\n", end.end_ns);
  };
  const auto end = module.fit(kv, iterator, options);
  if (!end) fmt::print(stderr, "sleep_trainer: {}\n", end.error().message);
  return end && log.flush() ? 0 : 1;
}
