// dtbench-mpi: one rank of MPI_Allreduce in place, tensor by tensor; run by `dtbench kv --peer mpi`
// under mpirun.
//   dtbench-mpi CONTROL

#include <mpi.h>

#include "test/bench/kv/failure.h"
#include "test/bench/kv/peer_main.h"
#include "test/bench/kv/worker.h"

namespace {

using namespace dt;
using namespace dt::bench;

class MpiExchange final : public Exchange {
 public:
  explicit MpiExchange(std::span<const std::uint64_t> elements)
      : elements_(elements.begin(), elements.end()) {
    std::size_t all = 0;
    for (const std::uint64_t count : elements_) all += count;
    values_ = Buffer(all);
  }

  std::span<float> gradient() override { return values_.values(); }
  std::span<const float> result() override { return values_.values(); }

  void run() override {
    float* values = values_.values().data();
    for (const std::uint64_t count : elements_) {
      const int code = MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_FLOAT,
                                     MPI_SUM, MPI_COMM_WORLD);
      if (code != MPI_SUCCESS) throw Failure("MPI_Allreduce gave {}", code);
      values += count;
    }
  }

 private:
  std::vector<std::uint64_t> elements_;
  Buffer values_;
};

void work(const PeerArguments& arguments) {
  Control control(arguments.control);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != static_cast<int>(control.workers()))
    throw Failure("{} MPI ranks for {} workers", ranks, control.workers());
  MpiExchange exchange(control.elements());
  take_part(control, static_cast<std::uint32_t>(rank), exchange);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = peer_main(argc, argv, "dtbench-mpi", work);
  MPI_Finalize();
  return code;
}
