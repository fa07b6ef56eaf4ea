/// launch.h over the emulated machine: the host form, once the stream is there.
#include "kvstore/compute/cuda/launch.h"

#include "kvstore/compute/cuda/codecs.h"
#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/launch_list.h"
#include "kvstore/compute/cuda/product.h"
#include "kvstore/compute/cuda/sum.h"
#include "test/support/emulated_device/machine.h"
#include "test/support/emulated_device/put.h"

namespace dt::kv::cuda {

namespace {

using test::emulated::Machine;

template <class Element>
bool reaches(const Element* array, std::uint64_t elements) {
  return Machine::get().is_reachable(array, elements * sizeof(Element));
}
/// Like reaches(), for an optional array.
template <class Element>
bool reaches_any(const Element* array, std::uint64_t elements) {
  return !array || reaches(array, elements);
}

template <class In, unsigned kMost, class Element>
bool reaches_sources(const Weighted<In, kMost>& sum, const Element* const* sources,
                     std::uint64_t elements) {
  for (unsigned k = 0; k < sum.count; ++k)
    if (!reaches(sources[k], elements)) return false;
  return true;
}

// Whether a device gets at everything that an operation reads and writes.
template <class In, unsigned kMost>
bool reaches_all(const Sum<In, kMost>& op, const typename Sum<In, kMost>::Tensor& t) {
  return reaches(t.out, t.elements) && reaches_sources(op.sum, t.sources, t.elements);
}
template <class In>
bool reaches_all(const Add<In>&, const typename Add<In>::Tensor& t) {
  return reaches(t.into, t.elements) && reaches(t.from, t.elements);
}
template <class Step>
bool reaches_step(const Step& op, const typename Step::Tensor& t) {
  return reaches(t.values, t.elements) && reaches_any(t.first, t.elements) &&
         reaches_any(t.second, t.elements) && reaches_sources(op.gradient, t.gradients, t.elements);
}
template <class Format, unsigned kMost>
bool reaches_all(const Sgd<Format, kMost>& op, const typename Sgd<Format, kMost>::Tensor& t) {
  return reaches_step(op, t);
}
template <class Format, unsigned kMost>
bool reaches_all(const Adam<Format, kMost>& op, const typename Adam<Format, kMost>::Tensor& t) {
  return reaches_step(op, t);
}
bool reaches_all(const DecodeTwoBit&, const DecodeTwoBit::Tensor& t) {
  return reaches(t.codes, (t.elements + 3) / 4) && reaches(t.out, t.elements);
}
bool reaches_all(const AddTwoBit&, const AddTwoBit::Tensor& t) {
  return reaches(t.codes, (t.elements + 3) / 4) && reaches(t.into, t.elements);
}

template <class Operation>
void run(const Operation& operation, const typename Operation::Tensor& tensor,
         std::uint64_t* nonfinite) {
  if (!reaches_any(nonfinite, 1) || !reaches_all(operation, tensor))
    return Machine::get().break_with("an illegal memory access was encountered");
  const std::uint64_t found = run_on_host(operation, &tensor, 1);
  if (nonfinite) *nonfinite += found;
}

void multiply_on_host(const float* a, const float* b, float* c, int size) {
  const auto n = static_cast<std::size_t>(size);
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::size_t k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
      c[row * n + column] = sum;
    }
}

void count_launch() {
  Machine::get().count([](auto&, auto& done) { ++done.launches; });
}

}  // namespace

template <class Operation>
Status launch(const Operation& operation, const typename Operation::Tensor& tensor,
              std::uint64_t* nonfinite, Stream stream) {
  return test::emulated::put_launch(stream, [=] {
    count_launch();
    run(operation, tensor, nonfinite);
  });
}

#define DT_LAUNCH(...) \
  template Status launch(const __VA_ARGS__&, const __VA_ARGS__::Tensor&, std::uint64_t*, Stream);

DT_SUMS(DT_LAUNCH)
DT_STEPS(DT_LAUNCH)
DT_CODECS(DT_LAUNCH)

Status multiply(const float* a, const float* b, float* c, int size, Stream stream) {
  const auto n = static_cast<std::uint64_t>(size);
  if (!reaches(a, n * n) || !reaches(b, n * n) || !reaches(c, n * n))
    Machine::get().break_with("an illegal memory access was encountered");
  return test::emulated::put_launch(stream, [=] {
    multiply_on_host(a, b, c, size);
    if (const auto wrong = test::emulated::wrong_element()) c[*wrong] += 1;
  });
}

}  // namespace dt::kv::cuda
