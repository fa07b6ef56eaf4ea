#include "test/bench/kv/tensor_list.h"

#include <numeric>

#include "core/base/number.h"

namespace dt::bench {

namespace {

constexpr std::uint64_t kMostTensors = 100'000;
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 30;

/// He et al. 2015, table 1: a stem, four stages of bottlenecks, a classifier. Each convolution is
/// followed by a batch norm's scale and shift.
std::vector<std::uint64_t> resnet50() {
  std::vector<std::uint64_t> all;
  const auto convolution = [&all](std::uint64_t in, std::uint64_t out, std::uint64_t kernel) {
    all.push_back(in * out * kernel * kernel);
    all.push_back(out);
    all.push_back(out);
  };
  convolution(3, 64, 7);
  std::uint64_t in = 64;
  const std::uint64_t blocks[] = {3, 4, 6, 3};
  for (std::uint64_t stage = 0; stage < 4; ++stage) {
    const std::uint64_t width = std::uint64_t{64} << stage;
    for (std::uint64_t block = 0; block < blocks[stage]; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
  }
  all.push_back(in * 1000);
  all.push_back(1000);
  return all;
}

/// Devlin et al. 2018: 12 layers of width 768, 30,522 word pieces.
std::vector<std::uint64_t> bert_base() {
  constexpr std::uint64_t kWidth = 768;
  constexpr std::uint64_t kInner = 3072;
  std::vector<std::uint64_t> all;
  const auto dense = [&all](std::uint64_t in, std::uint64_t out) {
    all.push_back(in * out);
    all.push_back(out);
  };
  const auto norm = [&] { all.insert(all.end(), 2, kWidth); };
  all = {30522 * kWidth, 512 * kWidth, 2 * kWidth};
  norm();
  for (int layer = 0; layer < 12; ++layer) {
    for (int matrix = 0; matrix < 4; ++matrix) dense(kWidth, kWidth);
    norm();
    dense(kWidth, kInner);
    dense(kInner, kWidth);
    norm();
  }
  dense(kWidth, kWidth);
  return all;
}

Result<std::uint64_t> parse_count(std::string_view text) {
  const auto value = parse_number<std::uint64_t>(text);
  if (!value || *value == 0) return fail(ErrorKind::kInvalid, "'{}' is not a number from 1", text);
  return *value;
}

/// "1K" or "1000x1K", added to the list.
Result<void> add_term(std::string_view term, TensorList& list) {
  std::uint64_t count = 1;
  const auto times = term.find('x');
  if (times != std::string_view::npos) {
    const auto parsed = parse_count(term.substr(0, times));
    if (!parsed) return tl::unexpected(parsed.error());
    count = *parsed;
    term.remove_prefix(times + 1);
  }
  const auto bytes = parse_bytes(term);
  if (!bytes) return tl::unexpected(bytes.error());
  if (*bytes % sizeof(float) != 0)
    return fail(ErrorKind::kInvalid, "'{}' is not a multiple of 4 bytes (float32 elements)", term);
  if (count > kMostTensors - list.elements.size())
    return fail(ErrorKind::kInvalid, "more than {} tensors in a list", kMostTensors);
  list.elements.insert(list.elements.end(), count, *bytes / sizeof(float));
  if (list.bytes() > kMostBytes) return fail(ErrorKind::kInvalid, "more than 64 GiB in a list");
  return {};
}

}  // namespace

std::uint64_t TensorList::total_elements() const {
  return std::accumulate(elements.begin(), elements.end(), std::uint64_t{0});
}

Result<TensorList> model_list(std::string_view name) {
  if (name == "resnet50") return TensorList{"resnet50", resnet50()};
  if (name == "bert-base") return TensorList{"bert-base", bert_base()};
  if (name == "embedding") return TensorList{"embedding", {std::uint64_t{1'000'000} * 250}};
  return fail(ErrorKind::kInvalid, "'{}' is none of resnet50, bert-base, embedding", name);
}

Result<TensorList> list_of_sizes(std::string_view text) {
  TensorList list{std::string(text), {}};
  for (;;) {
    const auto plus = text.find('+');
    if (auto added = add_term(text.substr(0, plus), list); !added)
      return tl::unexpected(added.error());
    if (plus == std::string_view::npos) return list;
    text.remove_prefix(plus + 1);
  }
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::string_view digits = text;
  unsigned shift = 0;
  if (!digits.empty()) {
    const char unit = digits.back();
    shift = unit == 'K' || unit == 'k'   ? 10
            : unit == 'M' || unit == 'm' ? 20
            : unit == 'G' || unit == 'g' ? 30
                                         : 0;
    if (shift) digits.remove_suffix(1);
  }
  const auto count = parse_count(digits);
  if (!count || *count > (kMostBytes >> shift))
    return fail(ErrorKind::kInvalid, "'{}' is not a size such as 512, 64K or 1M", text);
  return *count << shift;
}

}  // namespace dt::bench
