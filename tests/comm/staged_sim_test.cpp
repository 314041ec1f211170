// Collectives and messages of tensors on a device: the results of the host, with work at once and late, and
// no copy that was not planned.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <vector>

#include "comm/threads.h"
#include "device/host_kernel.h"
#include "support/sim_orders.h"
#include "tensor/host_copy.h"

namespace ingot::test::staged_sim_test {

constexpr int kRanks = 3;
constexpr int64_t kWidth = 5;

/// A tensor of the device with a host's values, as kernels leave it.
class OnSim {
 public:
  explicit OnSim(std::vector<float> values)
      : tensor_(sim_device().allocate(bytes(values)), {static_cast<int64_t>(values.size()) / kWidth, kWidth},
                DType::f32, DeviceKind::sim) {
    upload(Tensor::of(values.data(), tensor_.shape()), tensor_);
  }
  ~OnSim() { sim_device().release(tensor_.data, tensor_.bytes()); }
  OnSim(const OnSim&) = delete;
  OnSim& operator=(const OnSim&) = delete;
  const Tensor& tensor() const { return tensor_; }
  std::vector<float> values() const {
    const HostCopy copy(tensor_);
    return {copy.as<float>(), copy.as<float>() + tensor_.numel()};
  }

 private:
  static int64_t bytes(const std::vector<float>& values) {
    return static_cast<int64_t>(values.size() * sizeof(float));
  }
  Tensor tensor_;
};

std::vector<float> values_of(int rank, int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * kWidth));
  std::iota(values.begin(), values.end(), 0.1F + 1000.0F * static_cast<float>(rank));
  return values;
}

using Operation = std::function<Pending(Communicator&, const Tensor& in, const Tensor& out)>;
struct Case {
  const char* name;
  int64_t in_rows, out_rows;
  Operation start;
};

const std::vector<Case>& cases() {
  static const std::vector<int64_t> uneven{1, 0, 2};
  static const std::vector<Case> all = {
      {"all_reduce", 4, 4, [](auto& c, auto& in, auto& out) { return c.all_reduce(in, out); }},
      {"all_reduce in place", 4, 4, [](auto& c, auto&, auto& out) { return c.all_reduce(out, out); }},
      {"reduce_scatter", 6, 2, [](auto& c, auto& in, auto& out) { return c.reduce_scatter(in, out); }},
      {"all_gather", 2, 6, [](auto& c, auto& in, auto& out) { return c.all_gather(in, out); }},
      {"broadcast", 2, 2, [](auto& c, auto&, auto& out) { return c.broadcast(out, 1); }},
      {"all_to_all", 3, 7,
       [](auto& c, auto& in, auto& out) {
         const std::vector<int64_t> from(kRanks, uneven[static_cast<size_t>(c.rank())]);
         return c.all_to_all(in, uneven, out, from);
       }},
      {"ring", 2, 2,
       [](auto& c, auto& in, auto& out) {
         Pending sent = c.send(in, (c.rank() + 1) % kRanks);
         c.recv(out, (c.rank() + kRanks - 1) % kRanks).wait();
         sent.wait();
         return Pending();
       }},
      {"nothing", 0, 0, [](auto& c, auto& in, auto& out) { return c.all_reduce(in, out); }},
  };
  return all;
}

/// What each case leaves in `out`.
std::vector<std::vector<float>> results(Communicator& comm, bool on_sim) {
  std::vector<std::vector<float>> all;
  for (const Case& c : cases()) {
    std::vector<float> in = values_of(comm.rank(), c.in_rows), out = values_of(comm.rank() + 7, c.out_rows);
    if (on_sim) {
      const OnSim from(in), to(out);
      Pending pending = c.start(comm, from.tensor(), to.tensor());
      pending.wait();
      all.push_back(to.values());
    } else {
      static char nothing;
      const auto view = [](std::vector<float>& v, int64_t rows) {
        return Tensor(rows > 0 ? static_cast<void*>(v.data()) : &nothing, Shape{rows, kWidth}, DType::f32);
      };
      c.start(comm, view(in, c.in_rows), view(out, c.out_rows)).wait();
      all.push_back(out);
    }
  }
  return all;
}

TEST(Staged, CollectivesOnADeviceHaveTheResultsOfTheHost) {
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    const int64_t unplanned = sim_device().counters().unplanned_copies;
    std::atomic<int64_t> read = 0;  // by the test
    run_ranks(kRanks, [&](ThreadRank& self) {
      const auto comm = self.group("all", {0, 1, 2});
      const auto there = results(*comm, true), here = results(*comm, false);
      for (size_t i = 0; i < here.size(); ++i) {
        EXPECT_EQ(there[i], here[i]) << cases()[i].name << " " << sim_order_text(order);
        ++read;
      }
    });
    EXPECT_LE(sim_device().counters().unplanned_copies - unplanned, read) << "but those of the test";
  }
}

/// The compute stream waits for what arrives, and nothing else must be asked to.
TEST(Staged, AKernelAfterTheWaitReadsWhatArrived) {
  const InSimOrder in_order({true, 4});
  run_ranks(kRanks, [&](ThreadRank& self) {
    const auto comm = self.group("all", {0, 1, 2});
    const OnSim x(values_of(self.rank(), 4)), twice(values_of(9, 4));
    comm->all_reduce(x.tensor(), x.tensor()).wait();
    sim_device().launch(
        {{{x.tensor().data, x.tensor().bytes(), false}, {twice.tensor().data, twice.tensor().bytes(), true}},
         [](std::span<void* const> at) {
           for (int i = 0; i < 20; ++i)
             static_cast<float*>(at[1])[i] = 2 * static_cast<const float*>(at[0])[i];
         }});
    const std::vector<float> sum = x.values(), doubled = twice.values();
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(doubled[i], 2 * sum[i]);
    EXPECT_GT(sum[0], 3000.0F);
  });
}

}  // namespace ingot::test::staged_sim_test
