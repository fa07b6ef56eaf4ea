#include "trainer/models/models.h"

#include <torch/nn.h>

#include "trainer/models/network.h"

namespace dt::train {
namespace {

namespace nn = torch::nn;

/// Two convolutions and two fully connected layers, 431,080 parameters on 28x28 pictures.
class LeNet final : public Network {
 public:
  explicit LeNet(const NetworkSpec& spec)
      : conv1_(register_module("conv1", nn::Conv2d(spec.channels, 20, 5))),
        conv2_(register_module("conv2", nn::Conv2d(20, 50, 5))),
        fc1_(register_module("fc1", nn::Linear(50 * after(spec.height) * after(spec.width), 500))),
        fc2_(register_module("fc2", nn::Linear(500, spec.classes))) {}

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(use(conv1_)(x)), 2);
    x = torch::max_pool2d(torch::relu(use(conv2_)(x)), 2);
    x = torch::relu(use(fc1_)(x.flatten(1)));
    return use(fc2_)(x);
  }
  bool says_use() const override { return true; }

 private:
  static std::int64_t after(std::uint32_t side) { return ((std::int64_t{side} - 4) / 2 - 4) / 2; }
  nn::Conv2d conv1_;
  nn::Conv2d conv2_;
  nn::Linear fc1_;
  nn::Linear fc2_;
};

class Mlp final : public Network {
 public:
  explicit Mlp(const NetworkSpec& spec)
      : fc1_(register_module(
            "fc1", nn::Linear(std::int64_t{spec.channels} * spec.height * spec.width, 128))),
        fc2_(register_module("fc2", nn::Linear(128, 64))),
        fc3_(register_module("fc3", nn::Linear(64, spec.classes))) {}

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(use(fc1_)(x.flatten(1)));
    x = torch::relu(use(fc2_)(x));
    return use(fc3_)(x);
  }
  bool says_use() const override { return true; }

 private:
  nn::Linear fc1_;
  nn::Linear fc2_;
  nn::Linear fc3_;
};

nn::Conv2d conv3x3(std::int64_t from, std::int64_t to, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(from, to, 3).stride(stride).padding(1).bias(false));
}

/// Two convolutions parallel to an identity; where the size changes, the identity drops every other
/// pixel and pads channels with zeros (He et al. 2015, option A): it has no parameters.
class Block final : public nn::Module {
 public:
  Block(std::int64_t from, std::int64_t to)
      : stride_(from == to ? 1 : 2),
        grown_(to - from),
        conv1_(register_module("conv1", conv3x3(from, to, stride_))),
        bn1_(register_module("bn1", nn::BatchNorm2d(to))),
        conv2_(register_module("conv2", conv3x3(to, to, 1))),
        bn2_(register_module("bn2", nn::BatchNorm2d(to))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    auto beside = x;
    if (stride_ != 1) {
      beside = x.slice(2, 0, c10::nullopt, 2).slice(3, 0, c10::nullopt, 2);
      beside = torch::constant_pad_nd(beside, {0, 0, 0, 0, grown_ / 2, grown_ - grown_ / 2});
    }
    const auto y = bn2_(conv2_(torch::relu(bn1_(conv1_(x)))));
    return torch::relu(y + beside);
  }

 private:
  std::int64_t stride_;
  std::int64_t grown_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
};

/// The ResNet of the CIFAR-10 experiments: three stages of n blocks with 16, 32 and 64 channels.
/// ResNet-20 has 269,722 parameters on CIFAR-10; with shortcuts that are projections (option B) it
/// would have 272,474.
class CifarResNet final : public Network {
 public:
  explicit CifarResNet(const NetworkSpec& spec)
      : conv_(register_module("conv", conv3x3(spec.channels, 16, 1))),
        bn_(register_module("bn", nn::BatchNorm2d(16))),
        fc_(register_module("fc", nn::Linear(64, spec.classes))) {
    const std::uint32_t blocks = (spec.num_layers - 2) / 6;
    std::int64_t from = 16;
    for (const std::int64_t to : {16, 32, 64}) {
      for (std::uint32_t i = 0; i < blocks; ++i) {
        blocks_.push_back(register_module("block" + std::to_string(blocks_.size()),
                                          std::make_shared<Block>(from, to)));
        from = to;
      }
    }
    for (auto& module : modules(false)) {
      if (auto* conv = module->as<nn::Conv2d>())
        nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(use(bn_)(use(conv_)(x)));
    for (auto& block : blocks_) x = use(block)->forward(x);
    return use(fc_)(x.mean({2, 3}));
  }
  bool says_use() const override { return true; }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d bn_;
  nn::Linear fc_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace

Result<std::shared_ptr<Network>> make_network(const NetworkSpec& spec) {
  torch::manual_seed(spec.seed);
  if (spec.name == "mlp") return std::make_shared<Mlp>(spec);
  if (spec.name == "lenet") {
    if (spec.height < 16 || spec.width < 16)
      return fail(ErrorKind::kInvalid, "lenet needs pictures of 16x16 or more, not {}x{}",
                  spec.width, spec.height);
    return std::make_shared<LeNet>(spec);
  }
  if (spec.name == "resnet") {
    if (spec.num_layers < 8 || spec.num_layers % 6 != 2)
      return fail(ErrorKind::kInvalid,
                  "a resnet here has 6n+2 layers (20, 32, 44, 56, 110), not {}", spec.num_layers);
    return std::make_shared<CifarResNet>(spec);
  }
  return fail(ErrorKind::kInvalid, "unknown network {}: lenet, mlp or resnet", spec.name);
}

}  // namespace dt::train
